//! Serves storages that replicate, or that compare their partitions with this one's.

use std::collections::BTreeSet;

use bytes::{Bytes, BytesMut};
use rustc_hash::FxHashSet;
use zodium_neo::messages::{
    AddObject, AddTransaction, AddedPack, AnswerCheckSerialRange, AnswerCheckTIDRange,
    AnswerFetchObjects, AnswerFetchTransactions, AskCheckSerialRange, AskCheckTIDRange,
    AskFetchObjects, AskFetchTransactions,
};
use zodium_neo::{Checksum, ErrorCode, Map, Message, NodeId, Partition, TooLong, encode};
use zodium_types::{Oid, Tid};

use crate::ConnectionId;
use crate::cluster::Cluster;
use crate::database::{ReadResult, Reads, Record, TransactionRecord};
use crate::handling::{Handled, Refusal};
use crate::links::Links;
use crate::sums::{SerialSum, TidSum};

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

/// Refuses to serve another storage with a partition that has no readable cell here.
pub(crate) fn check_feeding(cluster: &Cluster, partition: Partition, code: ErrorCode) -> Handled {
    match cluster.is_readable(partition) {
        true => Ok(()),
        false => Err(Refusal::answer(code, format!("partition {partition} is not readable"))),
    }
}

/// Sends the transactions that a storage lacks. The first time a step of a pack may be under
/// way here: it is waited for, and [`Cluster::is_fetched`] keeps further ones away.
pub(super) fn feed_transactions(
    links: &mut Links,
    from: (ConnectionId, u32),
    message: AskFetchTransactions,
) {
    if !message.ask_pack_info {
        return feed_transactions_now(links, from, None, message);
    }
    links.write_lazily(
        |_| Ok(()),
        move |node, ()| {
            feed_transactions_now(&mut node.links, from, node.cluster.id(), message);
        },
    );
}

/// Sends the transactions that a storage lacks; and how far the cell of `own` is packed.
fn feed_transactions_now(
    links: &mut Links,
    from: (ConnectionId, u32),
    own: Option<NodeId>,
    message: AskFetchTransactions,
) {
    let AskFetchTransactions { partition, length, min_tid, max_tid, tids: has, .. } = message;
    links.read_for(
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
            check_feeding(&node.cluster, partition, ErrorCode::ReplicationError)?;
            let next_tid = if tids.len() > length as usize { tids.pop() } else { None };
            let here: BTreeSet<Tid> = tids.iter().copied().collect();
            let has: BTreeSet<Tid> = has.into_iter().collect();
            let is_covered = |tid: &&Tid| next_tid.is_none_or(|next| **tid < next);
            let deleted = has.difference(&here).filter(is_covered).copied().collect();
            let missing = here.iter().rev().filter(|tid| !has.contains(tid)).copied().collect();
            let answer = AnswerFetchTransactions { next_tid, deleted, completed_pack }.into();
            send_rows(
                &mut node.links,
                from,
                Feed { partition, missing, answer },
                transaction_packet,
            );
            Ok(())
        },
    );
}

/// Sends the records that a storage lacks.
pub(crate) fn feed_objects(
    links: &mut Links,
    cluster: &Cluster,
    from: (ConnectionId, u32),
    message: AskFetchObjects,
) -> Handled {
    let AskFetchObjects { partition, length, min_tid, max_tid, min_oid, records: has } = message;
    check_feeding(cluster, partition, ErrorCode::ReplicationError)?;
    links.read_for(
        from,
        move |database| {
            let count = length.saturating_add(1);
            database.records(partition, (min_tid, max_tid), min_oid, count)
        },
        move |node, mut records| {
            check_feeding(&node.cluster, partition, ErrorCode::ReplicationError)?;
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
            send_rows(&mut node.links, from, feed, record_packet);
            Ok(())
        },
    );
    Ok(())
}

/// Sends some rows, and goes on when they are on their way.
fn send_rows<T: Send + 'static>(
    links: &mut Links,
    (connection, id): (ConnectionId, u32),
    mut feed: Feed<T>,
    packet: fn(&dyn Reads, u32, T, &mut BytesMut) -> ReadResult<Handled>,
) {
    if feed.missing.is_empty() {
        return links.answer((connection, id), feed.answer);
    }
    links.read_in_background(
        connection,
        move |database| -> ReadResult<Result<Fed<T>, Refusal>> {
            let mut packets = BytesMut::new();
            while packets.len() < FEED_BYTES
                && let Some(row) = feed.missing.pop()
            {
                if let Err(refusal) = packet(database, id, row, &mut packets)? {
                    return Ok(Err(refusal));
                }
            }
            Ok(Ok((packets.freeze(), feed)))
        },
        move |node, fed| {
            let fed = match fed {
                Ok(fed) => fed,
                Err(error) => return node.links.read_failed(connection, &error),
            };
            let code = ErrorCode::ReplicationError;
            let is_fed = |(_, feed): &Fed<T>| check_feeding(&node.cluster, feed.partition, code);
            match fed.and_then(|fed| is_fed(&fed).map(|()| fed)) {
                Ok((packets, feed)) => {
                    node.links.count().fed_bytes += packets.len() as u64;
                    node.links.send_packet(connection, packets);
                    send_rows(&mut node.links, (connection, id), feed, packet);
                }
                Err(refusal) => node.links.refuse((connection, id), "a replication", &refusal),
            }
        },
    );
}

/// Sums up transactions, for a storage that compares replicas.
pub(super) fn sum_tids(
    links: &mut Links,
    cluster: &Cluster,
    from: (ConnectionId, u32),
    message: &AskCheckTIDRange,
) -> Handled {
    let AskCheckTIDRange { partition, length, min_tid, max_tid } = *message;
    check_feeding(cluster, partition, ErrorCode::CheckingError)?;
    links.read_for(
        from,
        move |database| {
            let tids = database.tids(partition, (min_tid, max_tid), length)?;
            Ok(TidSum::of(&tids))
        },
        move |node, sum| {
            check_feeding(&node.cluster, partition, ErrorCode::CheckingError)?;
            let (count, checksum, max_tid) = (sum.count, sum.checksum, sum.last);
            node.links.answer(from, AnswerCheckTIDRange { count, checksum, max_tid });
            Ok(())
        },
    );
    Ok(())
}

/// Sums up records, for a storage that compares replicas.
pub(crate) fn sum_serials(
    links: &mut Links,
    cluster: &Cluster,
    from: (ConnectionId, u32),
    message: &AskCheckSerialRange,
) -> Handled {
    let AskCheckSerialRange { partition, length, min_tid, max_tid, min_oid } = *message;
    check_feeding(cluster, partition, ErrorCode::CheckingError)?;
    links.read_for(
        from,
        move |database| {
            let range = (min_tid, max_tid);
            Ok(SerialSum::of(&database.records(partition, range, min_oid, length)?))
        },
        move |node, sum| {
            check_feeding(&node.cluster, partition, ErrorCode::CheckingError)?;
            let answer = AnswerCheckSerialRange {
                count: sum.count,
                tid_checksum: sum.tid_checksum,
                max_tid: sum.last_tid,
                oid_checksum: sum.oid_checksum,
                max_oid: sum.last_oid,
            };
            node.links.answer(from, answer);
            Ok(())
        },
    );
    Ok(())
}

/// Appends the packet of a transaction. One that was dropped meanwhile is left out.
fn transaction_packet(
    database: &dyn Reads,
    id: u32,
    tid: Tid,
    out: &mut BytesMut,
) -> ReadResult<Handled> {
    let Some(found) = database.transaction(tid)? else { return Ok(Ok(())) };
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
    Ok(encode(id, message, out).map_err(|error| too_long(&format!("transaction {tid}"), &error)))
}

/// Appends the packet of a record. One that was packed meanwhile is left out.
fn record_packet(
    database: &dyn Reads,
    id: u32,
    (tid, oid): (Tid, Oid),
    out: &mut BytesMut,
) -> ReadResult<Handled> {
    let Some(record) = database.record(tid, oid)? else { return Ok(Ok(())) };
    let Record { serial, data, data_serial, .. } = record;
    let message = AddObject {
        oid,
        serial,
        compression: data.as_ref().map_or(0, |data| data.compression),
        checksum: data.as_ref().map_or(Checksum::ZERO, |data| data.checksum),
        data: data.as_ref().map_or(&[], |data| &data.bytes),
        data_serial,
    };
    let what = || format!("object {oid}, revision {serial}");
    Ok(encode(id, message, out).map_err(|error| too_long(&what(), &error)))
}

/// A row that no message carries. Such rows were written by a program that was no node.
fn too_long(what: &str, error: &TooLong) -> Refusal {
    Refusal::answer(ErrorCode::ReplicationError, format!("{what}: {error}"))
}
