//! Measures the machine itself: single system calls, wake-ups, the disk.

mod calls;
mod disk;
mod settings;
pub(crate) mod syscalls;
pub(crate) mod system;
mod wake_up;

use std::io;
use std::time::Instant;

use crate::result::Latencies;

/// Times `count` calls; before each one, `prepare` runs untimed.
fn sampled<T>(
    count: u32,
    state: &mut T,
    mut prepare: impl FnMut(&mut T) -> io::Result<()>,
    mut call: impl FnMut(&mut T) -> io::Result<()>,
) -> anyhow::Result<Latencies> {
    let mut latencies = Latencies::new()?;
    for _ in 0..count {
        prepare(state)?;
        let began = Instant::now();
        call(state)?;
        latencies.record(began.elapsed());
    }
    Ok(latencies)
}
