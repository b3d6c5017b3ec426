//! All decoders of foreign input, with the claims that hold for any input.

mod blob_names;
mod certificates;
mod checksums;
mod configuration;
mod data_file;
mod frames;
mod index;
mod log_chunks;
mod messages;
mod neo;
mod pickles;
mod resolution;
mod saved_cache;
mod values;

/// A decoder, and the claims that hold for any input.
#[derive(Debug)]
pub struct Target {
    /// The name of the target.
    pub name: &'static str,
    /// Initial inputs; most are valid.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Panics if a claim does not hold.
    pub check: fn(&[u8]),
    /// Most bytes that an input of this length may allocate.
    pub memory_bytes_max: fn(usize) -> usize,
}

/// All targets.
pub static TARGETS: &[Target] = &[
    frames::FRAMES,
    frames::HANDSHAKES,
    messages::REQUESTS_Z5,
    messages::REQUESTS_M5,
    messages::REPLIES_Z5,
    messages::REPLIES_M5,
    messages::LOADS,
    pickles::VALUES,
    pickles::RECORDS,
    resolution::RESOLUTION,
    data_file::DATA_FILE,
    index::INDEX,
    index::INDEX_CHECKSUM,
    checksums::SIDE_FILES,
    checksums::DAMAGED_DATA,
    configuration::ZCONFIG,
    configuration::TOML,
    blob_names::BLOB_NAMES,
    certificates::CERTIFICATES,
    saved_cache::SAVED_CACHE,
    log_chunks::LOG_CHUNKS,
    neo::MESSAGES,
    neo::GREETINGS,
];

/// Finds a target by name.
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// Little more than the input itself.
const fn linear(length: usize) -> usize {
    (256 << 10) + 64 * length
}
