//! A backup cluster: it tells its clients of no commits, so they look for what is new.
//!
//! Its master says up to which transaction all storages have everything. A storage may learn that
//! a little later, and shows nothing after what it knows to be complete. So a client waits before
//! it reads up to there: otherwise it would pass over a transaction for good.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use tracing::debug;

use crate::NeoError;
use crate::cluster::Cluster;
use crate::reads::Reads;
use crate::session::{Session, ask_last};

/// How often a client looks for what is new.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long storages may take to learn what their master counts as complete.
const SETTLING: Duration = Duration::from_millis(200);

/// Follows a backup cluster until the connection to its master has ended.
pub(crate) fn follow(cluster: &Arc<Cluster>, session: &Arc<Session>, end: &Receiver<()>) {
    while end.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
        if let Err(error) = look(cluster, session) {
            debug!(%error, "what is new in the backup cluster is not known");
        }
    }
}

/// Waits until storages show what the master has told.
pub(crate) fn settle(cluster: &Cluster) {
    cluster.sleep(SETTLING);
}

/// Tells of what is complete since the last look.
fn look(cluster: &Arc<Cluster>, session: &Arc<Session>) -> Result<(), NeoError> {
    let (seen, last) = (cluster.commits.last_tid(), ask_last(&session.master)?);
    if seen >= last {
        return Ok(());
    }
    settle(cluster);
    let missed = Reads::in_session(cluster, session).committed(seen.next(), last)?;
    cluster.commits.catch_up(last, missed, BTreeMap::new());
    Ok(())
}
