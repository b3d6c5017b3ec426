//! Decides when the rows of a transaction are written.
//!
//! A master commits a transaction after a crash if a storage with its metadata has locked it. So a
//! storage that has the only cell of the metadata decides alone, with its lock: before it, nothing
//! of the transaction need be durable here. Parts on other storages are dropped if it is lost.
//!
//! Key decision: on such a storage the rows stay in memory until the lock, which commits them in
//! one change of the database. Large transactions, those that the database may refuse, and all when
//! the disk is nearly full, are written at the vote, too: there, a client can still give them up.
//! In a cluster with replicas votes are synced.

use zodium_types::Tid;

use super::Commits;
use super::transactions::{Held, Kept, Transaction};
use crate::cluster::Cluster;
use crate::database::{NewRecord, NewTransaction, ReadResult, Writes};

/// What a vote does with the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Writes them, and syncs.
    Durable,
    /// Writes them.
    Unsynced,
    /// Keeps them in memory.
    Hold,
}

impl Commits {
    /// How a transaction is voted; `metadata` if this node has them.
    pub(super) fn way_of(
        &self,
        cluster: &Cluster,
        ttid: Tid,
        transaction: &Transaction,
        metadata: Option<&NewTransaction>,
    ) -> Way {
        let Some(NewTransaction { pack: None, .. }) = metadata else { return Way::Durable };
        if !cluster.is_alone_in(cluster.partition_of_tid(ttid)) {
            return Way::Durable;
        }
        let may_fail = self.may_refuse_data || !self.has_room;
        match transaction.is_plain() && !may_fail {
            true => Way::Hold,
            false => Way::Unsynced,
        }
    }
}

impl Held {
    /// Writes and commits what was held; whether the disk has room for more. Blocking.
    pub(super) fn commit(self, database: &mut dyn Writes, ttid: Tid, tid: Tid) -> ReadResult<bool> {
        let Held { records, transaction, .. } = self;
        let mut records = records.into_iter().map(|(oid, data)| {
            let data = data.map(Kept::into_data).transpose()?;
            Ok(NewRecord { oid, data, data_serial: None })
        });
        database.commit((ttid, tid), &mut records, transaction)?;
        Ok(database.has_room())
    }
}
