//! Limits on the transaction ids and oids that a client may bring.
//!
//! Ids only grow, so the largest stored id makes all smaller ones unusable. After a transaction of
//! the year 9000, no clock ever gives an id again; after a store to the last oid, there is no new
//! object. So a client's ids may be ahead of the server's own, but must leave enough for others.

use std::time::Duration;

use zodium_disk::Clock;
use zodium_types::{Oid, Tid};

use crate::VoteError;
use crate::clock_watch::AHEAD_MAX;
use crate::transaction::{Transaction, WriteBody};

/// Copied transactions keep their ids, even those from a server whose clock was wrong, up to a
/// century ahead. The ids of seven millennia are left in the format.
const COPIED_AHEAD_MAX: Duration = Duration::from_hours(100 * 366 * 24);

/// Oids up to here are accepted in any order: ZODB's DemoStorage chooses its oids from these. As
/// many are left for the server to assign.
const CHOSEN_OID_MAX: u64 = 1 << 62;
/// Copies may exceed that, if their database assigned oids from near it. A quarter is left.
const COPIED_OID_MAX: u64 = (1 << 63) - (1 << 61);
/// Beyond these limits, oids may exceed the storage's largest (chosen or assigned) by this much.
const OIDS_AHEAD_MAX: u64 = 1 << 32;

const _: () = assert!(CHOSEN_OID_MAX < COPIED_OID_MAX);

/// Refuses a transaction whose ids would leave too few for others. `last_oid` is the storage's
/// largest. The clock is read only for a transaction that brings its id.
pub(crate) fn check_ids(
    transaction: &Transaction,
    last_oid: Oid,
    clock: &dyn Clock,
) -> Result<(), VoteError> {
    check_tid(transaction, clock)?;
    let largest = last_oid.0.saturating_add(OIDS_AHEAD_MAX);
    for write in &transaction.writes {
        let limit = match write.body {
            WriteBody::Restore { .. } => COPIED_OID_MAX,
            WriteBody::Store(_) | WriteBody::Delete => CHOSEN_OID_MAX,
        };
        let limit = Oid(limit.max(largest));
        if write.oid > limit {
            return Err(VoteError::OidTooLarge { oid: write.oid, limit });
        }
    }
    Ok(())
}

fn check_tid(transaction: &Transaction, clock: &dyn Clock) -> Result<(), VoteError> {
    let Some(tid) = transaction.explicit_tid else { return Ok(()) };
    let ahead_max = if transaction.is_copy() { COPIED_AHEAD_MAX } else { AHEAD_MAX };
    let now = clock.unix_nanos();
    let nanos_max = u64::try_from(ahead_max.as_nanos()).unwrap_or(u64::MAX);
    if tid <= Tid::from_unix_nanos(now.saturating_add(nanos_max)) {
        return Ok(());
    }
    let ahead = Duration::from_nanos(tid.to_unix_nanos().saturating_sub(now));
    Err(VoteError::TidAhead { tid, ahead, ahead_max })
}
