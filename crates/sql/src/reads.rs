//! Reads of a partitioned database, for a NEO node.

use zodium_types::{Oid, Tid};

use crate::{Database, RevisionRow, SqlError, TransactionRow, revisions, transactions};

impl Database {
    /// The latest revision of an object before a tid.
    pub fn load_before(&self, oid: Oid, before: Tid) -> Result<Option<RevisionRow>, SqlError> {
        let partition = self.partitions().of_oid(oid);
        self.pool.with("load an object", |connection| {
            revisions::before(connection, partition, oid, before)
        })
    }

    /// The revision of an object that a transaction wrote.
    pub fn load_at(&self, oid: Oid, serial: Tid) -> Result<Option<RevisionRow>, SqlError> {
        let partition = self.partitions().of_oid(oid);
        self.pool
            .with("load an object", |connection| revisions::at(connection, partition, oid, serial))
    }

    /// A committed transaction without its records.
    pub fn transaction(&self, tid: Tid) -> Result<Option<TransactionRow>, SqlError> {
        let partition = self.partitions().of_tid(tid);
        self.pool
            .with("read a transaction", |connection| transactions::read(connection, partition, tid))
    }

    /// The tid with which a transaction was committed; `None` when it was not.
    pub fn final_tid(&self, ttid: Tid) -> Result<Option<Tid>, SqlError> {
        let partition = self.partitions().of_tid(ttid);
        self.pool.with("look for a transaction", |connection| {
            transactions::final_tid(connection, partition, ttid)
        })
    }
}
