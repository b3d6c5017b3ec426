//! The processors that this process may use, and threads that stay on one of them.

use anyhow::{Context, Result};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The numbers of the processors that the calling thread may use, in order; at least one.
pub(crate) fn allowed() -> Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    let numbers: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|number| set.is_set(*number)).collect();
    numbers.first().context("this process has no processor")?;
    Ok(numbers)
}

/// Keeps a thread, or the calling one, on a processor.
pub(crate) fn stay_on(thread: Option<Pid>, number: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(number);
    let pinned = sched_setaffinity(thread, &set);
    pinned.with_context(|| format!("cannot pin a thread to processor {number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_may_use_one_processor_is_on_that_one() {
        let last = allowed().unwrap().pop().unwrap();
        let found = std::thread::spawn(move || {
            stay_on(None, last).unwrap();
            allowed().unwrap()
        });
        assert_eq!(found.join().unwrap(), [last]);
    }
}
