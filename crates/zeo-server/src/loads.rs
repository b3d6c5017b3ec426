//! Loads of one revision each.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use zodium_net::Output;
use zodium_pickle::Value;
use zodium_storage::{Access, Load, Missed, Revision, StorageError};
use zodium_types::{Oid, Tid};

use crate::call::Method;
use crate::peer::Peer;
use crate::replies::Replies;
use zodium_zeo::codec::{
    CodecError, Encoding, MessageId, encode_load_reply, load_reply_head, load_reply_tail,
};

/// Size from which on data are sent without a copy, as a piece of the gather-write.
///
/// Below it a copy into the batch is cheaper. A block of 4 KiB with the overhead of its pickle is
/// below.
const GATHER_BYTES_MIN: usize = 5 << 10;

/// Answers a load, at once if the bytes are in memory, else from a blocking thread. Hot path.
pub(crate) fn load_before(peer: &Rc<Peer>, id: MessageId, oid: Oid, before: Tid) {
    let missed = Missed::default();
    match peer.storage().reader().load_resident(oid, before, &missed) {
        Ok(Load::WouldBlock) => {
            load_cold(peer, id, (oid, before), missed, peer.tally.arrived());
        }
        result => {
            peer.tally.count(Method::LoadBefore);
            reply_load(&peer.replies, &id, oid, result);
        }
    }
}

/// Answers a load that has missed something in memory.
fn load_cold(
    peer: &Rc<Peer>,
    id: MessageId,
    (oid, before): (Oid, Tid),
    missed: Missed,
    asked: Instant,
) {
    let (storage, peer) = (Arc::clone(peer.storage()), Rc::clone(peer));
    let (jobs, together) = (peer.jobs.clone(), peer.subscriber.cold_loads.clone());
    let done = move |result| finish_cold(&peer, id, (oid, before), asked, result);
    if let Some(together) = together {
        return jobs.spawn_together(&together, (oid, before), done);
    }
    let (resident, mut missed) = (Arc::clone(&storage), Some(missed));
    let attempt = move || {
        // The first attempt was made by the caller.
        if let Some(missed) = missed.take() {
            return Err(missed.into_bytes());
        }
        let missed = Missed::default();
        match resident.reader().load_resident(oid, before, &missed) {
            Ok(Load::WouldBlock) => Err(missed.into_bytes()),
            result => Ok(result),
        }
    };
    let job = move || storage.reader().load_before(oid, before, Access::Blocking);
    jobs.spawn_fetching(attempt, job, done);
}

fn finish_cold(
    peer: &Rc<Peer>,
    id: MessageId,
    (oid, before): (Oid, Tid),
    asked: Instant,
    result: Result<Load, StorageError>,
) {
    let reader = peer.storage().reader();
    // During the wait a newer revision may have been announced to the client. An answer that
    // says "current" would then be wrong, so check again.
    let result = if let Ok(Load::Revision(Revision { end: None, stamp, .. })) = &result
        && !reader.is_still_current(oid, *stamp)
    {
        let missed = Missed::default();
        match reader.load_resident(oid, before, &missed) {
            Ok(Load::WouldBlock) => return load_cold(peer, id, (oid, before), missed, asked),
            again => again,
        }
    } else {
        result
    };
    peer.replies.note_cold_load(asked);
    reply_load(&peer.replies, &id, oid, result);
}

fn reply_load(replies: &Replies, id: &MessageId, oid: Oid, result: Result<Load, StorageError>) {
    match result {
        Ok(Load::Revision(revision)) => reply_revision(replies, id, &revision),
        Ok(Load::NoRevision) => replies.put_reply(id, &Value::None),
        Ok(Load::Missing | Load::WouldBlock) => replies.missing_key(id, oid),
        Err(error) => {
            tracing::error!(%oid, %error, "cannot load");
            replies.put_error(id, &error.into());
        }
    }
}

fn reply_revision(replies: &Replies, id: &MessageId, revision: &Revision) {
    let Revision { data, serial, end, .. } = revision;
    let data = (&data[..], || data.clone());
    let output = &mut replies.link().output();
    let put = put_revision(replies.encoding(), output, id, data, *serial, *end);
    replies.check_sent(put);
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use bytes::BytesMut;

    use super::*;

    #[test]
    fn an_answer_is_the_same_whether_its_data_are_copied_or_shared_which_large_ones_are() {
        let id = MessageId::Load { oid: Oid(1), before: Tid(9) };
        for (length, are_large) in [(0, false), (5119, false), (5120, true), (100_000, true)] {
            for encoding in [Encoding::Pickle, Encoding::Msgpack] {
                let (data, are_shared) = (vec![7; length], Cell::new(false));
                let share = || {
                    are_shared.set(true);
                    Bytes::from(data.clone())
                };
                let mut output = Output::default();
                put_revision(encoding, &mut output, &id, (&data, share), Tid(5), None).unwrap();
                assert_eq!(are_shared.get(), are_large, "{length} bytes");
                let mut copied = BytesMut::new();
                encode_load_reply(encoding, &mut copied, &id, &data, Tid(5), None).unwrap();
                assert_eq!(output.len(), copied.len());
            }
        }
    }
}
