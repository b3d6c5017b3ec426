//! Reads of history and metadata, and lists of tids and oids.

use zodium_neo::messages::{
    AnswerOIDsFrom, AnswerObjectHistory, AnswerTIDs, AnswerTIDsFrom, AnswerTransactionInformation,
    AskTIDs,
};
use zodium_neo::{ErrorCode, Partition};
use zodium_types::{Oid, Tid};

use super::Read;
use crate::ConnectionId;
use crate::cluster::Cluster;
use crate::commits::Commits;
use crate::database::TransactionRecord;
use crate::handling::{Handled, Refusal};
use crate::links::Links;

/// Serials and lengths of the records of an object.
pub(super) fn history(
    links: &mut Links,
    cluster: &Cluster,
    from: (ConnectionId, u32),
    (oid, skip, count): (Oid, u64, u64),
) -> Handled {
    cluster.check_readable_oid(oid)?;
    links.read_for(
        from,
        move |database| database.history(oid, skip, count),
        move |node, records| {
            node.cluster.check_readable_oid(oid)?;
            if records.is_empty() {
                return Err(Refusal::answer(ErrorCode::OidNotFound, oid.to_string()));
            }
            node.links.answer(from, AnswerObjectHistory { oid, records });
            Ok(())
        },
    );
    Ok(())
}

/// The metadata of a transaction.
pub(super) fn transaction(
    links: &mut Links,
    cluster: &Cluster,
    from: (ConnectionId, u32),
    tid: Tid,
) -> Handled {
    let missing = move || Refusal::answer(ErrorCode::TidNotFound, format!("no {tid}"));
    if cluster.backup_tid().is_some_and(|last| tid > last) {
        return Err(missing());
    }
    cluster.check_readable_tid(tid)?;
    links.read_for(
        from,
        move |database| database.transaction(tid),
        move |node, found| {
            node.cluster.check_readable_tid(tid)?;
            let found: TransactionRecord = found.ok_or_else(missing)?;
            let answer = AnswerTransactionInformation {
                tid,
                user: &found.metadata.user,
                description: &found.metadata.description,
                extension: &found.metadata.extension,
                packed: found.is_packed,
                oids: found.oids,
            };
            node.links.answer(from, answer);
            Ok(())
        },
    );
    Ok(())
}

/// The read of the newest tids.
pub(super) fn newest(
    cluster: &Cluster,
    commits: &Commits,
    message: &AskTIDs,
) -> Result<Read, Refusal> {
    let (skip, count) = range(message.first, message.end)?;
    let readable = cluster.readable();
    let partitions = match message.partition {
        Partition::ALL_READABLE => readable,
        one if readable.contains(&one) => vec![one],
        _ => return Err(Refusal::not_readable()),
    };
    let locked_until = commits.last_locked();
    Ok(Read::Newest { partitions, skip, count, locked_until })
}

/// Tids of partitions, newest first.
pub(super) fn newest_tids(
    links: &mut Links,
    cluster: &Cluster,
    from: (ConnectionId, u32),
    partitions: Vec<Partition>,
    range: (u64, u64),
) {
    // In the database: an answer with fewer than were asked for is the end of the list.
    let last = cluster.backup_tid().unwrap_or(Tid::MAX);
    let asked = partitions.clone();
    links.read_for(
        from,
        move |database| database.newest_tids(&partitions, last, range),
        move |node, tids| {
            asked.iter().try_for_each(|partition| node.cluster.check_readable(*partition))?;
            node.links.answer(from, AnswerTIDs { tids });
            Ok(())
        },
    );
}

/// Tids of a partition, oldest first.
pub(super) fn tids_from(
    links: &mut Links,
    cluster: &Cluster,
    from: (ConnectionId, u32),
    partition: Partition,
    (min, max, count): (Tid, Tid, u32),
) -> Handled {
    cluster.check_readable(partition)?;
    links.read_for(
        from,
        move |database| database.tids(partition, (min, max), count),
        move |node, tids| {
            node.cluster.check_readable(partition)?;
            node.links.answer(from, AnswerTIDsFrom { tids });
            Ok(())
        },
    );
    Ok(())
}

/// Objects of a partition, and where to go on.
pub(super) fn oids_from(
    links: &mut Links,
    cluster: &Cluster,
    from: (ConnectionId, u32),
    partition: Partition,
    (first, tid, count): (Oid, Tid, u32),
) -> Handled {
    cluster.check_readable(partition)?;
    links.read_for(
        from,
        move |database| database.oids(partition, first, tid, count),
        move |node, (next_oid, oids)| {
            node.cluster.check_readable(partition)?;
            node.links.answer(from, AnswerOIDsFrom { next_oid, oids });
            Ok(())
        },
    );
    Ok(())
}

/// How many to skip, and how many to give.
pub(super) fn range(first: i64, end: i64) -> Result<(u64, u64), Refusal> {
    match (u64::try_from(first), u64::try_from(end)) {
        (Ok(first), Ok(end)) if first < end => Ok((first, end - first)),
        _ => Err(Refusal::protocol("a range that is empty or negative")),
    }
}
