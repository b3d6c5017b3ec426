//! Loads, and other read requests.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use zodium_engine::Storage;
use zodium_net::Output;
use zodium_pickle::Value;
use zodium_storage::{Access, HistoryEntry, Load, Revision, StorageError};
use zodium_types::{Oid, Tid};

use super::call::{Arguments, Method, OWN_METHODS};
use super::exception::{Exception, oid_value, text_value, tid_value};
use super::session::{Context, Reply, Session, SessionHandle};
use super::undo_log::{LISTED_MAX, extension_entries, metadata_entries, too_many_listed};
use crate::codec::{
    CodecError, Encoding, MessageId, encode_load_reply, load_reply_head, load_reply_tail,
};

/// Size from which on data are sent without a copy, as a piece of the gather-write.
///
/// Below it a copy into the batch is cheaper. A block of 4 KiB with the overhead of its pickle is
/// below.
const GATHER_BYTES_MIN: usize = 5 << 10;
/// Most oids allocated at once, as in ZEO.
const NEW_OIDS_MAX: i64 = 100;
/// Interfaces announced for a storage with a blob directory, whether clients share it or not.
const BLOB_INTERFACES: [&str; 2] = ["IBlobStorageRestoreable", "IBlobStorage"];
/// Interfaces of ZODB that are announced for every storage.
const INTERFACES: [&str; 6] = [
    "IStorageRestoreable",
    "IStorageIteration",
    "IStorageUndoable",
    "IStorageCurrentRecordIteration",
    "IExternalGC",
    "IStorage",
];

impl Session {
    /// Answers a load, at once if the bytes are in memory, else from a blocking thread. Hot path.
    pub(crate) fn load_before(
        &mut self,
        handle: &SessionHandle,
        id: MessageId,
        oid: Oid,
        before: Tid,
    ) {
        let Some(subscriber) = self.subscriber() else { return };
        match subscriber.storage.reader().load_before(oid, before, Access::Resident) {
            Ok(Load::Cold) => {
                let asked = self.local.tally.arrived();
                self.load_cold(handle, id, oid, before, asked);
            }
            result => {
                self.local.tally.count(Method::LoadBefore);
                self.reply_load(&id, oid, result);
            }
        }
    }

    fn load_cold(
        &mut self,
        handle: &SessionHandle,
        id: MessageId,
        oid: Oid,
        before: Tid,
        asked: Instant,
    ) {
        let Some(storage) = self.storage() else { return };
        let reader = Arc::clone(&storage);
        let job = move || reader.reader().load_before(oid, before, Access::Blocking);
        handle.spawn_answer(self, job, move |handle, session, result| {
            // During the wait a newer revision may have been announced to the client. An answer
            // that says "current" would then be wrong, so check again.
            if let Ok(Load::Revision(Revision { end: None, basis, .. })) = &result
                && !storage.reader().is_still_current(oid, *basis)
            {
                match storage.reader().load_before(oid, before, Access::Resident) {
                    Ok(Load::Cold) => session.load_cold(handle, id, oid, before, asked),
                    result => session.reply_cold_load(&id, oid, result, asked),
                }
                return;
            }
            session.reply_cold_load(&id, oid, result, asked);
        });
    }

    fn reply_cold_load(
        &self,
        id: &MessageId,
        oid: Oid,
        result: Result<Load, StorageError>,
        asked: Instant,
    ) {
        if let Some(subscriber) = self.subscriber() {
            let took = asked.elapsed();
            subscriber.statistics.requests(Method::LoadBefore).record(took);
            subscriber.statistics.cold_loads.record(took);
        }
        self.reply_load(id, oid, result);
    }

    fn reply_load(&self, id: &MessageId, oid: Oid, result: Result<Load, StorageError>) {
        match result {
            Ok(Load::Revision(revision)) => self.reply_revision(id, &revision),
            Ok(Load::NoRevision) => self.put_reply(id, &Value::None),
            Ok(Load::Missing | Load::Cold) => self.missing_key(id, oid),
            Err(error) => {
                tracing::error!(%oid, %error, "cannot load");
                self.put_error(id, &error.into());
            }
        }
    }

    fn reply_revision(&self, id: &MessageId, revision: &Revision) {
        let Revision { data, serial, end, .. } = revision;
        let encoding = self.encoding();
        let data = (&data[..], || data.clone());
        let put = put_revision(encoding, &mut self.link.output(), id, data, *serial, *end);
        self.check_sent(put);
    }

    pub(crate) fn load_serial(
        &mut self,
        context: &Context<'_>,
        arguments: &mut Arguments<'_>,
    ) -> Result<Reply, Exception> {
        let (oid, serial) = (arguments.oid()?, arguments.tid()?);
        self.ask(context, move |storage| {
            let data = storage.reader().load_serial(oid, serial)?;
            let data = data.ok_or_else(|| Exception::missing_key(oid))?;
            Ok(Value::Bytes(Vec::from(data).into()))
        })
    }

    pub(crate) fn current_tid(
        &mut self,
        context: &Context<'_>,
        arguments: &mut Arguments<'_>,
    ) -> Result<Reply, Exception> {
        let oid = arguments.oid()?;
        self.ask(context, move |storage| {
            let serial = storage.reader().serial_of_living(oid)?;
            serial.map(tid_value).ok_or_else(|| Exception::missing_key(oid))
        })
    }

    pub(crate) fn history(
        &mut self,
        context: &Context<'_>,
        arguments: &mut Arguments<'_>,
    ) -> Result<Reply, Exception> {
        let (oid, count) = (arguments.oid()?, arguments.integer_or(1)?);
        let count = usize::try_from(count).unwrap_or(0);
        self.ask(context, move |storage| {
            // An unknown object is an error even if no entries are requested.
            let entries = storage.reader().history(oid, count.clamp(1, LISTED_MAX + 1))?;
            if entries.len() > LISTED_MAX {
                return Err(too_many_listed());
            }
            if entries.is_empty() {
                return Err(Exception::missing_key(oid));
            }
            let entries = entries.iter().take(count).map(history_value);
            Ok(Value::List(entries.collect::<Result<_, Exception>>()?))
        })
    }

    pub(crate) fn next_object(
        &mut self,
        context: &Context<'_>,
        arguments: &mut Arguments<'_>,
    ) -> Result<Reply, Exception> {
        let from = arguments.value();
        let from = match &from {
            Value::None => Oid(0),
            value => value.as_oid().ok_or_else(|| {
                Exception::value_error("record_iternext(): expected an oid of 8 bytes or None")
            })?,
        };
        self.ask(context, move |storage| {
            let Some(step) = storage.reader().next_object(from)? else {
                return Err(Exception::value_error("no key satisfies the conditions"));
            };
            let data = step.data.ok_or_else(|| Exception::missing_key(step.oid))?;
            Ok(Value::tuple([
                oid_value(step.oid),
                tid_value(step.serial),
                Value::Bytes(Vec::from(data).into()),
                step.following.map_or(Value::None, oid_value),
            ]))
        })
    }

    pub(crate) fn new_oids(&mut self, arguments: &mut Arguments<'_>) -> Result<Reply, Exception> {
        let count = arguments.integer_or(NEW_OIDS_MAX)?.clamp(1, NEW_OIDS_MAX);
        let Some(storage) = self.storage() else { return Ok(Reply::Later) };
        let oids = storage.new_oids(count.unsigned_abs()).ok_or_else(|| {
            Exception::new("ZODB.POSException.StorageSystemError", "there are no more oids")
        })?;
        Ok(Reply::Value(Value::list(oids.map(|oid| oid_value(Oid(oid))))))
    }

    pub(crate) fn last_transaction(&mut self) -> Result<Reply, Exception> {
        let last_seen = self.subscriber().map_or(Tid::ZERO, |subscriber| subscriber.last_seen());
        Ok(Reply::Value(tid_value(last_seen)))
    }

    pub(crate) fn invalidations(
        &mut self,
        context: &Context<'_>,
        arguments: &mut Arguments<'_>,
    ) -> Result<Reply, Exception> {
        let value = arguments.value();
        // Anything but a tid is from no known transaction.
        let Some(since) = value.as_tid() else { return Ok(Reply::Value(Value::None)) };
        let Some(subscriber) = self.subscriber().cloned() else { return Ok(Reply::Later) };
        let (storage, last_seen) = (Arc::clone(&subscriber.storage), subscriber.last_seen());
        if let Some(oids) = storage.recently_changed(since, last_seen) {
            return Ok(Reply::Value(invalidations_value(last_seen, oids)));
        }
        if !storage.reads_log_since(since) {
            return Ok(Reply::Value(Value::None));
        }
        let reply_to = context.reply_to.clone();
        let job = move || storage.changed_in_log(since, last_seen);
        context.handle.spawn(self, job, move |_, session, changed| {
            // The session may have seen more commits while the log was read.
            let now = subscriber.last_seen();
            let later = subscriber.storage.recently_changed(last_seen, now);
            let value = match (changed, later) {
                (Some(oids), Some(later)) => {
                    invalidations_value(now, oids.into_iter().chain(later).collect())
                }
                // Not known: the client drops its cache.
                _ => Value::None,
            };
            session.reply_result(&reply_to, Ok(value));
        });
        Ok(Reply::Later)
    }

    pub(crate) fn info(&mut self) -> Result<Reply, Exception> {
        let Some(registration) = &self.registration else { return Ok(Reply::Later) };
        let storage = &registration.subscriber.storage;
        let file = storage.reader();
        let read_only = file.is_read_only();
        let blobs = storage.blobs().into_iter().flat_map(|_| BLOB_INTERFACES);
        let served = blobs.chain(INTERFACES).map(|name| ("ZODB.interfaces", name));
        let interfaces = served.chain([("zope.interface", "Interface")]);
        let interfaces =
            interfaces.map(|(module, name)| Value::tuple([text_value(module), text_value(name)]));
        Ok(Reply::Value(Value::dict([
            ("length", Value::Int(file.object_count().into())),
            ("size", Value::Int(file.size().into())),
            ("name", text_value(file.name())),
            ("supportsUndo", Value::Bool(!read_only)),
            ("supports_record_iternext", Value::Bool(true)),
            ("interfaces", Value::tuple(interfaces)),
            // Stock clients ignore unknown entries.
            ("zodium_methods", Value::tuple(OWN_METHODS.map(text_value))),
        ])))
    }

    /// Answers from a blocking thread.
    pub(crate) fn ask(
        &mut self,
        context: &Context<'_>,
        question: impl FnOnce(&Storage) -> Result<Value<'static>, Exception> + Send + 'static,
    ) -> Result<Reply, Exception> {
        let Some(storage) = self.storage() else { return Ok(Reply::Later) };
        let reply_to = context.reply_to.clone();
        let job = move || question(&storage);
        context.handle.spawn_answer(self, job, move |_, session, result| {
            session.reply_result(&reply_to, result);
        });
        Ok(Reply::Later)
    }
}

/// Appends the answer to a load. Large data are shared, and sent without a copy.
#[inline]
pub(super) fn put_revision(
    encoding: Encoding,
    output: &mut Output,
    id: &MessageId,
    (data, share): (&[u8], impl FnOnce() -> Bytes),
    serial: Tid,
    end: Option<Tid>,
) -> Result<(), CodecError> {
    if data.len() < GATHER_BYTES_MIN {
        return encode_load_reply(encoding, output.buffer(), id, data, serial, end);
    }
    load_reply_head(encoding, output.buffer(), id, data.len(), end)?;
    output.push(share());
    load_reply_tail(encoding, output.buffer(), serial, end);
    Ok(())
}

fn invalidations_value(tid: Tid, oids: Vec<Oid>) -> Value<'static> {
    Value::tuple([tid_value(tid), Value::list(oids.into_iter().map(oid_value))])
}

fn history_value(entry: &HistoryEntry) -> Result<Value<'static>, Exception> {
    let transaction = &entry.transaction;
    let mut entries = metadata_entries(transaction);
    entries.push((text_value("tid"), tid_value(transaction.tid)));
    entries.push((text_value("size"), Value::Int(entry.size.into())));
    entries.extend(extension_entries(transaction)?);
    Ok(Value::Dict(entries))
}
