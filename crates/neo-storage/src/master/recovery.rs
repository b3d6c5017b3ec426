//! The master's questions before the cluster runs, and its orders for the database.
//!
//! All of them go to the database in the order of their arrival, also those that only read: a
//! question after an order sees its effect.

use std::collections::BTreeMap;

use tracing::info;
use zodium_neo::messages::{
    AnswerFinalTID, AnswerLastIDs, AnswerLockedTransactions, AnswerPackOrders,
    AnswerPartitionTable, AnswerRecovery, NotifyPackCompleted, PackOrder,
};
use zodium_neo::{ErrorCode, Map, PartitionTable};
use zodium_types::Tid;

use crate::ConnectionId;
use crate::cluster::Cluster;
use crate::database::PackRow;
use crate::handling::{Handled, Refusal};
use crate::links::Links;

/// Says which partition table the database has, and what is left to be done.
pub(crate) fn recovery_asked(
    links: &mut Links,
    cluster: &Cluster,
    (connection, id): (ConnectionId, u32),
) {
    let table = cluster.table().map(PartitionTable::id);
    links.write(
        |database| database.pending(),
        move |node, (backup_tid, truncate_tid)| {
            node.links.answer((connection, id), AnswerRecovery { table, backup_tid, truncate_tid });
        },
    );
}

/// Sends the partition table.
pub(crate) fn table_asked(
    links: &mut Links,
    cluster: &Cluster,
    (connection, id): (ConnectionId, u32),
) -> Handled {
    let Some(table) = cluster.table() else {
        let text = "this node has no partition table";
        return Err(Refusal::answer(ErrorCode::NotReady, text));
    };
    let answer = AnswerPartitionTable {
        table: table.id(),
        replicas: table.replicas(),
        rows: table.rows().to_vec(),
    };
    links.when_written(move |node| node.links.answer((connection, id), answer));
    Ok(())
}

/// Says which transactions are voted, and which are locked.
pub(crate) fn locked_asked(links: &mut Links, (connection, id): (ConnectionId, u32)) {
    links.write(
        |database| database.unfinished(),
        move |node, mut found: BTreeMap<Tid, Option<Tid>>| {
            for (ttid, tid) in &mut found {
                // A cell of the metadata that lacks data decides nothing: the one that has all
                // data may have lost the transaction before its lock.
                tid.take_if(|_| node.cluster.check_readable_tid(*ttid).is_err());
            }
            let transactions = Map::from_iter(found);
            node.links.answer((connection, id), AnswerLockedTransactions { transactions });
        },
    );
}

/// Says with which tid a transaction was committed.
pub(crate) fn final_tid_asked(links: &mut Links, (connection, id): (ConnectionId, u32), ttid: Tid) {
    links.write(
        move |database| database.reads().final_tid(ttid),
        move |node, tid| node.links.answer((connection, id), AnswerFinalTID { tid }),
    );
}

/// Commits a transaction that was voted, and perhaps locked, before a crash.
pub(crate) fn validate(links: &mut Links, ttid: Tid, tid: Tid) {
    info!(%ttid, %tid, "committing a transaction that was left unfinished");
    links.write(
        move |database| {
            database.lock(ttid, tid, true)?;
            database.unlock(ttid, tid)
        },
        |_, ()| {},
    );
}

/// Says what the database has, after a truncation that was ordered.
pub(crate) fn last_ids_asked(
    links: &mut Links,
    cluster: &Cluster,
    (connection, id): (ConnectionId, u32),
) {
    let Some(own) = cluster.id() else { return };
    let (readable, packs) = (cluster.readable(), cluster.settings().packs);
    links.write(
        move |database| {
            if let (_, Some(tid)) = database.pending()? {
                info!(after = %tid, "truncating the database");
                database.truncate(own, tid)?;
            }
            let cells = if packs { database.cells(own)? } else { Vec::new() };
            let packed = cells.iter().map(|cell| cell.packed).min();
            Ok((database.last_ids(&readable)?, packed))
        },
        move |node, (last, packed)| {
            if let Some(id) = packed {
                node.packing.note_completed(id);
                node.links.notify(connection, NotifyPackCompleted { id });
            }
            let first_tid = last.first_tid.unwrap_or(Tid::MAX);
            let answer = AnswerLastIDs { last_tid: last.tid, last_oid: last.oid, first_tid };
            node.links.answer((connection, id), answer);
        },
    );
}

/// Tells the orders to pack from a tid on.
pub(crate) fn pack_orders_asked(
    links: &mut Links,
    cluster: &Cluster,
    (connection, id): (ConnectionId, u32),
    from: Tid,
) {
    let readable = cluster.readable();
    links.write(
        move |database| database.reads().pack_orders(from, &readable),
        move |node, rows| {
            let orders = rows.into_iter().map(order_of).collect();
            node.links.answer((connection, id), AnswerPackOrders { orders });
        },
    );
}

/// Saves an order to truncate the database.
pub(crate) fn truncation_ordered(links: &mut Links, tid: Tid) {
    links.write(
        move |database| {
            database.set_backup_tid(None)?;
            database.set_truncate_tid(Some(tid))
        },
        |_, ()| {},
    );
}

/// Deletes the data that no record refers to.
pub(crate) fn repair(links: &mut Links, dry_run: bool) {
    links.write(
        move |database| database.prune_orphans(dry_run),
        move |_, count| info!(count, dry_run, "looked for data that no record refers to"),
    );
}

/// An order as the protocol says it.
fn order_of(row: PackRow) -> PackOrder {
    let PackRow { id, approved, oids, until } = row;
    let partial = oids.is_some();
    PackOrder { id, approved, partial, oids: oids.map(zodium_neo::messages::OidList), tid: until }
}
