//! Which thread reads a connection, and what it does with what arrives, in its order.
//!
//! Key decision: a thread that waits for the answer of a storage reads the socket itself, and hands
//! out what is for others (see [`Leadership`]). So a load needs no other thread. Transactions wait
//! for many storages at once, and may be asked for their locks meanwhile: as long as one takes part
//! in a connection, the background thread reads it. It always reads that of the master, whose
//! messages are for all.
//!
//! [`Leadership`]: zodium_transport::Leadership

use std::cell::Cell;
use std::io::ErrorKind;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use bytes::BytesMut;
use tracing::debug;
use zodium_neo::messages::Pong;
use zodium_neo::{ErrorCode, Kind, Message, Packet, Scan, encode};
use zodium_transport::{IDLE_DELAY, Promise, Role, TICK, Watch};

use crate::NeoError;
use crate::connection::{Connection, Reading};

/// The leader's role; handed over when dropped.
struct Leading<'c>(&'c Connection);

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            // What it was handing out may be lost.
            self.0.end("the thread that read it has panicked");
        }
        self.0.waiting.lock().leadership.hand_over();
    }
}

impl Connection {
    /// Waits until a promise is complete, or until the deadline; reads for all if no other thread
    /// does.
    ///
    /// # Errors
    /// When the caller is interrupted.
    pub(crate) fn wait<T>(
        &self,
        promise: &Promise<Result<T, NeoError>>,
        deadline: Option<Instant>,
    ) -> Result<(), NeoError> {
        let mut has_parked = false;
        let mut waited = Ok(());
        let mut next_look = None;
        while !promise.is_complete() {
            let role = self.waiting.lock().leadership.take_role();
            match role {
                Role::Leader { wakes_background } => {
                    if wakes_background {
                        self.poll.interrupt();
                    }
                    self.lead(&|| promise.is_complete());
                }
                Role::Follower => {
                    next_look.get_or_insert_with(|| Instant::now() + TICK);
                    let is_first = !std::mem::replace(&mut has_parked, true);
                    if !is_first || promise.wake_on_completion() {
                        thread::park_timeout(TICK);
                    }
                }
            }
            if promise.is_complete() {
                break;
            }
            if self.patience.is_over(&mut next_look) {
                waited = Err(NeoError::Interrupted);
                break;
            }
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                break;
            }
        }
        if has_parked {
            self.waiting.lock().leadership.leave();
        }
        waited
    }

    /// The background thread: reads as long as it has to, and otherwise while no caller does. Until
    /// the connection ends.
    pub(crate) fn attend(&self) {
        if self.node.is_none() {
            let _leading = Leading(self);
            while !self.has_ended() {
                self.read(&|| self.has_ended());
            }
        }
        let mut seen = u64::MAX;
        while !self.has_ended() {
            let watch = {
                let mut waiting = self.waiting.lock();
                match waiting.attended > 0 {
                    true if waiting.leadership.lead_at_once() => None,
                    true => Some(Watch::UntilWoken),
                    false => Some(waiting.leadership.watch(&mut seen)),
                }
            };
            match watch {
                None => self.lead(&|| self.waiting.lock().attended == 0),
                Some(Watch::Recheck) => thread::park_timeout(IDLE_DELAY),
                Some(Watch::UntilWoken) => thread::park(),
                Some(Watch::Socket) => self.watch_socket(),
            }
        }
    }

    fn watch_socket(&self) {
        let has_something = self.poll.wait(self.transport.handle(), None);
        let leads = self.waiting.lock().leadership.lead_in_background(has_something);
        if leads {
            // Reads once; a caller that started to wait meanwhile takes over.
            let looked = Cell::new(false);
            self.lead(&|| looked.replace(true));
        }
        self.poll.clear();
    }

    /// Reads as [`Connection::read`], and hands the role over. The caller must be the leader.
    fn lead(&self, is_done: &dyn Fn() -> bool) {
        let _leading = Leading(self);
        self.read(is_done);
    }

    /// Reads until `is_done`, until the connection ends, or for a tick without a message.
    fn read(&self, is_done: &dyn Fn() -> bool) {
        let read = self.read_until(&mut self.reading.lock(), is_done);
        if let Err(reason) = read {
            self.end(&reason);
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
                let then = self.waiting.lock().thens.remove(&id);
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
