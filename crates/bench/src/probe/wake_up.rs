//! Measures how fast two threads wake each other: a byte there and a byte back.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

use anyhow::{Result, anyhow};

use super::sampled;
use crate::processors::{self, stay_on};
use crate::result::Latencies;

/// How the two threads run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placement {
    /// Both on one core.
    SameCore,
    /// Each on its own core, blocking in reads.
    OtherCore,
    /// Each on its own core, polling.
    Polling,
}

impl Placement {
    pub(super) const ALL: [Placement; 3] =
        [Placement::SameCore, Placement::OtherCore, Placement::Polling];

    pub(super) fn name(self) -> &'static str {
        match self {
            Placement::SameCore => "ping-pong, both on one core",
            Placement::OtherCore => "ping-pong, each on its own core",
            Placement::Polling => "ping-pong, each on its own core, polling",
        }
    }
}

/// Measures round trips of a byte; `None` if there are fewer cores than it needs. The threads, and
/// their core affinity, end with it.
pub(super) fn measure(placement: Placement, count: u32) -> Result<Option<Latencies>> {
    let cores = processors::allowed()?;
    let far_core = if placement == Placement::SameCore { cores.first() } else { cores.get(1) };
    let (Some(near_core), Some(far_core)) = (cores.first().copied(), far_core.copied()) else {
        return Ok(None);
    };
    let (near, far) = UnixStream::pair()?;
    let is_polling = placement == Placement::Polling;
    near.set_nonblocking(is_polling)?;
    far.set_nonblocking(is_polling)?;
    std::thread::scope(|scope| {
        let echo = scope.spawn(move || echo(far, far_core));
        let asked = scope.spawn(move || {
            stay_on(None, near_core)?;
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
        // Its error comes first: the other end then finds the stream closed.
        echo.join().map_err(|_| anyhow!("a thread panicked"))??;
        latencies.map(Some)
    })
}

/// Echoes until the other end is closed.
fn echo(mut far: UnixStream, core: usize) -> Result<()> {
    stay_on(None, core)?;
    while take(&mut far)? {
        far.write_all(&[2])?;
    }
    Ok(())
}

/// Reads a byte, in the socket's blocking mode; `false` at the end of the stream.
fn take(stream: &mut UnixStream) -> io::Result<bool> {
    let mut byte = [0];
    loop {
        match stream.read(&mut byte) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::hint::spin_loop(),
            read => return read.map(|count| count > 0),
        }
    }
}
