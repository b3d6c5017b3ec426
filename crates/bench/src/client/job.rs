//! What a client is told to do, and what it tells of it.

use serde::{Deserialize, Serialize};

use crate::options::ClientCase;

/// One case. `driver.py` reads the same names.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Job {
    pub(super) client: String,
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) case: String,
    /// How many are loaded, or committed at once.
    pub(super) objects: u64,
    /// Of an object that is committed.
    pub(super) bytes: u32,
    pub(super) threads: u16,
    /// How long it is to take at least.
    pub(super) seconds: f64,
    /// Of commits: how long before that.
    pub(super) warm_up: f64,
    /// How many seconds an iteration may take.
    pub(super) patience: u16,
    /// Where an iteration ends, in hexadecimal digits.
    pub(super) last_tid: String,
}

/// One pass, or the sum of several.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Line {
    pub(super) step: String,
    pub(super) count: u64,
    pub(super) seconds: f64,
    pub(super) cpu_seconds: f64,
    /// Over all data of the pass.
    pub(super) crc32: String,
    #[serde(default = "one")]
    pub(super) passes: u64,
}

impl Line {
    pub(super) fn add(&mut self, other: &Line) {
        self.count += other.count;
        self.seconds += other.seconds;
        self.cpu_seconds += other.cpu_seconds;
        self.passes += other.passes;
    }
}

/// What a case is called in a job.
pub(super) fn name(case: ClientCase) -> &'static str {
    match case {
        ClientCase::Load => "load",
        ClientCase::Threads => "threads",
        ClientCase::Bulk => "bulk",
        ClientCase::Commit => "commit",
        ClientCase::Iterate => "iterate",
    }
}

fn one() -> u64 {
    1
}
