//! Opening the log: its records are read and executed, then changes are kept in it.

use std::convert::Infallible;
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

/// Reads the log of a server, and keeps its changes in it from now on. A log with something that
/// this program does not know stays as it is: the next compaction would leave that out.
pub(crate) fn open(server: &Arc<Server>, options: &KeeperOptions) -> Result<LoadReport, OpenError> {
    let began = Instant::now();
    let sync = sync_named(&options.sync).unwrap_or_default();
    let replay = Replay::new(server);
    server.settings.lift_bulk_limit(true);
    let log = thread::scope(|scope| {
        // While the records of a chunk are executed, the next one is read.
        let (chunks, read) = mpsc::sync_channel(1);
        let (end, ended) = mpsc::sync_channel::<Infallible>(0);
        let replay = &replay;
        let opening = scope.spawn(move || {
            let mut chunks = Some(chunks);
            Log::open(&options.disk, &options.path, sync, |chunk| {
                // Errors are those of `check`, or a panic of the other thread, which ends this too.
                match (chunk, &chunks) {
                    (Some(chunk), Some(chunks)) => drop(chunks.send(chunk)),
                    _ => {
                        chunks = None;
                        ended.recv().ok();
                    }
                }
                replay.check(&options.path)
            })
        });
        read.into_iter().take_while(|_| !replay.is_refused()).for_each(|it| replay.execute(&it));
        drop(end);
        opening.join().unwrap_or_else(|panic| resume_unwind(panic))
    })?;
    let (bytes, _) = log.lengths();
    server.settings.keep(&options.path, &options.sync);
    let keeper = Keeper::new(log, server.statistics.workers.len());
    server.log.open(keeper);
    replay.end().complete(server);
    server.settings.lift_bulk_limit(false);
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
