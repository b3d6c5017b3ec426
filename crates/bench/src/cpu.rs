//! Processor time of a process, thread by thread, in nanoseconds.
//!
//! `/proc/PID/stat` counts ticks of 10 ms and charges whole ticks to the thread that is running.
//! The scheduler's own sum is exact except for the running time slice, which is at most one timer
//! period (4 ms on most kernels).

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Processor time used by each thread of a process so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuTime {
    nanos_by_thread: HashMap<u64, u64>,
}

impl CpuTime {
    /// Reads the times of a process.
    pub(crate) fn of_process(pid: u32) -> io::Result<CpuTime> {
        let tasks = PathBuf::from(format!("/proc/{pid}/task"));
        let mut nanos_by_thread = HashMap::new();
        for task in std::fs::read_dir(tasks)? {
            let task = task?;
            // A thread may end in between.
            let Ok(text) = std::fs::read_to_string(task.path().join("schedstat")) else { continue };
            let nanos = text.split_whitespace().next().and_then(|field| field.parse().ok());
            let thread = task.file_name().to_str().and_then(|name| name.parse().ok());
            match (thread, nanos) {
                (Some(thread), Some(nanos)) => nanos_by_thread.insert(thread, nanos),
                _ => return Err(io::Error::other(format!("not a schedstat: {text:?}"))),
            };
        }
        if nanos_by_thread.is_empty() {
            return Err(io::Error::other("/proc/PID/task/TID/schedstat is missing on this kernel"));
        }
        Ok(CpuTime { nanos_by_thread })
    }

    /// The times of the threads of both processes.
    pub(crate) fn and(mut self, other: CpuTime) -> CpuTime {
        self.nanos_by_thread.extend(other.nanos_by_thread);
        self
    }

    /// Total of all live threads since they started.
    pub(crate) fn total(&self) -> Duration {
        self.since(&CpuTime::default())
    }

    /// Total of all live threads since an earlier reading.
    pub(crate) fn since(&self, earlier: &CpuTime) -> Duration {
        let used = self.nanos_by_thread.iter().map(|(thread, nanos)| {
            nanos.saturating_sub(earlier.nanos_by_thread.get(thread).copied().unwrap_or(0))
        });
        Duration::from_nanos(used.sum())
    }
}

/// Number of context switches, voluntary or not, of all live threads of a process.
pub(crate) fn context_switches(pid: u32) -> io::Result<u64> {
    let mut switches = 0;
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may end in between.
        let status = std::fs::read_to_string(task?.path().join("status")).unwrap_or_default();
        let counts = status.lines().filter_map(|line| {
            let (name, count) = line.split_once(':')?;
            name.ends_with("voluntary_ctxt_switches").then(|| count.trim().parse::<u64>().ok())?
        });
        switches += counts.sum::<u64>();
    }
    Ok(switches)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(entries: &[(u64, u64)]) -> CpuTime {
        CpuTime { nanos_by_thread: entries.iter().copied().collect() }
    }

    #[test]
    fn threads_that_come_and_go_do_not_spoil_the_difference() {
        let earlier = times(&[(1, 1000), (2, 500_000)]);
        let later = times(&[(1, 1700), (3, 40)]);
        assert_eq!(later.since(&earlier), Duration::from_nanos(740));
    }

    #[test]
    fn work_is_seen() {
        let pid = std::process::id();
        let before = CpuTime::of_process(pid).unwrap();
        let start = std::time::Instant::now();
        let mut used = Duration::ZERO;
        while used < Duration::from_millis(20) && start.elapsed() < Duration::from_secs(30) {
            std::hint::black_box((0..100_000).fold(0_u64, |sum, n| sum.rotate_left(3) ^ n));
            used = CpuTime::of_process(pid).unwrap().since(&before);
        }
        assert!(used >= Duration::from_millis(20));
    }
}
