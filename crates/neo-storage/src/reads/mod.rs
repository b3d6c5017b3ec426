//! Reads: objects, transactions, history, lists of tids and oids.
//!
//! An object between lock and unlock cannot be read: the answer must not say that an older record
//! is current. A list up to a tid is complete only when all transactions up to it are unlocked. A
//! client may ask before the unlock has arrived here: it learns of its commit from the master.

pub(crate) mod feeding;
mod lists;
mod read;
mod records;
mod undo;

use zodium_neo::messages::AnswerObject;
use zodium_neo::{Checksum, ErrorCode, Message};
use zodium_types::{Oid, Tid};

pub(crate) use self::read::{DelayedRead, Read};
pub use self::records::RECORDS_BYTES_MAX;
use self::records::Records;
use crate::ConnectionId;
use crate::cluster::Cluster;
use crate::commits::Commits;
use crate::database::{Loaded, Record};
use crate::handling::{Handled, Refusal};
use crate::links::Links;

/// Bytes of records that are answered from memory before the driver takes the outputs.
const REMEMBERED_BYTES_MAX: usize = 1 << 20;

/// Records in memory, and reads that wait.
#[derive(Debug)]
pub(crate) struct Reading {
    records: Records,
    /// Bytes of records that were answered from memory since the driver took the outputs.
    remembered_bytes: usize,
    /// Reads that wait for an unlock.
    delayed: Vec<DelayedRead>,
}

impl Reading {
    /// Keeps so many bytes of records at most.
    pub(crate) fn new(records_bytes_max: usize) -> Reading {
        let records = Records::new(records_bytes_max);
        Reading { records, remembered_bytes: 0, delayed: Vec::new() }
    }

    /// Forgets all records, and all reads that wait.
    pub(crate) fn clear(&mut self) {
        self.records.clear();
        self.delayed.clear();
    }

    /// Forgets the records that a commit has replaced.
    pub(crate) fn forget(&mut self, oids: impl Iterator<Item = Oid>) {
        self.records.remove(oids);
    }

    /// Forgets all records.
    pub(crate) fn forget_all(&mut self) {
        self.records.clear();
    }

    /// The driver takes what was answered.
    pub(crate) fn note_taken(&mut self) {
        self.remembered_bytes = 0;
    }

    /// Number of reads that wait for an unlock.
    pub(crate) fn delayed(&self) -> usize {
        self.delayed.len()
    }

    /// Takes the reads that wait for an unlock, to try them again.
    pub(crate) fn take_delayed(&mut self) -> Vec<DelayedRead> {
        std::mem::take(&mut self.delayed)
    }

    /// Handles what a client reads.
    pub(crate) fn read_asked(
        &mut self,
        links: &mut Links,
        cluster: &Cluster,
        commits: &Commits,
        from: (ConnectionId, u32),
        message: Message<'_>,
    ) -> Handled {
        let read = match message {
            Message::AskObject(message) => {
                let (at, before) = cut(cluster, message.at, message.before);
                Read::Object { oid: message.oid, at, before }
            }
            Message::AskObjectHistory(message) => {
                let (skip, count) = lists::range(message.first, message.end)?;
                Read::History { oid: message.oid, skip, count }
            }
            Message::AskTIDsFrom(message) => Read::Tids {
                partition: message.partition,
                min: message.min_tid,
                max: message.max_tid.min(cluster.backup_tid().unwrap_or(Tid::MAX)),
                count: message.length,
            },
            Message::AskOIDsFrom(message) => Read::Oids {
                partition: message.partition,
                from: message.min_oid,
                tid: message.tid,
                count: message.length,
            },
            Message::AskTransactionInformation(message) => Read::Transaction { tid: message.tid },
            Message::AskTIDs(message) => lists::newest(cluster, commits, &message)?,
            Message::AskObjectUndoSerial(message) => Read::Undo(message),
            other => return Err(Refusal::unexpected(&other)),
        };
        self.read_or_delay(links, cluster, commits, from, read)
    }

    /// Reads, now or when the transactions that must be unlocked first are.
    pub(crate) fn read_or_delay(
        &mut self,
        links: &mut Links,
        cluster: &Cluster,
        commits: &Commits,
        from: (ConnectionId, u32),
        read: Read,
    ) -> Handled {
        let must_wait = match &read {
            Read::Object { oid, .. } | Read::History { oid, .. } => commits.is_read_locked(*oid),
            Read::Tids { max, .. } => commits.is_locked_until(*max),
            Read::Oids { tid, .. } => commits.is_locked_until(*tid),
            Read::Transactions(message) => commits.is_locked_until(message.max_tid),
            Read::Sum(message) => commits.is_locked_until(message.max_tid),
            Read::Newest { locked_until, .. } => {
                locked_until.is_some_and(|tid| commits.is_locked_until(tid))
            }
            Read::Transaction { tid } => commits.is_locked(*tid),
            Read::Undo(message) => message.oids.iter().any(|oid| commits.is_read_locked(*oid)),
        };
        if must_wait {
            self.delayed.push(DelayedRead { from, read });
            return Ok(());
        }
        match read {
            Read::Object { oid, at, before } => self.load(links, cluster, from, (oid, at, before)),
            Read::History { oid, skip, count } => {
                lists::history(links, cluster, from, (oid, skip, count))
            }
            Read::Tids { partition, min, max, count } => {
                lists::tids_from(links, cluster, from, partition, (min, max, count))
            }
            Read::Oids { partition, from: first, tid, count } => {
                lists::oids_from(links, cluster, from, partition, (first, tid, count))
            }
            Read::Transactions(message) => {
                feeding::feed_transactions(links, from, message);
                Ok(())
            }
            Read::Sum(message) => feeding::sum_tids(links, cluster, from, &message),
            Read::Transaction { tid } => lists::transaction(links, cluster, from, tid),
            Read::Newest { partitions, skip, count, .. } => {
                lists::newest_tids(links, cluster, from, partitions, (skip, count));
                Ok(())
            }
            Read::Undo(message) => undo::undo_asked(links, cluster, commits, from, message),
        }
    }

    fn load(
        &mut self,
        links: &mut Links,
        cluster: &Cluster,
        from: (ConnectionId, u32),
        (oid, at, before): (Oid, Option<Tid>, Option<Tid>),
    ) -> Handled {
        cluster.check_readable_oid(oid)?;
        if self.load_from_memory(links, cluster, from, (oid, at, before)) {
            return Ok(());
        }
        let since = self.records.since();
        links.read_shortly_for(
            from,
            move |database| database.load(oid, at, before),
            move |node, loaded| {
                node.cluster.check_readable_oid(oid)?;
                let refusal = |code| Err(Refusal::answer(code, oid.to_string()));
                match loaded {
                    Loaded::Found(record) => {
                        node.links.count().loads += 1;
                        answer_object(&mut node.links, from, oid, &record);
                        if node.cluster.backup_tid().is_none() {
                            node.reading.records.keep(oid, record, since);
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
        links: &mut Links,
        cluster: &Cluster,
        from: (ConnectionId, u32),
        (oid, at, before): (Oid, Option<Tid>, Option<Tid>),
    ) -> bool {
        if cluster.backup_tid().is_some() || self.remembered_bytes > REMEMBERED_BYTES_MAX {
            return false;
        }
        let Some(record) = self.records.find(oid, at, before) else { return false };
        links.count().loads += 1;
        links.count().remembered_loads += 1;
        self.remembered_bytes += record.data.as_ref().map_or(0, |data| data.bytes.len());
        answer_object(links, from, oid, record);
        true
    }
}

/// In a backup cluster nothing after the last complete transaction is shown.
fn cut(cluster: &Cluster, at: Option<Tid>, before: Option<Tid>) -> (Option<Tid>, Option<Tid>) {
    let Some(last) = cluster.backup_tid() else { return (at, before) };
    match (at, before) {
        (Some(at), _) => (Some(if at > last { Tid::ZERO } else { at }), None),
        (None, before) => (None, Some(before.map_or(last.next(), |tid| tid.min(last.next())))),
    }
}

fn answer_object(
    links: &mut Links,
    (connection, id): (ConnectionId, u32),
    oid: Oid,
    record: &Record,
) {
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
    links.answer((connection, id), answer);
}
