//! Serves storages that replicate, or that compare their partitions with this one's.

use std::collections::BTreeSet;

use bytes::{Bytes, BytesMut};
use rustc_hash::FxHashSet;
use zodium_neo::messages::{
    AddObject, AddTransaction, AddedPack, AnswerCheckSerialRange, AnswerCheckTIDRange,
    AnswerFetchObjects, AnswerFetchTransactions, AskCheckSerialRange, AskCheckTIDRange,
    AskFetchObjects, AskFetchTransactions, Pong,
};
use zodium_neo::{CellState, Checksum, ErrorCode, Map, Message, Partition, encode};
use zodium_types::{Oid, Tid};

use crate::database::{DatabaseError, ReadResult, Reads, Record, TransactionRecord};
use crate::handling::{Handled, Refusal};
use crate::sums::{SerialSum, TidSum};
use crate::transactions::Read;
use crate::{ConnectionId, Node};

/// Bytes of rows that are read and sent together.
const FEED_BYTES: usize = 512 << 10;

/// Rows that a storage lacks, and the answer at their end.
struct Feed<T> {
    partition: Partition,
    /// In reverse order.
    missing: Vec<T>,
    answer: Message<'static>,
}

/// Rows on their way, and those that are left.
type Fed<T> = (Bytes, Feed<T>);

impl Node {
    /// Handles a message of another storage.
    pub(crate) fn storage_says(
        &mut self,
        connection: ConnectionId,
        id: u32,
        message: Message<'_>,
    ) -> Handled {
        let from = (connection, id);
        match message {
            Message::Ping(_) => self.answer(connection, id, Pong {}),
            Message::CloseClient(_) | Message::Pong(_) => {}
            Message::AskFetchTransactions(message) => {
                self.check_feeding(message.partition, ErrorCode::ReplicationError)?;
                return self.read_or_delay(from, Read::Transactions(message));
            }
            Message::AskFetchObjects(message) => return self.feed_objects(from, message),
            Message::AskCheckTIDRange(message) => {
                return self.read_or_delay(from, Read::Sum(message));
            }
            Message::AskCheckSerialRange(message) => return self.sum_serials(from, &message),
            other => return self.feeder_says(connection, id, other),
        }
        Ok(())
    }

    /// Whether a running storage fetches a partition, or is about to.
    pub(crate) fn is_fetched(&self, partition: Partition) -> bool {
        let Some(table) = &self.table else { return false };
        table.row(partition).iter().any(|cell| {
            cell.state == CellState::OutOfDate
                && Some(cell.node) != self.id
                && self.members.running_address(cell.node).is_some()
        })
    }

    fn check_feeding(&self, partition: Partition, code: ErrorCode) -> Handled {
        match self.is_readable(partition) {
            true => Ok(()),
            false => Err(Refusal::answer(code, format!("partition {partition} is not readable"))),
        }
    }

    /// Sends the transactions that a storage lacks. The first time a step of a pack may be under
    /// way here: it is waited for, and [`Node::is_fetched`] keeps further ones away.
    pub(crate) fn feed_transactions(
        &mut self,
        from: (ConnectionId, u32),
        message: AskFetchTransactions,
    ) -> Handled {
        if !message.ask_pack_info {
            return self.feed_transactions_now(from, message);
        }
        self.write_lazily(
            |_| Ok(()),
            move |node, ()| {
                if let Err(refusal) = node.feed_transactions_now(from, message) {
                    node.refuse(from.0, from.1, "AskFetchTransactions", &refusal);
                }
            },
        );
        Ok(())
    }

    fn feed_transactions_now(
        &mut self,
        from: (ConnectionId, u32),
        message: AskFetchTransactions,
    ) -> Handled {
        let AskFetchTransactions { partition, length, min_tid, max_tid, tids: has, ask_pack_info } =
            message;
        let own = self.id.filter(|_| ask_pack_info);
        self.read_for(
            from,
            move |database| {
                // What the database says now: a replication of this cell itself may have taken it
                // back since the last look for packs.
                let completed_pack = own.map(|own| database.packed(own, partition)).transpose()?;
                let count = length.saturating_add(1);
                Ok((completed_pack, database.tids(partition, (min_tid, max_tid), count)?))
            },
            move |node, (completed_pack, mut tids)| {
                // The rows of a cell that was taken away are dropped: nothing would be left there.
                node.check_feeding(partition, ErrorCode::ReplicationError)?;
                let next_tid = if tids.len() > length as usize { tids.pop() } else { None };
                let here: BTreeSet<Tid> = tids.iter().copied().collect();
                let has: BTreeSet<Tid> = has.into_iter().collect();
                let is_covered = |tid: &&Tid| next_tid.is_none_or(|next| **tid < next);
                let deleted = has.difference(&here).filter(is_covered).copied().collect();
                let missing = here.iter().rev().filter(|tid| !has.contains(tid)).copied().collect();
                let answer = AnswerFetchTransactions { next_tid, deleted, completed_pack }.into();
                node.feed(from, Feed { partition, missing, answer }, transaction_packet);
                Ok(())
            },
        );
        Ok(())
    }

    fn feed_objects(&mut self, from: (ConnectionId, u32), message: AskFetchObjects) -> Handled {
        let AskFetchObjects { partition, length, min_tid, max_tid, min_oid, records: has } =
            message;
        self.check_feeding(partition, ErrorCode::ReplicationError)?;
        self.read_for(
            from,
            move |database| {
                let count = length.saturating_add(1);
                database.records(partition, (min_tid, max_tid), min_oid, count)
            },
            move |node, mut records| {
                node.check_feeding(partition, ErrorCode::ReplicationError)?;
                let next = if records.len() > length as usize { records.pop() } else { None };
                let here: FxHashSet<(Tid, Oid)> = records.iter().copied().collect();
                let has: BTreeSet<(Tid, Oid)> = has
                    .0
                    .into_iter()
                    .flat_map(|(tid, oids)| oids.into_iter().map(move |oid| (tid, oid)))
                    .collect();
                let missing =
                    records.into_iter().rev().filter(|record| !has.contains(record)).collect();
                let mut deleted = std::collections::BTreeMap::<Tid, Vec<Oid>>::new();
                for (tid, oid) in has {
                    let is_covered = next.is_none_or(|next| (tid, oid) < next);
                    if is_covered && !here.contains(&(tid, oid)) {
                        deleted.entry(tid).or_default().push(oid);
                    }
                }
                let answer = AnswerFetchObjects {
                    next_tid: next.map(|(tid, _)| tid),
                    next_oid: next.map(|(_, oid)| oid),
                    deleted: Map::from_iter(deleted),
                };
                let feed = Feed { partition, missing, answer: answer.into() };
                node.feed(from, feed, record_packet);
                Ok(())
            },
        );
        Ok(())
    }

    /// Sends some rows, and goes on when they are on their way.
    fn feed<T: Send + 'static>(
        &mut self,
        (connection, id): (ConnectionId, u32),
        mut feed: Feed<T>,
        packet: fn(&dyn Reads, u32, T, &mut BytesMut) -> ReadResult<()>,
    ) {
        if feed.missing.is_empty() {
            return self.answer(connection, id, feed.answer);
        }
        self.read_in_background(
            connection,
            move |database| -> ReadResult<Fed<T>> {
                let mut packets = BytesMut::new();
                while packets.len() < FEED_BYTES
                    && let Some(row) = feed.missing.pop()
                {
                    packet(database, id, row, &mut packets)?;
                }
                Ok((packets.freeze(), feed))
            },
            move |node, fed| match fed {
                Ok((packets, feed)) => {
                    let code = ErrorCode::ReplicationError;
                    if let Err(refusal) = node.check_feeding(feed.partition, code) {
                        return node.refuse(connection, id, "a replication", &refusal);
                    }
                    node.counts.fed_bytes += packets.len() as u64;
                    node.send_packet(connection, packets);
                    node.feed((connection, id), feed, packet);
                }
                Err(error) => node.read_failed(connection, &error),
            },
        );
    }

    /// Sums up transactions, for a storage that compares replicas.
    pub(crate) fn sum_tids(
        &mut self,
        from: (ConnectionId, u32),
        message: &AskCheckTIDRange,
    ) -> Handled {
        let AskCheckTIDRange { partition, length, min_tid, max_tid } = *message;
        self.check_feeding(partition, ErrorCode::CheckingError)?;
        self.read_for(
            from,
            move |database| {
                let tids = database.tids(partition, (min_tid, max_tid), length)?;
                Ok(TidSum::of(&tids))
            },
            move |node, sum| {
                node.check_feeding(partition, ErrorCode::CheckingError)?;
                let (count, checksum, max_tid) = (sum.count, sum.checksum, sum.last);
                node.answer(from.0, from.1, AnswerCheckTIDRange { count, checksum, max_tid });
                Ok(())
            },
        );
        Ok(())
    }

    fn sum_serials(&mut self, from: (ConnectionId, u32), message: &AskCheckSerialRange) -> Handled {
        let AskCheckSerialRange { partition, length, min_tid, max_tid, min_oid } = *message;
        self.check_feeding(partition, ErrorCode::CheckingError)?;
        self.read_for(
            from,
            move |database| {
                let range = (min_tid, max_tid);
                Ok(SerialSum::of(&database.records(partition, range, min_oid, length)?))
            },
            move |node, sum| {
                node.check_feeding(partition, ErrorCode::CheckingError)?;
                let answer = AnswerCheckSerialRange {
                    count: sum.count,
                    tid_checksum: sum.tid_checksum,
                    max_tid: sum.last_tid,
                    oid_checksum: sum.oid_checksum,
                    max_oid: sum.last_oid,
                };
                node.answer(from.0, from.1, answer);
                Ok(())
            },
        );
        Ok(())
    }
}

/// Appends the packet of a transaction. One that was dropped meanwhile is left out.
fn transaction_packet(
    database: &dyn Reads,
    id: u32,
    tid: Tid,
    out: &mut BytesMut,
) -> ReadResult<()> {
    let Some(found) = database.transaction(tid)? else { return Ok(()) };
    let TransactionRecord { tid, ttid, oids, metadata, is_packed, pack } = found;
    let pack = pack.map(|pack| AddedPack {
        approved: pack.approved,
        partial: pack.oids.is_some(),
        oids: pack.oids,
        tid: pack.until,
    });
    let message = AddTransaction {
        tid,
        user: &metadata.user,
        description: &metadata.description,
        extension: &metadata.extension,
        packed: is_packed,
        ttid,
        oids,
        pack,
    };
    encode(id, message, out).map_err(|error| DatabaseError(error.into()))
}

/// Appends the packet of a record. One that was packed meanwhile is left out.
fn record_packet(
    database: &dyn Reads,
    id: u32,
    (tid, oid): (Tid, Oid),
    out: &mut BytesMut,
) -> ReadResult<()> {
    let Some(record) = database.record(tid, oid)? else { return Ok(()) };
    let Record { serial, data, data_serial, .. } = record;
    let message = AddObject {
        oid,
        serial,
        compression: data.as_ref().map_or(0, |data| data.compression),
        checksum: data.as_ref().map_or(Checksum::ZERO, |data| data.checksum),
        data: data.as_ref().map_or(&[], |data| &data.bytes),
        data_serial,
    };
    encode(id, message, out).map_err(|error| DatabaseError(error.into()))
}
