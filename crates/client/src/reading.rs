//! The leader's part: reads a connection and dispatches messages in stream order.

use std::cell::Cell;
use std::io::{self, ErrorKind};
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use zodium_pickle::Value;
use zodium_transport::Reader;
use zodium_types::{Oid, Tid};
use zodium_zeo::codec::{
    LoadReply, Message, MessageId, Reply, ServerMessage, decode_load_reply, decode_server_message,
};

use crate::connection::{Connection, Handshake, Reading};
use crate::table::{BlobPart, Call, LoadKey, Loaded};
use crate::{ClientError, Revision};

/// The exception by which a server reports a missing object.
pub(crate) const NO_OBJECT: &str = "ZODB.POSException.POSKeyError";

thread_local! {
    /// The address of the connection that this thread reads; 0 for none.
    static READ_HERE: Cell<usize> = const { Cell::new(0) };
}

/// Notes that a thread reads a connection, until it is dropped.
struct ReadHere {
    before: usize,
}

impl ReadHere {
    fn begin(connection: &Connection) -> ReadHere {
        ReadHere { before: READ_HERE.replace(connection.place()) }
    }
}

impl Drop for ReadHere {
    fn drop(&mut self) {
        READ_HERE.set(self.before);
    }
}

impl Connection {
    /// Whether the calling thread reads this connection: it is told of something just now, and must
    /// not wait for a reply.
    pub(crate) fn is_read_here(&self) -> bool {
        READ_HERE.get() == self.place()
    }

    fn place(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

impl Reader for Connection {
    fn socket(&self) -> BorrowedFd<'_> {
        self.transport.handle()
    }

    fn read(&self, is_done: &dyn Fn() -> bool) {
        let _here = ReadHere::begin(self);
        let result = self.read_until(&mut self.reading.lock(), is_done);
        if let Err(error) = result {
            self.end(ClientError::disconnected(error));
        }
    }

    fn end_after_panic(&self) {
        // A watcher has panicked, so an invalidation may be half applied.
        self.end(ClientError::disconnected("a watcher panicked while handling its messages"));
    }
}

impl Connection {
    fn read_until(&self, reading: &mut Reading, is_done: &dyn Fn() -> bool) -> io::Result<()> {
        loop {
            self.handle_frames(reading)?;
            if is_done() {
                return Ok(());
            }
            let deadline = reading.handshake.as_ref().map(|handshake| handshake.deadline);
            match self.transport.receive_by(&mut reading.input.buffer, deadline) {
                Ok(0) => return Err(io::Error::other("the server closed it; its log says why")),
                Ok(_) => {
                    let heard = self.heard.load(Ordering::Relaxed);
                    self.heard.store(heard.wrapping_add(1), Ordering::Relaxed);
                }
                Err(error) => match (error.kind(), deadline) {
                    // The second is a tick.
                    (ErrorKind::Interrupted, _) | (ErrorKind::WouldBlock, None) => return Ok(()),
                    (ErrorKind::WouldBlock | ErrorKind::TimedOut, Some(_)) => {
                        return Err(io::Error::other("no answer in time"));
                    }
                    _ => return Err(error),
                },
            }
        }
    }

    fn handle_frames(&self, reading: &mut Reading) -> io::Result<()> {
        let Reading { input, handshake } = reading;
        while let Some(payload) = input.next_frame()? {
            match decode_load_reply(self.encoding, payload) {
                Some(reply) => self.loaded(&reply),
                None => self.handle_message(payload, handshake).map_err(io::Error::other)?,
            }
        }
        Ok(())
    }

    fn loaded(&self, reply: &LoadReply<'_>) {
        // Copied, so that a cached revision does not keep the whole input buffer alive.
        let data = Bytes::copy_from_slice(reply.data);
        self.receiver.loaded(reply, &data);
        let revision = Revision { data, serial: reply.serial, end: reply.end };
        self.complete_load((reply.oid, reply.before), Ok(Some(revision)));
    }

    fn complete_load(&self, key: LoadKey, answer: Result<Loaded, ClientError>) {
        let promise = self.table.lock().loads.remove(&key);
        // The request may have been given up.
        if let Some(promise) = promise {
            promise.complete(answer);
        }
    }

    fn handle_message(
        &self,
        payload: &[u8],
        handshake: &mut Option<Handshake>,
    ) -> Result<(), ClientError> {
        match decode_server_message(self.encoding, payload)? {
            ServerMessage::Reply(reply) => self.handle_reply(reply),
            ServerMessage::Notice(notice) => self.handle_notice(notice, handshake),
        }
    }

    fn handle_reply(&self, reply: Reply<'_>) -> Result<(), ClientError> {
        let Reply { id, result } = reply;
        match id {
            MessageId::Number(id) => {
                let call = self.table.lock().calls.remove(&id);
                let Some(Call { promise, then }) = call else { return Ok(()) };
                let done = match (&result, then) {
                    (Ok(value), Some(then)) => then(value),
                    _ => Ok(()),
                };
                promise.complete(result.map(Value::into_owned).map_err(ClientError::from));
                done?;
            }
            MessageId::Load { oid, before } => {
                let answer = match result {
                    Ok(Value::None) => Ok(None),
                    Ok(value) => self.revision_of(oid, before, value).map(Some),
                    Err(error) if error.name == NO_OBJECT => Err(ClientError::NoObject(oid)),
                    Err(error) => Err(error.into()),
                };
                self.complete_load((oid, before), answer);
            }
            MessageId::Heartbeat | MessageId::Opaque(_) => {}
        }
        Ok(())
    }

    /// Handles a load reply that is valid, but not encoded as usual.
    fn revision_of(
        &self,
        oid: Oid,
        before: Tid,
        value: Value<'_>,
    ) -> Result<Revision, ClientError> {
        let revision = Revision::from_answer(value)?;
        let Revision { data, serial, end } = &revision;
        let reply = LoadReply { oid, before, data, serial: *serial, end: *end };
        self.receiver.loaded(&reply, data);
        Ok(revision)
    }

    fn handle_notice(
        &self,
        notice: Message<'_>,
        handshake: &mut Option<Handshake>,
    ) -> Result<(), ClientError> {
        let arguments = notice.arguments.unwrap_or_default();
        match (&*notice.name, &arguments[..]) {
            ("invalidateTransaction", [tid, oids]) => {
                let wrong = ClientError::Unexpected {
                    method: "invalidateTransaction",
                    expected: "a tid and oids",
                };
                let (tid, oids) = tid.as_tid().zip(oids_of(oids)).ok_or(wrong)?;
                match handshake {
                    Some(handshake) => handshake.held.push((tid, oids)),
                    None => self.receiver.invalidated(tid, &oids)?,
                }
            }
            ("info", [info]) => self.receiver.info(info),
            ("receiveBlobStart", [oid, serial]) => self.take_part(oid, serial, &BlobPart::Start),
            ("receiveBlobStop", [oid, serial]) => self.take_part(oid, serial, &BlobPart::Stop),
            ("receiveBlobChunk", [oid, serial, chunk]) => {
                let chunk = chunk.as_bytes().unwrap_or_default();
                self.take_part(oid, serial, &BlobPart::Chunk(chunk));
            }
            _ => {}
        }
        Ok(())
    }

    fn take_part(&self, oid: &Value<'_>, serial: &Value<'_>, part: &BlobPart<'_>) {
        let Some(key) = oid.as_oid().zip(serial.as_tid()) else { return };
        // Taken out, so that the table is not locked during a write to disk.
        let Some(mut blob) = self.table.lock().blobs.remove(&key) else { return };
        blob.take(part);
        let mut table = self.table.lock();
        if !table.abandoned_blobs.contains_key(&key) {
            table.blobs.insert(key, blob);
        }
    }
}

/// Decodes a list of oids.
pub(crate) fn oids_of(value: &Value<'_>) -> Option<Vec<Oid>> {
    value.as_sequence()?.iter().map(Value::as_oid).collect()
}
