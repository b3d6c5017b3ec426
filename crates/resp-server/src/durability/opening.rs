//! Opening the log: its records are read and executed, then changes are kept in it.

use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use zodium_disk::Disk;
use zodium_keylog::{Log, OpenError};

use super::keeper::{Keeper, sync_named};
use super::replay::Replay;
use crate::Server;

/// Where and how a server keeps its keys.
#[derive(Clone, Debug)]
pub struct KeeperOptions {
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// The file.
    pub path: PathBuf,
    /// `always`, `everysec` or `no`.
    pub sync: String,
}

/// What was read at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadReport {
    /// Number of keys in all databases.
    pub keys: usize,
    /// Bytes of the log.
    pub bytes: u64,
    /// How long it took.
    pub time: Duration,
}

/// Reads the log of a server, and keeps its changes in it from now on.
pub(crate) fn open(server: &Arc<Server>, options: &KeeperOptions) -> Result<LoadReport, OpenError> {
    let began = Instant::now();
    let sync = sync_named(&options.sync).unwrap_or_default();
    let replay = Replay::new(server);
    let log = thread::scope(|scope| {
        // While the records of a chunk are executed, the next one is read.
        let (chunks, read) = mpsc::sync_channel(1);
        let opening = scope.spawn(move || {
            Log::open(&options.disk, &options.path, sync, |chunk| {
                // An error would be a panic of the other thread, which ends this one too.
                chunks.send(chunk).ok();
                Ok::<(), OpenError>(())
            })
        });
        read.iter().for_each(|chunk| replay.execute(&chunk));
        opening.join().unwrap_or_else(|panic| resume_unwind(panic))
    })?;
    let (bytes, _) = log.lengths();
    server.settings.keep(&options.path, &options.sync);
    let keeper = Keeper::new(log, server.statistics.workers.len());
    server.log.open(keeper);
    replay.end().complete(server);
    if let Some(keeper) = server.log.keeper() {
        let server = Arc::downgrade(server);
        keeper.log.on_progress(move || {
            if let Some(server) = server.upgrade() {
                server.log.tell_progress(&server.clients);
            }
        });
    }
    let totals = (0..zodium_keyspace::DATABASES).map(|number| server.keyspace.totals(number));
    let keys = totals.map(|totals| totals.keys).sum();
    Ok(LoadReport { keys, bytes, time: began.elapsed() })
}
