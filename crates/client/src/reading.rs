//! Reading a connection: whoever leads does it, and hands out what comes in its order.

use std::io::{self, ErrorKind, Write};
use std::sync::atomic::Ordering;

use bytes::Bytes;
use zodium_pickle::Value;
use zodium_types::{Oid, Tid};
use zodium_zeo::codec::{
    LoadReply, Message, MessageId, Reply, ServerMessage, decode_load_reply, decode_server_message,
};

use crate::connection::{Connection, Reading};
use crate::table::{Call, LoadKey, Loaded};
use crate::{ClientError, Revision};

/// How a server says that there is no such object.
const NO_OBJECT: &str = "ZODB.POSException.POSKeyError";

/// Who leads; another one does when this is dropped.
struct Leading<'c>(&'c Connection);

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // A watcher has panicked, and what it was told is half done.
            self.0.end(ClientError::disconnected("a panic while its messages were handled"));
        }
        self.0.table.lock().hand_over();
    }
}

impl Connection {
    /// Reads until `is_done`, or the connection ends, or the caller is to look whether it is to
    /// stop waiting. The caller was told to lead.
    pub(crate) fn lead(&self, is_done: &dyn Fn() -> bool) {
        let _leading = Leading(self);
        let mut reading = self.reading.lock();
        let result = self.read_until(&mut reading, is_done);
        drop(reading);
        if let Err(error) = result {
            self.end(ClientError::disconnected(error));
        }
    }

    fn read_until(&self, reading: &mut Reading, is_done: &dyn Fn() -> bool) -> io::Result<()> {
        loop {
            self.handle_frames(reading)?;
            if is_done() {
                return Ok(());
            }
            match self.transport.receive(&mut reading.input) {
                Ok(0) => return Err(io::Error::other("the server closed it; its log says why")),
                Ok(_) => {
                    let heard = self.heard.load(Ordering::Relaxed);
                    self.heard.store(heard.wrapping_add(1), Ordering::Relaxed);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {
                    if self.may_stop() {
                        return Ok(());
                    }
                }
                // A tick. Before the connection is established it is the end of patience.
                Err(error) if error.kind() == ErrorKind::WouldBlock && reading.held.is_none() => {
                    if self.may_stop() {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Err(io::Error::other("no answer in time"));
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn handle_frames(&self, reading: &mut Reading) -> io::Result<()> {
        let Reading { input, held } = reading;
        while let Some(payload) = input.next_frame()? {
            match decode_load_reply(self.encoding, payload) {
                Some(reply) => self.loaded(&reply),
                None => self.handle_message(payload, held).map_err(io::Error::other)?,
            }
        }
        Ok(())
    }

    fn loaded(&self, reply: &LoadReply<'_>) {
        // A copy of its own: what stays of a batch must not keep all of it.
        let data = Bytes::copy_from_slice(reply.data);
        self.receiver.loaded(reply, &data);
        let revision = Revision { data, serial: reply.serial, end: reply.end };
        self.complete_load((reply.oid, reply.before), Ok(Some(revision)));
    }

    fn complete_load(&self, key: LoadKey, answer: Result<Loaded, ClientError>) {
        let promise = self.table.lock().loads.remove(&key);
        // It may have ended for who asked.
        if let Some(promise) = promise {
            promise.complete(answer);
        }
    }

    fn handle_message(
        &self,
        payload: &[u8],
        held: &mut Option<Vec<(Tid, Vec<Oid>)>>,
    ) -> Result<(), ClientError> {
        match decode_server_message(self.encoding, payload)? {
            ServerMessage::Reply(reply) => self.handle_reply(reply),
            ServerMessage::Notice(notice) => self.handle_notice(notice, held),
        }
    }

    fn handle_reply(&self, reply: Reply<'_>) -> Result<(), ClientError> {
        let Reply { id, result } = reply;
        match id {
            MessageId::Number(id) => {
                let call = self.table.lock().calls.remove(&id);
                let Some(Call { promise, then }) = call else { return Ok(()) };
                if let (Ok(value), Some(then)) = (&result, then) {
                    then(value);
                }
                promise.complete(result.map(Value::into_owned).map_err(ClientError::from));
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

    /// For a server that writes the reply to a load in a way of its own.
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
        held: &mut Option<Vec<(Tid, Vec<Oid>)>>,
    ) -> Result<(), ClientError> {
        let arguments = notice.arguments.unwrap_or_default();
        match (&*notice.name, &arguments[..]) {
            ("invalidateTransaction", [tid, oids]) => {
                let wrong = ClientError::Unexpected {
                    method: "invalidateTransaction",
                    expected: "a tid and oids",
                };
                let (tid, oids) = tid.as_tid().zip(oids_of(oids)).ok_or(wrong)?;
                match held {
                    Some(held) => held.push((tid, oids)),
                    None => self.receiver.invalidated(tid, &oids),
                }
            }
            ("info", [info]) => self.receiver.info(info),
            ("receiveBlobChunk", [oid, serial, chunk]) => {
                if let (Some(oid), Some(serial)) = (oid.as_oid(), serial.as_tid()) {
                    self.write_chunk(oid, serial, chunk.as_bytes().unwrap_or_default())?;
                }
            }
            // What begins and ends a blob says nothing that its chunks and the reply do not.
            _ => {}
        }
        Ok(())
    }

    fn write_chunk(&self, oid: Oid, serial: Tid, chunk: &[u8]) -> Result<(), ClientError> {
        // Taken out: the table is not held while a disk is waited for.
        let Some(mut file) = self.table.lock().blobs.remove(&(oid, serial)) else {
            return Ok(());
        };
        // Without its file the blob is missing for who waits for it, and for nobody else.
        if file.write_all(chunk).is_ok() {
            self.table.lock().blobs.insert((oid, serial), file);
        }
        Ok(())
    }
}

/// A list of oids.
pub(crate) fn oids_of(value: &Value<'_>) -> Option<Vec<Oid>> {
    value.as_sequence()?.iter().map(Value::as_oid).collect()
}
