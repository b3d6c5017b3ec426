//! The job that a client program gets, and the results that it prints.

use serde::{Deserialize, Serialize};

use crate::options::ClientCase;

/// A case. `driver.py` reads the same names.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Job {
    pub(super) client: String,
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) case: String,
    /// Number of objects loaded, or committed at once.
    pub(super) objects: u64,
    /// Size of a committed object.
    pub(super) bytes: u32,
    pub(super) threads: u16,
    /// Least time to measure.
    pub(super) seconds: f64,
    /// Warm-up time of commits.
    pub(super) warm_up: f64,
    /// Time limit of an iteration in seconds.
    pub(super) patience: u16,
    /// The last transaction of an iteration, in hexadecimal digits.
    pub(super) last_tid: String,
}

/// Results of one pass, or of several together.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Line {
    pub(super) step: String,
    pub(super) count: u64,
    pub(super) seconds: f64,
    pub(super) cpu_seconds: f64,
    /// The CRC-32 over all data of the pass.
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

/// The name of a case in a job.
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
