//! Packs that clients request.

use std::rc::Rc;
use std::sync::Arc;

use zodium_engine::Database;
use zodium_pickle::Value;
use zodium_storage::StorageError;
use zodium_types::Tid;

use crate::call::Arguments;
use crate::exception::Exception;
use crate::peer::Peer;
use crate::replies::{Reply, ReplyTo};

/// The unit of the low half of a tid.
const TICKS_PER_MINUTE: f64 = 4_294_967_296.0;

/// Packs the storage. The answer comes when the pack has ended, or at once if the client does not
/// want to wait. A read-only session may call it too.
pub(crate) fn pack(
    peer: &Rc<Peer>,
    to: &ReplyTo,
    arguments: &mut Arguments<'_>,
) -> Result<Reply, Exception> {
    let pack_tid = tid_of_time(&arguments.value())?;
    let waits = arguments.integer_or(1)? != 0;
    let (storage, address) = (Arc::clone(peer.storage()), peer.link().peer().to_owned());
    let job = move || run(&storage, pack_tid, &address);
    if !waits {
        // The client does not wait, so it does not count as a request in progress.
        drop(peer.jobs.run_blocking(job));
        return Ok(Reply::Value(Value::None));
    }
    let (jobs, peer, to) = (peer.jobs.clone(), Rc::clone(peer), to.clone());
    jobs.spawn(job, move |packed| {
        let reply = packed.map(|()| Value::None).map_err(Exception::from);
        peer.replies.reply_result(&to, reply);
    });
    Ok(Reply::Later)
}

/// Packs a storage; `peer` asked for it.
pub(crate) fn run(storage: &Arc<Database>, pack_tid: Tid, peer: &str) -> Result<(), StorageError> {
    let packed = storage.pack(pack_tid);
    if let Err(error) = &packed {
        tracing::error!(peer, file = %storage.reader().name(), %error, "not packed");
    }
    packed.map(|_| ())
}

/// The tid of a time in seconds since the Unix epoch, exactly as ZODB computes it.
pub(crate) fn tid_of_time(time: &Value<'_>) -> Result<Tid, Exception> {
    let seconds = match time {
        Value::Float(seconds) => Some(*seconds),
        value => value.as_int().map(|seconds| seconds as f64),
    };
    let Some(seconds) = seconds.filter(|seconds| seconds.is_finite()) else {
        let kind = time.kind();
        return Err(Exception::type_error(format!("pack(): expected a time, got {kind}")));
    };
    let seconds = seconds.max(0.0);
    // Computed separately: one product would lose digits of the seconds.
    let minutes = (seconds / 60.0).floor() as u64;
    let Tid(minutes) = Tid::from_unix_nanos(minutes.saturating_mul(60_000_000_000));
    let fraction = (seconds % 60.0 / (60.0 / TICKS_PER_MINUTE)) as u32;
    Ok(Tid(minutes & !u64::from(u32::MAX) | u64::from(fraction)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pack_times_become_tids_as_zodb_computes_them() {
        // TimeStamp(*time.gmtime(t)[:5] + (t % 60,)) of ZODB.
        let tid = |time| tid_of_time(&time).unwrap();
        for (seconds, expected) in [
            (1_704_164_645.5, 0x03f5_9458_1777_7777),
            (1_704_164_645.0, 0x03f5_9458_1555_5555),
            (1e9 + 0.123_456, 0x033f_2eea_ab31_8377),
            (1_763_726_574.1, 0x0404_fd92_e6d3_a066),
            (4_102_444_799.999_999, 0x0662_c3ff_ffff_ffbb),
            (59.999_999_999_99, 0x023c_2b00_ffff_ffff),
        ] {
            assert_eq!(tid(Value::Float(seconds)), Tid(expected));
        }
        assert_eq!(tid(Value::Int(1_704_164_645)), Tid(0x03f5_9458_1555_5555));
        assert_eq!(tid(Value::Float(-1.0)), Tid::from_unix_nanos(0));
        assert!(tid(Value::Float(f64::MAX)) > Tid::from_unix_nanos(1 << 62));
        assert!(tid_of_time(&Value::Float(f64::NAN)).is_err());
        assert!(tid_of_time(&Value::None).is_err());
    }
}
