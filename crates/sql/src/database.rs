//! A partitioned NEO database: one writing connection, some reading ones, and the lock.
//!
//! Key decision: a change is a closure over a [`Writer`], and one transaction of SQLite. How many
//! votes or commits are synced together is the caller's choice.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use tracing::info;
use zodium_types::Tid;

use crate::cluster::{Cluster, NewCluster};
use crate::connection::{self, Purpose};
use crate::creation::ensure_database;
use crate::data::{DataTable, prune, prune_deferred};
use crate::driver::{self, Connection};
use crate::held::Held;
use crate::locking::Lock;
use crate::partitions::Partitions;
use crate::place::{Location, Place};
use crate::pool::Pool;
use crate::schema::{self, Content};
use crate::{SqlError, Writer, votes};

/// How long a change waits for another program that has the database locked.
const BUSY_MAX: Duration = Duration::from_secs(30);

/// How to open a database.
#[derive(Clone, Debug)]
pub struct OpenDatabase<'a> {
    /// Where it is.
    pub location: &'a Location,
    /// What a new database is told; `None`: it must be there.
    pub create: Option<&'a NewCluster>,
    /// The name that its cluster must have.
    pub cluster: Option<&'a str>,
    /// Change nothing.
    pub read_only: bool,
}

impl OpenDatabase<'_> {
    /// Refuses a database that is not to be served. Nothing in it is changed before.
    fn check(&self, place: &Place, found: &Cluster) -> Result<(), SqlError> {
        let path = || place.path().to_owned();
        let name = found.name.as_deref().unwrap_or_default();
        if let Some(wanted) = self.cluster.filter(|wanted| *wanted != name) {
            let (found, wanted) = (name.to_owned(), wanted.to_owned());
            return Err(SqlError::OtherCluster { path: path(), found, wanted });
        }
        match found.missing() {
            Some(reason) => Err(SqlError::NotWhole { path: path(), reason }),
            None => Ok(()),
        }
    }
}

/// An open database.
#[derive(Debug)]
pub struct Database {
    pub(crate) place: Place,
    pub(crate) pool: Pool,
    pub(crate) held: Arc<Held>,
    partitions: Partitions,
    pub(crate) node: i64,
    /// `None` when it was opened for reading only.
    writing: Option<Mutex<Writing>>,
    lock: Lock,
}

/// What only one change at a time may use.
#[derive(Debug)]
struct Writing {
    connection: Connection,
    data: DataTable,
    /// Rows of `data` that were held when they would have gone.
    spared: FxHashSet<i64>,
}

impl Database {
    /// Opens a database, creates or migrates it, and ends the transactions that a crash left
    /// unfinished: those that were locked are committed, the others are aborted.
    ///
    /// # Errors
    /// When it is no database of NEO's, not a whole one, in use, or damaged.
    pub fn open(options: &OpenDatabase<'_>) -> Result<Database, SqlError> {
        let place = Place::new(options.location);
        let path = || place.path().to_owned();
        if !ensure_database(&place, options.create.is_some() && !options.read_only)? {
            return Err(SqlError::Missing { path: path() });
        }
        let mut lock = Lock::take(&place, options.read_only)?;
        let purpose = if options.read_only { Purpose::ReadOnly } else { Purpose::Write };
        let mut connection = connection::open(&place, purpose)?;
        let content = schema::content(&connection, &place)?;
        if options.read_only {
            schema::check_current(content, &place)?;
        } else {
            if content == Content::Nothing && options.create.is_none() {
                return Err(SqlError::Missing { path: path() });
            }
            let older = schema::cluster(&connection, content);
            if let Some(cluster) = older.filter(|cluster| cluster.partitions().is_some()) {
                options.check(&place, &cluster)?;
            }
            connection::make_durable(&connection).map_err(place.cannot("open for writing"))?;
            let is_unique = options.create.is_some_and(|new| new.keep_equal_data_once);
            schema::set_up(&mut connection, &place, content, is_unique)?;
            connection::take_over(&connection).map_err(place.cannot("take the database over"))?;
            claim(&connection, options.create).map_err(place.cannot("name the cluster"))?;
            lock.note_log()?;
        }
        if !options.read_only {
            prune_deferred(&connection).map_err(place.cannot("delete unused data"))?;
        }
        let cluster = Cluster::read(&connection).map_err(place.cannot("read pt and config"))?;
        options.check(&place, &cluster)?;
        let partitions = cluster.partitions().unwrap_or(Partitions::new(1));
        let data = DataTable::open(&connection, partitions.count())
            .map_err(place.cannot("read the ids of data"))?;
        let pool = match options.read_only {
            true => Pool::new(place.clone(), Purpose::ReadOnly, &lock),
            false => Pool::new(place.clone(), Purpose::Read, &lock),
        };
        let writing = (!options.read_only)
            .then(|| Mutex::new(Writing { connection, data, spared: FxHashSet::default() }));
        let (node, held) = (cluster.node.unwrap_or_default(), Arc::default());
        let database = Database { place, pool, held, partitions, node, writing, lock };
        if !options.read_only {
            database.end_unfinished()?;
        }
        Ok(database)
    }

    /// Its file, or the address on its server.
    pub fn path(&self) -> &Path {
        self.place.path()
    }

    /// Its partitions.
    pub fn partitions(&self) -> Partitions {
        self.partitions
    }

    /// Whether it was opened for reading only.
    pub fn is_read_only(&self) -> bool {
        self.writing.is_none()
    }

    /// What it knows of its cluster.
    pub fn cluster(&self) -> Result<Cluster, SqlError> {
        self.pool.with("read pt and config", Cluster::read)
    }

    /// The voted transactions, with the final tid of those that are locked.
    pub fn unfinished(&self) -> Result<Vec<(Tid, Option<Tid>)>, SqlError> {
        let found = self.pool.with("read unfinished transactions", votes::unfinished)?;
        Ok(found.into_iter().collect())
    }

    /// Makes a change: all of it, or nothing. `bytes` is about what it writes.
    ///
    /// Blocking; waits for the change before it.
    pub fn write<T>(
        &self,
        bytes: u64,
        change: impl FnOnce(&mut Writer<'_>) -> Result<T, SqlError>,
    ) -> Result<T, SqlError> {
        self.write_and_prune(bytes, change).map(|(result, _)| result)
    }

    /// As [`Database::write`]; also the bytes of the data that nothing refers to any more.
    pub(crate) fn write_and_prune<T>(
        &self,
        bytes: u64,
        change: impl FnOnce(&mut Writer<'_>) -> Result<T, SqlError>,
    ) -> Result<(T, u64), SqlError> {
        let Some(writing) = &self.writing else {
            return Err(SqlError::ReadOnly { path: self.path().to_owned() });
        };
        let mut writing = writing.lock();
        let Writing { connection, data, spared } = &mut *writing;
        let connection = &*connection;
        let failed = |source| self.place.error("write a transaction", bytes, source);
        // Until the end: a row that is held meanwhile would still be found by the holder.
        let mut held = None;
        connection::begin(connection, &self.place, BUSY_MAX)?;
        connection::in_begun_transaction(connection, failed, || {
            let freed = FxHashSet::default();
            let mut writer = Writer { connection, database: self, data, freed, held: None };
            let result = change(&mut writer)?;
            self.lock.check_files()?;
            let mut freed = std::mem::take(&mut writer.freed);
            if freed.is_empty() {
                return Ok((result, 0));
            }
            let held = held.insert(writer.held.take().unwrap_or_else(|| self.held.rows()));
            freed.extend(spared.iter());
            let pruned = prune(connection, &freed, |id| held.contains_key(&id)).map_err(failed)?;
            freed.retain(|id| held.contains_key(id));
            *spared = freed;
            Ok((result, pruned))
        })
    }

    /// The bytes of the log; 0 on a server.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.lock.log_bytes()
    }

    /// Moves the log into the database file, which is whole without it then. Waits for no reader.
    ///
    /// # Errors
    /// [`SqlError::LogSetAside`] when the file has lost its name.
    pub(crate) fn close(&self) -> Result<(), SqlError> {
        let Some(writing) = &self.writing else { return Ok(()) };
        let writing = writing.lock();
        let moved = connection::checkpoint(&writing.connection, &self.place);
        self.lock.set_log_aside()?;
        moved
    }

    fn end_unfinished(&self) -> Result<(), SqlError> {
        let unfinished = self.unfinished()?;
        if unfinished.is_empty() {
            return Ok(());
        }
        self.write(0, |writer| {
            for (ttid, tid) in &unfinished {
                match tid {
                    Some(tid) => writer.unlock(*ttid, *tid)?,
                    None => writer.abort(*ttid)?,
                }
            }
            Ok(())
        })?;
        let committed = unfinished.iter().filter(|(_, tid)| tid.is_some()).count();
        let aborted = unfinished.len() - committed;
        info!(database = %self.path().display(), committed, aborted,
            "ended the transactions that were left unfinished");
        Ok(())
    }
}

/// Gives a database without a cluster one.
fn claim(connection: &Connection, new: Option<&NewCluster>) -> driver::Result<()> {
    let Some(new) = new else { return Ok(()) };
    let cluster = Cluster::read(connection)?;
    let is_new = cluster.cells.is_empty() && cluster.table_id.is_none();
    if is_new && !has_objects(connection)? {
        connection::in_transaction(connection, |error| error, || Cluster::create(connection, new))?;
    }
    Ok(())
}

fn has_objects(connection: &Connection) -> driver::Result<bool> {
    let find = "SELECT EXISTS (SELECT 1 FROM obj) OR EXISTS (SELECT 1 FROM trans)";
    connection.query_row(find, [], |row| row.get(0))
}
