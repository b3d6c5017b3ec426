//! Read requests other than loads.

use std::ops::RangeInclusive;
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::Semaphore;
use zodium_engine::Database;
use zodium_pickle::Value;
use zodium_types::{Oid, Tid};

use crate::answers;
use crate::call::Arguments;
use crate::exception::{Exception, oid_value, tid_value};
use crate::peer::Peer;
use crate::replies::{Reply, ReplyTo};

/// Most oids allocated at once, as in ZEO.
const NEW_OIDS_MAX: i64 = 100;

/// Most revisions of a history that takes no place of the searches: a longer one may take tens of
/// megabytes while it is made.
const SHORT_HISTORY_MAX: i64 = 100;

pub(crate) fn load_serial(
    peer: &Rc<Peer>,
    to: &ReplyTo,
    arguments: &mut Arguments<'_>,
) -> Result<Reply, Exception> {
    let (oid, serial) = (arguments.oid()?, arguments.tid()?);
    Ok(peer.ask(to, move |storage| answers::load_serial(storage, oid, serial)))
}

pub(crate) fn current_tid(
    peer: &Rc<Peer>,
    to: &ReplyTo,
    arguments: &mut Arguments<'_>,
) -> Result<Reply, Exception> {
    let oid = arguments.oid()?;
    Ok(peer.ask(to, move |storage| answers::current_tid(storage, oid)))
}

/// Answers `history`. `places` are those of searches.
pub(crate) fn history(
    peer: &Rc<Peer>,
    places: Arc<Semaphore>,
    to: &ReplyTo,
    arguments: &mut Arguments<'_>,
) -> Result<Reply, Exception> {
    let (oid, count) = (arguments.oid()?, arguments.integer_or(1)?);
    let (encoding, gone) = (peer.replies.encoding(), peer.jobs.gone());
    let answer = move |storage: &Database| answers::history(storage, encoding, (oid, count), &gone);
    Ok(match count <= SHORT_HISTORY_MAX {
        true => peer.ask(to, answer),
        false => peer.search(to, places, answer),
    })
}

pub(crate) fn next_object(
    peer: &Rc<Peer>,
    to: &ReplyTo,
    arguments: &mut Arguments<'_>,
) -> Result<Reply, Exception> {
    let from = answers::first_oid(&arguments.value())?;
    Ok(peer.ask(to, move |storage| answers::next_object(storage, from)))
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
