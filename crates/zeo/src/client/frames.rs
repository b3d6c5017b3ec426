//! Sends and receives whole frames over a stream, each within a time limit.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};

use super::{ClientError, Stream, tls};
use crate::codec::frame::split_frame;

/// Longest answer accepted. The buffer grows as bytes arrive, not by the announced length.
const FRAME_BYTES_MAX: u32 = 1 << 30;
/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;

/// A stream, with the bytes that were read and not used yet.
pub(super) struct Frames<S> {
    stream: S,
    input: BytesMut,
}

impl<S: Stream> Frames<S> {
    pub(super) fn new(stream: S) -> Frames<S> {
        Frames { stream, input: BytesMut::new() }
    }

    /// Receives the first frame, which announces the server's encoding.
    pub(super) fn receive_announcement(&mut self, limit: Duration) -> Result<Bytes, ClientError> {
        let is_encrypted = self.stream.is_encrypted();
        self.receive(limit).map_err(|error| match error {
            // A server with TLS sends nothing before its client does, and gives up in the end.
            ClientError::Silent { limit } if !is_encrypted => ClientError::NoGreeting { limit },
            ClientError::Closed if !is_encrypted => ClientError::ClosedUnheard,
            error => error,
        })
    }

    /// Receives the payload of the next frame. After [`ClientError::Silent`], when it is late, the
    /// caller may wait again.
    pub(super) fn receive(&mut self, limit: Duration) -> Result<Bytes, ClientError> {
        let started = Instant::now();
        let mut buffer = vec![0; READ_BYTES];
        loop {
            if let Some(payload) = split_frame(&mut self.input, FRAME_BYTES_MAX)? {
                return Ok(payload);
            }
            let left = limit.saturating_sub(started.elapsed());
            if left.is_zero() {
                return Err(ClientError::Silent { limit });
            }
            self.stream.limit_waiting(Some(left)).map_err(ClientError::Io)?;
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(ClientError::Closed),
                Ok(count) => self.input.extend_from_slice(&buffer[..count]),
                Err(error) if is_retried(error.kind()) => {}
                Err(error) => return Err(failed(error)),
            }
        }
    }

    /// Sends whole frames. After an error the connection cannot be used any more.
    pub(super) fn send(&mut self, frames: &[u8], limit: Duration) -> Result<(), ClientError> {
        self.stream.limit_waiting(Some(limit)).map_err(ClientError::Io)?;
        let written = self.stream.write_all(frames).and_then(|()| self.stream.flush());
        written.map_err(|error| match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => ClientError::Silent { limit },
            _ => failed(error),
        })
    }
}

fn is_retried(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

fn failed(error: std::io::Error) -> ClientError {
    match error.kind() {
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof => {
            ClientError::Closed
        }
        _ => tls::refused(error),
    }
}
