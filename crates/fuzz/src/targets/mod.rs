//! Everything that reads what others wrote, each with the claims that hold for any input.

mod blob_names;
mod certificates;
mod checksums;
mod configuration;
mod data_file;
mod frames;
mod index;
mod messages;
mod pickles;
mod resolution;
mod saved_cache;
mod stretches;
mod values;

pub(crate) use values::plain;

/// A decoder, and what must hold whatever it is given.
#[derive(Debug)]
pub struct Target {
    /// What it is asked for by.
    pub name: &'static str,
    /// Inputs to begin with; most are good ones.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Panics when something does not hold.
    pub check: fn(&[u8]),
    /// What an input of this length may make it allocate, in bytes.
    pub memory_bytes_max: fn(usize) -> usize,
}

/// All of them.
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
    stretches::STRETCHES,
];

/// The target of that name.
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// Little more than the input takes itself.
const fn linear(length: usize) -> usize {
    (256 << 10) + 64 * length
}
