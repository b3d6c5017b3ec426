//! Which thread reads a connection, and what it does with what arrives, in its order.
//!
//! Key decision: a thread that waits for the answer of a storage reads the socket itself, and hands
//! out what is for others (see [`Turns`]). So a load needs no other thread. Transactions wait
//! for many storages at once, and may be asked for their locks meanwhile: as long as one takes part
//! in a connection, the background thread reads it. It always reads that of the master, whose
//! messages are for all.
//!
//! [`Turns`]: zodium_transport::Turns

use std::io::ErrorKind;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::thread;

use bytes::BytesMut;
use tracing::debug;
use zodium_neo::messages::Pong;
use zodium_neo::{ErrorCode, Kind, Message, Packet, Scan, encode};
use zodium_transport::Reader;

use crate::NeoError;
use crate::connection::{Connection, Reading};

impl Reader for Connection {
    fn socket(&self) -> BorrowedFd<'_> {
        self.transport.handle()
    }

    fn read(&self, is_done: &dyn Fn() -> bool) {
        let read = self.read_until(&mut self.reading.lock(), is_done);
        if let Err(reason) = read {
            self.end(&reason);
        }
    }

    fn end_after_panic(&self) {
        self.end("the thread that read it has panicked");
    }
}

impl Connection {
    /// The background thread: reads as long as it has to, and otherwise while no caller does. Until
    /// the connection ends.
    pub(crate) fn attend(&self) {
        if self.node.is_none() {
            self.turns.lead_until(self, &|| self.has_ended());
        }
        while !self.has_ended() {
            if self.waiting.lock().attended == 0 {
                self.turns.attend(self, None);
            } else if self.turns.lead_at_once() {
                self.turns.lead_until(self, &|| self.waiting.lock().is_left_alone());
            } else {
                thread::park();
            }
        }
    }

    fn read_until(&self, reading: &mut Reading, is_done: &dyn Fn() -> bool) -> Result<(), String> {
        loop {
            self.dispatch_all(reading)?;
            if is_done() {
                return Ok(());
            }
            match self.transport.receive(&mut reading.input) {
                Ok(0) => return Err("the node closed the connection".to_owned()),
                Ok(_) => {}
                Err(error) if is_passing(error.kind()) => return Ok(()),
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    /// Hands out what has arrived whole.
    fn dispatch_all(&self, reading: &mut Reading) -> Result<(), String> {
        let Reading { input, scanner } = reading;
        loop {
            let frame = match scanner.scan(input.bytes()) {
                Ok(Scan::Complete(frame)) => frame,
                Ok(Scan::Need(_)) => return Ok(()),
                Err(error) => return Err(error.to_string()),
            };
            let length = frame.bytes().len();
            self.dispatch(Packet::decode(frame).map_err(|error| error.to_string())?);
            input.consume(length);
        }
    }

    fn dispatch(&self, packet: Packet<'_>) {
        let Packet { id, message } = packet;
        match (message.kind(), message) {
            (Kind::Answer, message) => {
                let then = {
                    let mut waiting = self.waiting.lock();
                    waiting.answered += 1;
                    waiting.thens.remove(&id)
                };
                match then {
                    Some(then) => then(self.answer(message)),
                    None => debug!(peer = %self.peer(), id, "an answer to no request"),
                }
            }
            (Kind::Notification, message) => self.receiver.notified(self, message),
            (_, Message::Ping(_)) => {
                let mut pong = BytesMut::new();
                if encode(id, Pong {}, &mut pong).is_ok() {
                    let _output = self.output.lock();
                    // A connection that fails is noticed by its reader.
                    let _ = self.transport.send(&pong);
                }
            }
            (_, message) => {
                debug!(peer = %self.peer(), message = message.name(), "not for clients");
            }
        }
    }

    /// An error of the node, unless it stands for success.
    fn answer<'a>(&self, message: Message<'a>) -> Result<Message<'a>, NeoError> {
        match message {
            Message::Error(error) if error.code != ErrorCode::Ack => Err(NeoError::Refused {
                peer: Arc::clone(self.peer()),
                code: error.code,
                message: error.message.into(),
            }),
            message => Ok(message),
        }
    }
}

fn is_passing(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
