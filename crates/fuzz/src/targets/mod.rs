//! Decoders of foreign input, with the claims that hold for any input.
//!
//! Not among them: files of backups, the arguments of RESP commands, rows of databases that another
//! program wrote, answers of helper processes, and HTTP. They have tests by example.

mod blob_names;
mod certificates;
mod checksums;
mod configuration;
mod data_file;
mod disassembly;
mod dumps;
mod frames;
mod index;
mod key_log;
mod log_chunks;
mod messages;
mod neo;
mod neo_database;
mod neo_node;
mod pickles;
mod rdb;
mod resolution;
mod resp;
mod saved_cache;
mod short_cuts;
mod stored_data;
mod values;

use std::io;
use std::path::PathBuf;

use crate::MEMORY;

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
    neo_node::NODE,
    resp::REQUESTS,
    rdb::FILES,
    key_log::FILES,
    short_cuts::LOAD_REPLIES,
    short_cuts::BEGUN,
    stored_data::STORED_DATA,
    dumps::DUMPS,
    disassembly::DISASSEMBLY,
];

impl Target {
    /// Checks one input.
    ///
    /// Memory is counted for the whole process, so inputs are fed one at a time.
    ///
    /// # Panics
    ///
    /// If a claim does not hold, or if the input allocates too much.
    pub fn feed(&self, input: &[u8]) {
        MEMORY.reset_peak_usage();
        let before = MEMORY.current_usage();
        (self.check)(input);
        let used = MEMORY.peak_usage().saturating_sub(before);
        let most = (self.memory_bytes_max)(input.len());
        assert!(used <= most, "it allocates {used} bytes, of {most} at most");
    }

    /// The inputs to start from: the seeds, and those in `corpus/found/`, which once failed.
    ///
    /// # Errors
    ///
    /// If a file in that folder cannot be read.
    pub fn known(&self) -> io::Result<Vec<Vec<u8>>> {
        let mut known = (self.seeds)();
        let found = match self.found().read_dir() {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(known),
            Err(error) => return Err(error),
        };
        for file in found {
            known.push(std::fs::read(file?.path())?);
        }
        Ok(known)
    }

    /// The folder with the inputs that once failed.
    pub fn found(&self) -> PathBuf {
        [env!("CARGO_MANIFEST_DIR"), "corpus", "found", self.name].iter().collect()
    }
}

/// Finds a target by name.
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// Little more than the input itself.
const fn linear(length: usize) -> usize {
    (256 << 10) + 64 * length
}
