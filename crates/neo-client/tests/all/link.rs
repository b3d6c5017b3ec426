//! One connection of a model node: whole messages in, whole messages out.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use bytes::BytesMut;
use parking_lot::Mutex;
use zodium_neo::{GREETING, Message, MessageIds, Packet, Scan, Scanner, encode};

/// A connection that was accepted.
pub(crate) struct Link {
    stream: TcpStream,
    output: Mutex<MessageIds>,
}

impl Link {
    /// Greets.
    pub(crate) fn new(stream: TcpStream) -> Link {
        let mut greeting = [0; GREETING.len()];
        // A client that leaves at once is none.
        let _ = (&stream).write_all(&GREETING);
        let _ = (&stream).read_exact(&mut greeting);
        Link { stream, output: Mutex::default() }
    }

    /// Hands each message to `take` until the connection ends, or `take` gives false.
    pub(crate) fn read(&self, mut take: impl FnMut(u32, Message<'_>) -> bool) {
        let (mut buffer, mut scanner) = (Vec::new(), Scanner::default());
        loop {
            let taken = match scanner.scan(&buffer).unwrap() {
                Scan::Complete(frame) => {
                    let Packet { id, message } = Packet::decode(frame).unwrap();
                    if !take(id, message) {
                        break;
                    }
                    frame.bytes().len()
                }
                Scan::Need(_) => 0,
            };
            buffer.drain(..taken);
            if taken == 0 {
                let mut room = [0; 4096];
                match (&self.stream).read(&mut room) {
                    Ok(0) | Err(_) => break,
                    Ok(count) => buffer.extend_from_slice(&room[..count]),
                }
            }
        }
        self.close();
    }

    /// Answers a request.
    pub(crate) fn answer<'a>(&self, id: u32, message: impl Into<Message<'a>>) {
        let mut out = BytesMut::new();
        encode(id, message, &mut out).unwrap();
        let _output = self.output.lock();
        let _ = (&self.stream).write_all(&out);
    }

    /// Sends a notification.
    pub(crate) fn notify<'a>(&self, message: impl Into<Message<'a>>) {
        let mut ids = self.output.lock();
        let mut out = BytesMut::new();
        encode(ids.take(), message, &mut out).unwrap();
        let _ = (&self.stream).write_all(&out);
    }

    /// Ends the connection.
    pub(crate) fn close(&self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}
