//! Two threads that wake each other: a byte there and a byte back.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

use anyhow::{Result, anyhow};
use rustix::thread::{CpuSet, sched_setaffinity};

use super::sampled;
use crate::result::Latencies;

/// How the threads stand to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stand {
    /// Both on one processor.
    SameCore,
    /// Each on its own, asleep until woken.
    OtherCore,
    /// Each on its own, awake and asking again and again.
    Polling,
}

impl Stand {
    pub(super) const ALL: [Stand; 3] = [Stand::SameCore, Stand::OtherCore, Stand::Polling];

    pub(super) fn name(self) -> &'static str {
        match self {
            Stand::SameCore => "ping-pong, both on one core",
            Stand::OtherCore => "ping-pong, each on its own core",
            Stand::Polling => "ping-pong, each on its own core, polling",
        }
    }
}

/// Round trips of a byte. The threads end with it, and with them their places.
pub(super) fn measure(stand: Stand, count: u32) -> Result<Latencies> {
    let (near, far) = UnixStream::pair()?;
    let is_polling = stand == Stand::Polling;
    near.set_nonblocking(is_polling)?;
    far.set_nonblocking(is_polling)?;
    let place = usize::from(stand != Stand::SameCore);
    std::thread::scope(|scope| {
        let echo = scope.spawn(move || echo(far, place));
        let asked = scope.spawn(move || {
            stay_on(0)?;
            let mut near = near;
            sampled(
                count,
                &mut near,
                |_| Ok(()),
                |near| {
                    near.write_all(&[1])?;
                    take(near).map(drop)
                },
            )
        });
        let latencies = asked.join().map_err(|_| anyhow!("a thread panicked"))?;
        echo.join().map_err(|_| anyhow!("a thread panicked"))??;
        latencies
    })
}

/// Answers until the other end is gone.
fn echo(mut far: UnixStream, place: usize) -> io::Result<()> {
    stay_on(place)?;
    while take(&mut far)? {
        far.write_all(&[2])?;
    }
    Ok(())
}

/// A byte, waited for as the socket is set; false at the end.
fn take(stream: &mut UnixStream) -> io::Result<bool> {
    let mut byte = [0];
    loop {
        match stream.read(&mut byte) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::hint::spin_loop(),
            read => return read.map(|count| count > 0),
        }
    }
}

/// Where there is only one processor all are on it.
fn stay_on(place: usize) -> io::Result<()> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let mut set = CpuSet::new();
    set.set(place.min(processors - 1));
    Ok(sched_setaffinity(None, &set)?)
}
