//! Sends and receives whole frames, each within a time limit.

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use zodium_transport::Transport;

use super::DirectError;
use super::stream::{Stream, refused};
use crate::input::Input;

/// A connection, with the bytes that were read and not used yet.
pub(super) struct Frames {
    transport: Transport,
    input: Input,
}

impl Frames {
    pub(super) fn new(stream: Stream) -> Frames {
        Frames { transport: stream.transport, input: Input::new() }
    }

    /// Receives the first frame, which announces the server's encoding.
    pub(super) fn receive_announcement(&mut self, limit: Duration) -> Result<Vec<u8>, DirectError> {
        let is_encrypted = self.transport.is_encrypted();
        self.receive(limit).map_err(|error| match error {
            // A server with TLS sends nothing before its client does, and gives up in the end.
            DirectError::Silent { limit } if !is_encrypted => DirectError::NoGreeting { limit },
            DirectError::Closed if !is_encrypted => DirectError::ClosedUnheard,
            error => error,
        })
    }

    /// Receives the payload of the next frame. After [`DirectError::Silent`], when it is late, the
    /// caller may wait again.
    pub(super) fn receive(&mut self, limit: Duration) -> Result<Vec<u8>, DirectError> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(payload) = self.input.next_payload()? {
                return Ok(payload.to_vec());
            }
            if Instant::now() >= deadline {
                return Err(DirectError::Silent { limit });
            }
            match self.transport.receive_by(&mut self.input.buffer, Some(deadline)) {
                Ok(0) => return Err(DirectError::Closed),
                Ok(_) => {}
                Err(error) if is_retried(error.kind()) => {}
                Err(error) => return Err(failed(error)),
            }
        }
    }

    /// Sends whole frames. After an error the connection cannot be used any more.
    pub(super) fn send(&mut self, frames: &[u8], limit: Duration) -> Result<(), DirectError> {
        let sent = self.transport.send_by(frames, Some(Instant::now() + limit));
        sent.map_err(|error| match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => DirectError::Silent { limit },
            _ => failed(error),
        })
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        // Without it a server with TLS cannot tell an orderly end from a broken connection.
        self.transport.say_goodbye();
    }
}

fn is_retried(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

fn failed(error: io::Error) -> DirectError {
    match error.kind() {
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof => {
            DirectError::Closed
        }
        _ => refused(error),
    }
}
