//! The database of a NEO storage node: the tables of one node of a cluster, with any cells.
//!
//! It implements the traits that the node asks for, [`Reads`] and [`Writes`]. A batch of changes is
//! one transaction of SQLite; a durable one is synced, and everything before it with it.
//!
//! Key decision: which cells are readable, and what is locked, only the node knows. The functions
//! here take partitions and tids, and look at rows.

mod opening;
mod reading;
mod replication;
mod rows;
mod spool;
mod table;
mod trimming;
mod view;
mod writing;

use std::cell::OnceCell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use zodium_neo_storage::{
    Completion, DatabaseError, ReadJob, ReadResult, Reads, Store, WriteJob, Writes,
};

pub use self::opening::NodeOptions;
use self::view::View;
use self::writing::NodeWriter;
use crate::SqlError;
use crate::connection;
use crate::data::{DataTable, prune};
use crate::driver::Connection;
use crate::locking::Lock;
use crate::obstacle::obstacle;
use crate::partitions::Partitions;
use crate::place::Place;
use crate::pool::Pool;

/// Free space that [`Writes::has_room`] asks for by default: for the log of SQLite, and the data of
/// ten clients with transactions as large as a node keeps in memory.
pub const ROOM_BYTES: u64 = 64 << 20;

/// An open database of a NEO storage node.
#[derive(Debug)]
pub struct NodeDatabase {
    place: Place,
    pool: Pool,
    /// The connection for single rows.
    rows: Pool,
    /// The number of partitions; 0 while the database has no table.
    partitions: AtomicU32,
    writing: Mutex<Writing>,
    room_bytes: u64,
    lock: Lock,
}

#[derive(Debug)]
struct Writing {
    connection: Connection,
    data: DataTable,
    /// Whether commits of the connection are synced now.
    is_durable: bool,
}

impl NodeDatabase {
    /// Runs reads of committed rows. Blocking.
    pub fn read<T>(&self, read: impl FnOnce(&dyn Reads) -> T) -> ReadResult<T> {
        self.read_with(&self.pool, read)
    }

    fn read_with<T>(&self, pool: &Pool, read: impl FnOnce(&dyn Reads) -> T) -> ReadResult<T> {
        let partitions = self.partitions();
        let read = |connection: &Connection| {
            Ok(read(&View { connection, place: &self.place, partitions }))
        };
        pool.with("read", read).map_err(failure)
    }

    /// Runs reads in one transaction, which takes less time than one for each.
    fn read_at_once<T>(&self, pool: &Pool, read: impl FnOnce(&dyn Reads) -> T) -> ReadResult<T> {
        let partitions = self.partitions();
        let read = |connection: &Connection| {
            connection.together(|| read(&View { connection, place: &self.place, partitions }))
        };
        pool.with("read", read).map_err(failure)
    }

    /// Makes changes: all of them, or none. Blocking; waits for the changes before, and for other
    /// programs that have the database locked.
    ///
    /// Changes that are not durable come with the next durable ones, or with a checkpoint. Their
    /// order is kept.
    pub fn write<T>(
        &self,
        is_durable: bool,
        change: impl FnOnce(&mut dyn Writes) -> ReadResult<T>,
    ) -> ReadResult<T> {
        let mut writing = self.writing.lock();
        let failed = |source| failure(self.place.error("write", 0, source));
        if writing.is_durable != is_durable {
            writing.connection.set_durable(is_durable).map_err(failed)?;
            writing.is_durable = is_durable;
        }
        let Writing { connection, data, .. } = &mut *writing;
        let connection = &*connection;
        // A node that fails ends, and without a replica its cluster stops.
        connection::begin(connection, &self.place, Duration::MAX).map_err(failure)?;
        connection::in_begun_transaction(connection, failed, || {
            let mut writer = NodeWriter {
                view: View { connection, place: &self.place, partitions: self.partitions() },
                data,
                freed: FxHashSet::default(),
                partitions: &self.partitions,
                room_bytes: self.room_bytes,
                room: OnceCell::new(),
            };
            let result = change(&mut writer)?;
            self.lock.check_files().map_err(failure)?;
            let freed = std::mem::take(&mut writer.freed);
            if !freed.is_empty() {
                prune(connection, &freed, |_| false).map_err(failed)?;
            }
            Ok(result)
        })
    }

    /// Moves the log into the database file, at the end. Waits for no reader.
    ///
    /// # Errors
    /// [`SqlError::LogSetAside`] when the file has lost its name.
    pub fn close(&self) -> Result<(), SqlError> {
        if self.is_on_server() {
            // A server that hangs is not waited for.
            return Ok(());
        }
        let writing = self.writing.lock();
        let moved = connection::checkpoint(&writing.connection, &self.place);
        self.lock.set_log_aside()?;
        moved
    }

    /// Why the server of the database cannot be reached, if so.
    pub fn obstacle(&self) -> Option<String> {
        obstacle(&self.place)
    }

    fn partitions(&self) -> Partitions {
        // Set by the only writer before anything is in a partition.
        Partitions::new(self.partitions.load(Ordering::Relaxed))
    }
}

/// The error of a call.
fn failure(error: SqlError) -> DatabaseError {
    DatabaseError(error.into())
}

impl Store for NodeDatabase {
    fn read(&self, job: ReadJob) -> ReadResult<Completion> {
        match job.is_short() {
            true => NodeDatabase::read(self, |database| job.run(database)),
            false => self.read_at_once(&self.pool, |database| job.run(database)),
        }
    }

    fn is_on_server(&self) -> bool {
        self.place.server().is_some()
    }

    fn read_together(&self, count: usize, run: &mut dyn FnMut(&dyn Reads)) -> ReadResult<()> {
        match count {
            0 | 1 => self.read_with(&self.rows, run),
            _ => self.read_at_once(&self.rows, run),
        }
    }

    fn write(&self, is_durable: bool, jobs: Vec<WriteJob>) -> ReadResult<Vec<Completion>> {
        NodeDatabase::write(self, is_durable, |database| {
            jobs.into_iter().map(|job| job.run(database)).collect()
        })
    }
}
