//! Deletes what is after a transaction: the administrator's wish, or what a commit has left that
//! was reported as failed.

use rustc_hash::FxHashSet;
use zodium_types::Tid;

use crate::data::free;
use crate::driver::{self, Connection, params};
use crate::partitions::number;

/// Deletes what is after a transaction, in the partitions of a node.
pub(crate) fn truncate(
    connection: &Connection,
    node: i64,
    after: Tid,
    freed: &mut FxHashSet<i64>,
) -> driver::Result<()> {
    let own = "partition IN (SELECT partition FROM pt WHERE nid = ?1)";
    let key = params![node, number(after.0)];
    let find = format!("SELECT DISTINCT data_id FROM obj WHERE {own} AND tid > ?2");
    free(connection, &find, key, freed)?;
    connection.execute(&format!("DELETE FROM obj WHERE {own} AND tid > ?2"), key)?;
    let orders =
        format!("DELETE FROM pack WHERE tid IN (SELECT tid FROM trans WHERE {own} AND tid > ?2)");
    connection.execute(&orders, key)?;
    connection.execute(&format!("DELETE FROM trans WHERE {own} AND tid > ?2"), key)?;
    let cells = "UPDATE pt SET tid = ?2 WHERE nid = ?1 AND tid > ?2";
    connection.execute(cells, key).map(|_| ())
}
