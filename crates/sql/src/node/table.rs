//! The partition table in tables `pt` and `config`, and how far the cells of a node are.

use zodium_neo::messages::Cell;
use zodium_neo::{CellState, NodeId, Partition};
use zodium_neo_storage::{CellProgress, LastIds, TableChange};
use zodium_types::Tid;

use super::rows;
use super::view::View;
use crate::cluster::setting;
use crate::driver::{self, Connection, Optional, params};
use crate::partitions::{id, number};
use crate::{revisions, transactions};

/// `pt.tid` and `pt.pack` of a cell.
type CellRow = (i64, Option<i64>);

/// Saves a partition table, or some of its rows.
pub(super) fn save(view: &View<'_>, change: &TableChange) -> driver::Result<()> {
    let connection = view.connection;
    let all = (0..change.table.partitions()).map(Partition);
    let changed = match &change.changed {
        Some(changed) => changed.clone(),
        None => all.collect(),
    };
    let own = |partition: Partition| own_row(connection, partition, change.node);
    let before: Vec<_> = changed
        .iter()
        .map(|partition| Ok((*partition, own(*partition)?)))
        .collect::<driver::Result<_>>()?;
    if change.changed.is_none() {
        connection.execute("DELETE FROM pt", [])?;
    }
    let insert = "INSERT INTO pt (partition, nid, tid, pack) VALUES (?1, ?2, ?3, ?4)";
    let mut insert = connection.prepare_cached(insert)?;
    let mut delete = connection.prepare_cached("DELETE FROM pt WHERE partition = ?1")?;
    for (partition, before) in before {
        delete.execute([partition.0])?;
        for cell in change.table.row(partition) {
            let (tid, pack) = match cell.node == change.node {
                true => own_cell(connection, change, partition, *cell, before)?,
                false => (-i64::from(cell.state.number()), None),
            };
            insert.execute(params![partition.0, cell.node.value(), tid, pack])?;
        }
    }
    Ok(())
}

fn own_row(
    connection: &Connection,
    partition: Partition,
    node: NodeId,
) -> driver::Result<Option<CellRow>> {
    let find = "SELECT tid, pack FROM pt WHERE partition = ?1 AND nid = ?2";
    let mut find = connection.prepare_cached(find)?;
    let key = params![partition.0, node.value()];
    find.query_row(key, |row| Ok((row.get(0)?, row.get(1)?))).optional()
}

/// The row of a cell of this node. What it has is kept when it becomes out of date.
fn own_cell(
    connection: &Connection,
    change: &TableChange,
    partition: Partition,
    cell: Cell,
    before: Option<CellRow>,
) -> driver::Result<CellRow> {
    let new_pack = if cell.state.is_readable() { 0 } else { number(change.last_pack.0) };
    let pack = before.and_then(|(_, pack)| pack).or(Some(new_pack));
    if cell.state != CellState::OutOfDate {
        return Ok((-i64::from(cell.state.number()), pack));
    }
    let tid = match before {
        None => 0,
        Some((tid, _)) if tid >= 0 => tid,
        Some((state, _)) => {
            let state = u8::try_from(-state).ok().and_then(CellState::from_number);
            // A node that was killed gets the table before it knows that it is a backup.
            let backup_tid = change.backup_tid.or(pending(connection)?.0);
            match (state.is_some_and(CellState::is_readable), backup_tid) {
                (false, _) => 0,
                (true, Some(tid)) => number(tid.0),
                (true, None) => number(last_tid(connection, partition)?.unwrap_or(Tid::ZERO).0),
            }
        }
    };
    Ok((tid, pack))
}

/// The last transaction that wrote to a partition.
fn last_tid(connection: &Connection, partition: Partition) -> driver::Result<Option<Tid>> {
    let last = transactions::last_tid(connection, partition.0)?;
    Ok(last.max(revisions::last_tid(connection, partition.0)?))
}

/// Gives the cells of this node another id.
pub(super) fn move_cells(connection: &Connection, node: NodeId) -> driver::Result<()> {
    let Some(before) = setting(connection, "nid")? else { return Ok(()) };
    let before: i64 = before.parse().unwrap_or_default();
    let key = params![node.value(), before];
    if i64::from(node.value()) != before {
        // Cells that are said to be there already. MariaDB reads no table that it deletes from.
        let delete = "DELETE FROM pt WHERE nid = ?1 AND partition IN \
             (SELECT partition FROM (SELECT partition FROM pt WHERE nid = ?2) AS own)";
        connection.execute(delete, key)?;
    }
    connection.execute("UPDATE pt SET nid = ?1 WHERE nid = ?2", key).map(|_| ())
}

/// The state of a backup, and an order to truncate.
pub(super) fn pending(connection: &Connection) -> driver::Result<(Option<Tid>, Option<Tid>)> {
    let tid = |name: &str| -> driver::Result<Option<Tid>> {
        let text = setting(connection, name)?;
        Ok(text.and_then(|text| u64::from_str_radix(&text, 16).ok()).map(Tid))
    };
    Ok((tid("backup_tid")?, tid("truncate_tid")?))
}

/// The last and first ids of partitions.
pub(super) fn last_ids(
    connection: &Connection,
    partitions: &[Partition],
) -> driver::Result<LastIds> {
    let mut last = LastIds::default();
    let first = "SELECT MIN(tid) FROM trans WHERE partition = ?1";
    let mut first = connection.prepare_cached(first)?;
    for partition in partitions {
        last.tid = last.tid.max(last_tid(connection, *partition)?);
        last.oid = last.oid.max(revisions::last_oid(connection, partition.0)?);
        let found = first.query_row([partition.0], |row| rows::tid_or_null(row, 0))?;
        last.first_tid = [last.first_tid, found].into_iter().flatten().min();
    }
    Ok(last)
}

/// The cells of a node, and how far each is.
pub(super) fn cells(connection: &Connection, node: NodeId) -> driver::Result<Vec<CellProgress>> {
    let find = "SELECT partition, tid, pack FROM pt WHERE nid = ?1 ORDER BY partition";
    let mut find = connection.prepare_cached(find)?;
    let mut found = find.query([node.value()])?;
    let mut cells = Vec::new();
    while let Some(row) = found.next()? {
        let (partition, tid): (u32, i64) = (row.get(0)?, row.get(1)?);
        cells.push(CellProgress {
            partition: Partition(partition),
            replicated: (tid >= 0).then(|| Tid(id(tid))),
            last_transaction: transactions::last_tid(connection, partition)?,
            last_record: revisions::last_tid(connection, partition)?,
            packed: rows::tid_or_null(&row, 2)?.unwrap_or(Tid::ZERO),
        });
    }
    Ok(cells)
}

/// Notes decisions on orders to pack.
pub(super) fn sign_packs(
    connection: &Connection,
    approved: &[Tid],
    rejected: &[Tid],
) -> driver::Result<()> {
    let mut set = connection.prepare_cached("UPDATE pack SET approved = ?2 WHERE tid = ?1")?;
    for (tids, approves) in [(approved, true), (rejected, false)] {
        for tid in tids {
            set.execute(params![number(tid.0), approves])?;
        }
    }
    Ok(())
}
