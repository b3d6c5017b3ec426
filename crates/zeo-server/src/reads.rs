//! Read requests other than loads.

use std::ops::RangeInclusive;
use std::rc::Rc;
use std::sync::Arc;

use zodium_pickle::Value;
use zodium_storage::HistoryEntry;
use zodium_types::{Oid, Tid};

use crate::call::Arguments;
use crate::exception::{Exception, oid_value, text_value, tid_value};
use crate::peer::Peer;
use crate::replies::{Reply, ReplyTo};
use crate::undo_log::{LISTED_MAX, extension_entries, metadata_entries, too_many_listed};

/// Most oids allocated at once, as in ZEO.
const NEW_OIDS_MAX: i64 = 100;

pub(crate) fn load_serial(
    peer: &Rc<Peer>,
    to: &ReplyTo,
    arguments: &mut Arguments<'_>,
) -> Result<Reply, Exception> {
    let (oid, serial) = (arguments.oid()?, arguments.tid()?);
    Ok(peer.ask(to, move |storage| {
        let data = storage.reader().load_serial(oid, serial)?;
        let data = data.ok_or_else(|| Exception::missing_key(oid))?;
        Ok(Value::Bytes(Vec::from(data).into()))
    }))
}

pub(crate) fn current_tid(
    peer: &Rc<Peer>,
    to: &ReplyTo,
    arguments: &mut Arguments<'_>,
) -> Result<Reply, Exception> {
    let oid = arguments.oid()?;
    Ok(peer.ask(to, move |storage| {
        let serial = storage.reader().serial_of_living(oid)?;
        serial.map(tid_value).ok_or_else(|| Exception::missing_key(oid))
    }))
}

pub(crate) fn history(
    peer: &Rc<Peer>,
    to: &ReplyTo,
    arguments: &mut Arguments<'_>,
) -> Result<Reply, Exception> {
    let (oid, count) = (arguments.oid()?, arguments.integer_or(1)?);
    let count = usize::try_from(count).unwrap_or(0);
    Ok(peer.ask(to, move |storage| {
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
    }))
}

pub(crate) fn next_object(
    peer: &Rc<Peer>,
    to: &ReplyTo,
    arguments: &mut Arguments<'_>,
) -> Result<Reply, Exception> {
    let from = arguments.value();
    let from = match &from {
        Value::None => Oid(0),
        value => value.as_oid().ok_or_else(|| {
            Exception::value_error("record_iternext(): expected an oid of 8 bytes or None")
        })?,
    };
    Ok(peer.ask(to, move |storage| {
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
    }))
}

pub(crate) fn new_oids(
    peer: &Rc<Peer>,
    to: &ReplyTo,
    arguments: &mut Arguments<'_>,
) -> Result<Reply, Exception> {
    let count = arguments.integer_or(NEW_OIDS_MAX)?.clamp(1, NEW_OIDS_MAX).unsigned_abs();
    match peer.storage().is_shared() {
        true => Ok(peer.ask(to, move |storage| oids_value(storage.new_oids(count)))),
        false => oids_value(peer.storage().new_oids(count)).map(Reply::Value),
    }
}

fn oids_value(oids: Option<RangeInclusive<u64>>) -> Result<Value<'static>, Exception> {
    let oids = oids.ok_or_else(|| {
        let reason = "there are no more oids; the server's log may say more";
        Exception::new("ZODB.POSException.StorageSystemError", reason)
    })?;
    Ok(Value::list(oids.map(|oid| oid_value(Oid(oid)))))
}

pub(crate) fn invalidations(
    peer: &Rc<Peer>,
    to: &ReplyTo,
    arguments: &mut Arguments<'_>,
) -> Result<Reply, Exception> {
    let value = arguments.value();
    // Anything but a tid is from no known transaction.
    let Some(since) = value.as_tid() else { return Ok(Reply::Value(Value::None)) };
    let (storage, last_seen) = (Arc::clone(peer.storage()), peer.subscriber.last_seen());
    if let Some(oids) = storage.subscribers().recently_changed(since, last_seen) {
        return Ok(Reply::Value(invalidations_value(last_seen, oids)));
    }
    if !storage.reads_log_since(since) {
        return Ok(Reply::Value(Value::None));
    }
    let (jobs, peer, to) = (peer.jobs.clone(), Rc::clone(peer), to.clone());
    let job = move || storage.changed_in_log(since, last_seen);
    jobs.spawn(job, move |changed| {
        // The session may have seen more commits while the log was read.
        let now = peer.subscriber.last_seen();
        let later = peer.storage().subscribers().recently_changed(last_seen, now);
        let value = match (changed, later) {
            (Some(oids), Some(later)) => {
                invalidations_value(now, oids.into_iter().chain(later).collect())
            }
            // Not known: the client drops its cache.
            _ => Value::None,
        };
        peer.replies.reply_result(&to, Ok(value));
    });
    Ok(Reply::Later)
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
