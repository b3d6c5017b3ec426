//! A poll of a socket that other threads can interrupt.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// A poll of a socket that other threads can interrupt.
#[derive(Debug)]
pub(crate) struct Poll {
    /// Wakers write to the first, the second is polled.
    wakes: (UnixStream, UnixStream),
}

impl Poll {
    /// A poll that was not interrupted.
    pub(crate) fn new() -> io::Result<Poll> {
        let wakes = UnixStream::pair()?;
        wakes.0.set_nonblocking(true)?;
        wakes.1.set_nonblocking(true)?;
        Ok(Poll { wakes })
    }

    /// Interrupts the poll, or the next one.
    pub(crate) fn interrupt(&self) {
        // If the pipe is full, a wake-up is already pending.
        let _ = (&self.wakes.0).write(&[1]);
    }

    /// Whether there is data to read within the limit; `false` also if it was interrupted.
    pub(crate) fn wait(&self, socket: BorrowedFd<'_>, limit: Option<Duration>) -> bool {
        let mut waits = [
            PollFd::from_borrowed_fd(socket, PollFlags::IN),
            PollFd::from_borrowed_fd(self.wakes.1.as_fd(), PollFlags::IN),
        ];
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        let polled = poll(&mut waits, limit.as_ref());
        polled.is_ok() && !waits[0].revents().is_empty()
    }

    /// Forgets interruptions that have come.
    pub(crate) fn clear(&self) {
        let mut wakes = [0; 64];
        while matches!((&self.wakes.1).read(&mut wakes), Ok(count) if count > 0) {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_poll_ends_with_data_or_when_it_is_interrupted() {
        let (mut peer, socket) = UnixStream::pair().unwrap();
        let poll = Poll::new().unwrap();
        poll.interrupt();
        assert!(!poll.wait(socket.as_fd(), None));
        poll.clear();
        peer.write_all(b"x").unwrap();
        assert!(poll.wait(socket.as_fd(), None));
    }
}
