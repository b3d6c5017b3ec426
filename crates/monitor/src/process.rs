//! Resource usage of the process, from `/proc`. Values that cannot be read are left out.

use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

/// Resource usage of the process.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Process {
    /// Processor time, user and system together.
    pub(crate) cpu_seconds: f64,
    /// Memory in use.
    pub(crate) resident_bytes: Option<u64>,
    /// Open files and sockets.
    pub(crate) open_files: Option<u64>,
    /// Limit of open files and sockets.
    pub(crate) open_files_max: Option<u64>,
}

impl Process {
    pub(crate) fn now() -> Process {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        Process {
            cpu_seconds: cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9,
            resident_bytes: resident_bytes(),
            // One of them is the open folder itself.
            open_files: std::fs::read_dir("/proc/self/fd")
                .ok()
                .map(|files| files.count() as u64 - 1),
            open_files_max: getrlimit(Resource::Nofile).current,
        }
    }
}

fn resident_bytes() -> Option<u64> {
    let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
    let resident: u64 = pages.split_whitespace().nth(1)?.parse().ok()?;
    Some(resident * rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_finds_itself_running() {
        let before = Process::now();
        let held: Vec<u8> = vec![1; 64 << 20];
        let file = std::fs::File::open("/proc/self/stat").unwrap();
        let after = Process::now();
        assert!(after.cpu_seconds > before.cpu_seconds);
        assert!(after.resident_bytes.unwrap() > 64 << 20);
        assert!(after.open_files.unwrap() > 0 && after.open_files <= after.open_files_max);
        drop((file, held));
    }
}
