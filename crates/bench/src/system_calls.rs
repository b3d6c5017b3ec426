//! Counts the system calls of a server with strace.
//!
//! A traced server is much slower, so nothing else is measured meanwhile. If strace is missing or
//! may not attach, the count is unknown.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::process::{Pid, Signal, kill_process};

use crate::result::{Measurement, Sample, Shown};
use crate::server::Server;

/// How long strace may take to attach.
const ATTACH_PATIENCE: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(5);
/// Calls rarer than this per request are part of the total only.
const SHARE_MIN: f64 = 0.01;

/// Number of calls by name.
pub(crate) type Count = BTreeMap<String, u64>;

/// A running strace.
#[derive(Debug)]
pub(crate) struct SystemCalls {
    strace: Child,
    summary: PathBuf,
}

impl SystemCalls {
    /// Starts counting; `None` if strace cannot be used.
    pub(crate) fn begin(server: &Server, folder: &Path) -> Result<Option<SystemCalls>> {
        let Some(process) = server.process_id() else { return Ok(None) };
        let summary = folder.join("strace");
        let strace = Command::new("strace")
            .args(["-c", "-f", "-q", "-o"])
            .arg(&summary)
            .args(["-p", &process.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(strace) = strace else { return Ok(None) };
        let mut calls = SystemCalls { strace, summary };
        let deadline = Instant::now() + ATTACH_PATIENCE;
        while !is_traced(process) {
            if calls.strace.try_wait()?.is_some() || Instant::now() > deadline {
                return Ok(None);
            }
            sleep(POLL);
        }
        Ok(Some(calls))
    }

    /// Stops counting.
    pub(crate) fn end(mut self) -> Option<Count> {
        kill_process(Pid::from_child(&self.strace), Signal::INT).ok()?;
        self.strace.wait().ok()?;
        let summary = std::fs::read_to_string(&self.summary).ok()?;
        Some(summary.lines().filter_map(parse).collect())
    }
}

impl Drop for SystemCalls {
    fn drop(&mut self) {
        // strace may have ended with the server; then there is nothing to signal.
        if self.strace.try_wait().is_ok_and(|status| status.is_none()) {
            let _ = kill_process(Pid::from_child(&self.strace), Signal::INT);
            let _ = self.strace.wait();
        }
    }
}

/// Adds columns for the total and for each frequent call, with their samples. The sample value
/// `per` is the number of requests that the calls were counted over.
pub(crate) fn fill(measured: &mut Measurement, counts: Vec<(Sample, Option<Count>)>, per: &str) {
    let mut made = std::mem::replace(measured, Measurement::new("", String::new()));
    made = made.column("calls", "calls", Shown::Spread).go("syscalls/op", 1.0);
    let mut names = BTreeSet::new();
    for (sample, count) in counts {
        let requests = sample.values.get(per).copied().unwrap_or(f64::NAN);
        let mut sample = sample;
        if let Some(count) = count.filter(|count| !count.is_empty()) {
            sample = sample.value("calls", count.values().sum::<u64>() as f64 / requests);
            for (name, calls) in count {
                let share = calls as f64 / requests;
                if share >= SHARE_MIN {
                    sample = sample.value(&name, share);
                    names.insert(name);
                }
            }
        }
        made.samples.push(sample);
    }
    for name in names {
        // In a server that makes none of these calls the count is known to be 0.
        for sample in made.samples.iter_mut().filter(|s| s.values.contains_key("calls")) {
            sample.values.entry(name.clone()).or_insert(0.0);
        }
        made = made.column(&name, &name, Shown::Median);
    }
    *measured = made;
}

fn is_traced(process: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
    tracer.is_some_and(|pid| pid.trim() != "0")
}

/// Parses a line of strace's summary: share, seconds, microseconds per call, calls, errors if any,
/// name.
fn parse(line: &str) -> Option<(String, u64)> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let is_figure = |text: &&str| text.parse::<f64>().is_ok();
    if !(5..=6).contains(&fields.len()) || !fields.iter().take(4).all(is_figure) {
        return None;
    }
    let name = *fields.last()?;
    (name != "total").then_some((name.to_owned(), fields.get(3)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_of_strace_is_read() {
        let summary = "\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 62.50    0.000025           2        10           sendto
 37.50    0.000015           1        12         3 recvfrom
------ ----------- ----------- --------- --------- ----------------
100.00    0.000040           1        22         3 total
";
        let count: Count = summary.lines().filter_map(parse).collect();
        assert_eq!(count, Count::from([("sendto".to_owned(), 10), ("recvfrom".to_owned(), 12)]));
    }
}
