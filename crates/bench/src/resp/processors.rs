//! Keeps the server on one processor, and the clients on another.

use anyhow::{Context, Result};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::processors::{allowed, stay_on};
use crate::server::Server;

/// The processors of this thread before it was pinned, which it gets back.
pub(super) struct Pinned(CpuSet);

impl Drop for Pinned {
    fn drop(&mut self) {
        // Without it the next servers start on one processor, and are pinned anew in any case.
        let _ = sched_setaffinity(None, &self.0);
    }
}

/// Pins all threads of a server to the first processor.
pub(super) fn pin_server(server: &Server) -> Result<()> {
    let process = server.process_id().context("a server that runs elsewhere cannot be pinned")?;
    let first = *allowed()?.first().context("this process has no processor")?;
    for task in std::fs::read_dir(format!("/proc/{process}/task"))? {
        let thread = task?.file_name().to_str().and_then(|name| name.parse().ok());
        let thread = thread.and_then(Pid::from_raw).context("not the number of a thread")?;
        stay_on(Some(thread), first).context("cannot pin the server")?;
    }
    Ok(())
}

/// Pins this thread, and those that it starts, to the last processor.
pub(super) fn pin_clients() -> Result<Pinned> {
    let before = sched_getaffinity(None)?;
    let last = allowed()?.pop().context("this process has no processor")?;
    stay_on(None, last).context("cannot pin the clients")?;
    Ok(Pinned(before))
}
