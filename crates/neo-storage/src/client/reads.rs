//! Reads: objects, transactions, history, lists of tids and oids.
//!
//! An object between lock and unlock cannot be read: the answer must not say that an older record
//! is current. A list up to a tid is complete only when all transactions up to it are unlocked. A
//! client may ask before the unlock has arrived here: it learns of its commit from the master.

use zodium_neo::messages::{
    AnswerOIDsFrom, AnswerObject, AnswerObjectHistory, AnswerTIDs, AnswerTIDsFrom,
    AnswerTransactionInformation, AskTIDs,
};
use zodium_neo::{Checksum, ErrorCode, Message, Partition};
use zodium_types::{Oid, Tid};

use super::refused;
use crate::database::{Loaded, Record, TransactionRecord};
use crate::handling::{Handled, Refusal};
use crate::transactions::{DelayedRead, Read};
use crate::{ConnectionId, Node};

/// Bytes of records that are answered from memory before the driver takes the outputs.
const REMEMBERED_BYTES_MAX: usize = 1 << 20;

impl Node {
    pub(super) fn read_asked(
        &mut self,
        from: (ConnectionId, u32),
        message: Message<'_>,
    ) -> Handled {
        let read = match message {
            Message::AskObject(message) => {
                let (at, before) = self.cut(message.at, message.before);
                Read::Object { oid: message.oid, at, before }
            }
            Message::AskObjectHistory(message) => {
                let (skip, count) = range(message.first, message.end)?;
                Read::History { oid: message.oid, skip, count }
            }
            Message::AskTIDsFrom(message) => Read::Tids {
                partition: message.partition,
                min: message.min_tid,
                max: message.max_tid.min(self.backup_tid.unwrap_or(Tid::MAX)),
                count: message.length,
            },
            Message::AskOIDsFrom(message) => Read::Oids {
                partition: message.partition,
                from: message.min_oid,
                tid: message.tid,
                count: message.length,
            },
            Message::AskTransactionInformation(message) => Read::Transaction { tid: message.tid },
            Message::AskTIDs(message) => self.newest(&message)?,
            Message::AskObjectUndoSerial(message) => Read::Undo(message),
            other => return refused(&other),
        };
        self.read_or_delay(from, read)
    }

    /// In a backup cluster nothing after the last complete transaction is shown.
    fn cut(&self, at: Option<Tid>, before: Option<Tid>) -> (Option<Tid>, Option<Tid>) {
        let Some(last) = self.backup_tid else { return (at, before) };
        match (at, before) {
            (Some(at), _) => (Some(if at > last { Tid::ZERO } else { at }), None),
            (None, before) => (None, Some(before.map_or(last.next(), |tid| tid.min(last.next())))),
        }
    }

    /// Reads, now or when the transactions that must be unlocked first are.
    pub(crate) fn read_or_delay(&mut self, from: (ConnectionId, u32), read: Read) -> Handled {
        let transactions = &mut self.transactions;
        let must_wait = match &read {
            Read::Object { oid, .. } | Read::History { oid, .. } => {
                transactions.read_locks.contains_key(oid)
            }
            Read::Tids { max, .. } => transactions.is_locked_until(*max),
            Read::Oids { tid, .. } => transactions.is_locked_until(*tid),
            Read::Transactions(message) => transactions.is_locked_until(message.max_tid),
            Read::Sum(message) => transactions.is_locked_until(message.max_tid),
            Read::Newest { locked_until, .. } => {
                locked_until.is_some_and(|tid| transactions.is_locked_until(tid))
            }
            Read::Transaction { tid } => transactions.all.values().any(|one| one.tid == Some(*tid)),
            Read::Undo(message) => {
                message.oids.iter().any(|oid| transactions.read_locks.contains_key(oid))
            }
        };
        if must_wait {
            transactions.delayed.push(DelayedRead { from, read });
            return Ok(());
        }
        match read {
            Read::Object { oid, at, before } => self.load(from, oid, at, before),
            Read::History { oid, skip, count } => self.history(from, oid, skip, count),
            Read::Tids { partition, min, max, count } => {
                self.tids_from(from, partition, (min, max), count)
            }
            Read::Oids { partition, from: first, tid, count } => {
                self.oids_from(from, partition, (first, tid), count)
            }
            Read::Transactions(message) => self.feed_transactions(from, message),
            Read::Sum(message) => self.sum_tids(from, &message),
            Read::Transaction { tid } => self.transaction_asked(from, tid),
            Read::Newest { partitions, skip, count, .. } => {
                self.newest_tids(from, partitions, (skip, count))
            }
            Read::Undo(message) => self.undo_asked(from, message),
        }
    }

    /// Has delayed reads try again.
    pub(crate) fn read_delayed(&mut self) {
        for DelayedRead { from, read } in std::mem::take(&mut self.transactions.delayed) {
            if let Err(refusal) = self.read_or_delay(from, read) {
                self.refuse(from.0, from.1, "a read", &refusal);
            }
        }
        self.check_next();
    }

    fn load(
        &mut self,
        from: (ConnectionId, u32),
        oid: Oid,
        at: Option<Tid>,
        before: Option<Tid>,
    ) -> Handled {
        self.readable_partition_of_oid(oid)?;
        if self.load_from_memory(from, oid, (at, before)) {
            return Ok(());
        }
        let since = self.records.since();
        self.read_shortly_for(
            from,
            move |database| database.load(oid, at, before),
            move |node, loaded| {
                node.readable_partition_of_oid(oid)?;
                let refusal = |code| Err(Refusal::answer(code, oid.to_string()));
                match loaded {
                    Loaded::Found(record) => {
                        node.counts.loads += 1;
                        node.answer_object(from, oid, &record);
                        if node.backup_tid.is_none() {
                            node.records.keep(oid, record, since);
                        }
                    }
                    Loaded::NotThen => return refusal(ErrorCode::OidNotFound),
                    Loaded::Never => return refusal(ErrorCode::OidDoesNotExist),
                }
                Ok(())
            },
        );
        Ok(())
    }

    /// Answers a load from memory, if the record is there. Not many at once: the driver looks at
    /// what waits to be sent only before reads of the database.
    fn load_from_memory(
        &mut self,
        from: (ConnectionId, u32),
        oid: Oid,
        (at, before): (Option<Tid>, Option<Tid>),
    ) -> bool {
        if self.backup_tid.is_some() || self.remembered_bytes > REMEMBERED_BYTES_MAX {
            return false;
        }
        // Taken out while the record is lent.
        let records = std::mem::take(&mut self.records);
        let found = records.find(oid, at, before);
        if let Some(record) = found {
            self.counts.loads += 1;
            self.counts.remembered_loads += 1;
            self.remembered_bytes += record.data.as_ref().map_or(0, |data| data.bytes.len());
            self.answer_object(from, oid, record);
        }
        let is_found = found.is_some();
        self.records = records;
        is_found
    }

    fn answer_object(&mut self, (connection, id): (ConnectionId, u32), oid: Oid, record: &Record) {
        let data = record.data.as_ref();
        let answer = AnswerObject {
            oid,
            serial: record.serial,
            next_serial: record.next,
            compression: data.map(|data| data.compression),
            checksum: data.map_or(Checksum::ZERO, |data| data.checksum),
            data: data.map_or(&[], |data| &data.bytes),
            data_serial: record.data_serial,
        };
        self.answer(connection, id, answer);
    }

    fn history(&mut self, from: (ConnectionId, u32), oid: Oid, skip: u64, count: u64) -> Handled {
        self.readable_partition_of_oid(oid)?;
        self.read_for(
            from,
            move |database| database.history(oid, skip, count),
            move |node, records| {
                node.readable_partition_of_oid(oid)?;
                if records.is_empty() {
                    return Err(Refusal::answer(ErrorCode::OidNotFound, oid.to_string()));
                }
                node.answer(from.0, from.1, AnswerObjectHistory { oid, records });
                Ok(())
            },
        );
        Ok(())
    }

    fn transaction_asked(&mut self, from: (ConnectionId, u32), tid: Tid) -> Handled {
        let missing = move || Refusal::answer(ErrorCode::TidNotFound, format!("no {tid}"));
        if self.backup_tid.is_some_and(|last| tid > last) {
            return Err(missing());
        }
        self.readable_partition_of_tid(tid)?;
        self.read_for(
            from,
            move |database| database.transaction(tid),
            move |node, found| {
                node.readable_partition_of_tid(tid)?;
                let found: TransactionRecord = found.ok_or_else(missing)?;
                let answer = AnswerTransactionInformation {
                    tid,
                    user: &found.metadata.user,
                    description: &found.metadata.description,
                    extension: &found.metadata.extension,
                    packed: found.is_packed,
                    oids: found.oids,
                };
                node.answer(from.0, from.1, answer);
                Ok(())
            },
        );
        Ok(())
    }

    /// The read of the newest tids.
    fn newest(&self, message: &AskTIDs) -> Result<Read, Refusal> {
        let (skip, count) = range(message.first, message.end)?;
        let readable = self.readable();
        let partitions = match message.partition {
            Partition::ALL_READABLE => readable,
            one if readable.contains(&one) => vec![one],
            _ => return Err(Refusal::not_readable()),
        };
        let locked_until = self.transactions.all.values().filter_map(|one| one.tid).max();
        Ok(Read::Newest { partitions, skip, count, locked_until })
    }

    fn newest_tids(
        &mut self,
        from: (ConnectionId, u32),
        partitions: Vec<Partition>,
        (skip, count): (u64, u64),
    ) -> Handled {
        let last = self.backup_tid.unwrap_or(Tid::MAX);
        let asked = partitions.clone();
        self.read_for(
            from,
            move |database| database.newest_tids(&partitions, skip, count),
            move |node, mut tids| {
                asked.iter().try_for_each(|partition| node.check_readable(*partition))?;
                tids.retain(|tid| *tid <= last);
                node.answer(from.0, from.1, AnswerTIDs { tids });
                Ok(())
            },
        );
        Ok(())
    }

    fn tids_from(
        &mut self,
        from: (ConnectionId, u32),
        partition: Partition,
        range: (Tid, Tid),
        count: u32,
    ) -> Handled {
        self.check_readable(partition)?;
        self.read_for(
            from,
            move |database| database.tids(partition, range, count),
            move |node, tids| {
                node.check_readable(partition)?;
                node.answer(from.0, from.1, AnswerTIDsFrom { tids });
                Ok(())
            },
        );
        Ok(())
    }

    fn oids_from(
        &mut self,
        from: (ConnectionId, u32),
        partition: Partition,
        (first, tid): (Oid, Tid),
        count: u32,
    ) -> Handled {
        self.check_readable(partition)?;
        self.read_for(
            from,
            move |database| database.oids(partition, first, tid, count),
            move |node, (next_oid, oids)| {
                node.check_readable(partition)?;
                node.answer(from.0, from.1, AnswerOIDsFrom { next_oid, oids });
                Ok(())
            },
        );
        Ok(())
    }

    /// The partition of an object.
    pub(crate) fn partition_of(&self, oid: Oid) -> Result<Partition, Refusal> {
        let table = self.table.as_ref();
        let partition = table.and_then(|table| table.partition_of_oid(oid));
        partition.ok_or_else(|| Refusal::not_ready("no partition table"))
    }

    /// Whether this node serves reads of a partition.
    pub(crate) fn is_readable(&self, partition: Partition) -> bool {
        let (Some(table), Some(id)) = (&self.table, self.id) else { return false };
        table.state(partition, id).is_some_and(|state| state.is_readable())
    }

    /// Refuses a read of a partition that this node does not serve.
    ///
    /// Answers check it as well: when the master takes a cell away its rows are dropped, perhaps
    /// before the read.
    fn check_readable(&self, partition: Partition) -> Handled {
        match self.is_readable(partition) {
            true => Ok(()),
            false => Err(Refusal::not_readable()),
        }
    }

    pub(super) fn readable_partition_of_oid(&self, oid: Oid) -> Handled {
        self.check_readable(self.partition_of(oid)?)
    }

    pub(crate) fn readable_partition_of_tid(&self, tid: Tid) -> Handled {
        let table = self.table.as_ref();
        let partition = table.and_then(|table| table.partition_of_tid(tid));
        self.check_readable(partition.ok_or_else(Refusal::not_readable)?)
    }
}

/// How many to skip, and how many to give.
fn range(first: i64, end: i64) -> Result<(u64, u64), Refusal> {
    match (u64::try_from(first), u64::try_from(end)) {
        (Ok(first), Ok(end)) if first < end => Ok((first, end - first)),
        _ => Err(Refusal::protocol("a range that is empty or negative")),
    }
}
