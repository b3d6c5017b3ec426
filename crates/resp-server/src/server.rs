//! What all workers of a server share.
//!
//! Key decision: a part owns its data. Its methods get the other parts that they need as arguments,
//! so the server itself has only the steps in which many parts have their turn.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use zodium_keylog::{CloseError, OpenError};
use zodium_keyspace::Keyspace;

use crate::beside::Beside;
use crate::client::Watch;
use crate::clients::Clients;
use crate::durability::{self, KeeperOptions, KeyLog, LoadReport};
use crate::parked;
use crate::pause::Pause;
use crate::publishing::Publishing;
use crate::scripting::Scripts;
use crate::settings::{Refusal, Settings};
use crate::statistics::Statistics;
use crate::storages::{Commit, Storages};
use crate::stream;
use crate::tracking::Tracking;
use crate::waiting::Waiting;

/// Options of a server.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Number of workers that serve it.
    pub workers: usize,
    /// Password of clients; `None` lets all in.
    pub password: Option<String>,
    /// The TCP port that it is reached at, for `INFO`.
    pub port: u16,
    /// Whether clients may end the process, with `SHUTDOWN`.
    pub may_shut_down: bool,
    /// The configuration file that its settings come from, for error messages.
    pub config_file: Option<PathBuf>,
}

/// The data, the settings and the connections of a server, for all its workers.
pub struct Server {
    pub(crate) keyspace: Keyspace,
    pub(crate) settings: Settings,
    pub(crate) config_file: Option<PathBuf>,
    pub(crate) publishing: Publishing,
    pub(crate) waiting: Waiting,
    pub(crate) beside: Beside,
    pub(crate) tracking: Tracking,
    pub(crate) log: KeyLog,
    pub(crate) pause: Pause,
    pub(crate) clients: Clients,
    pub(crate) statistics: Statistics,
    pub(crate) scripts: Scripts,
    /// What clients have watched that could not lock it.
    pub(crate) left_watches: Mutex<Vec<Watch>>,
}

impl Server {
    /// Creates a server without data.
    #[must_use]
    pub fn new(mut options: Options) -> Server {
        let config_file = options.config_file.take();
        let workers = options.workers.max(1);
        Server {
            keyspace: Keyspace::default(),
            settings: Settings::new(options),
            config_file,
            publishing: Publishing::default(),
            waiting: Waiting::default(),
            beside: Beside::default(),
            tracking: Tracking::default(),
            log: KeyLog::default(),
            pause: Pause::default(),
            clients: Clients::new(workers),
            statistics: Statistics::new(workers),
            scripts: Scripts::default(),
            left_watches: Mutex::default(),
        }
    }

    /// Changes a setting as `CONFIG SET` does, before there are clients. Returns whether there is
    /// one of this name.
    ///
    /// # Errors
    /// The value is none for it; the text says why.
    pub fn configure(&self, name: &str, value: &str) -> Result<bool, String> {
        match self.settings.set(name, value) {
            Ok(()) => self.follow_settings(),
            Err(Refusal::Because(reason)) => return Err(reason),
            Err(_) => return Ok(false),
        }
        Ok(true)
    }

    /// Whether it has a setting of this name, also one that cannot be changed.
    #[must_use]
    pub fn has_setting(&self, name: &str) -> bool {
        !self.settings.fitting(|other| other.eq_ignore_ascii_case(name)).is_empty()
    }

    /// Has all parts follow the settings.
    pub(crate) fn follow_settings(&self) {
        self.publishing.events().apply(&self.settings.text("notify-keyspace-events"));
        self.log.apply_sync(&self.settings.text("appendfsync"));
        self.keyspace.set_uses(self.settings.uses());
    }

    /// Number of open connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.clients.count()
    }

    /// Whether a script keeps its worker, and others that need its locks, for as long as it may.
    #[must_use]
    pub fn is_in_script(&self) -> bool {
        self.scripts.running.is_in_time()
    }

    /// Has scripts end early, before the workers are stopped: a worker first ends its script.
    pub fn stop_scripts(&self) {
        self.scripts.running.stop();
    }

    /// Gives a server the storages that it is beside. They are set once, before there are clients.
    pub fn attach(&self, storages: Arc<dyn Storages>) {
        self.beside.attach(storages);
    }

    /// Takes commits of a storage, in the order of their tids: they are durable and visible to
    /// loads, and no client knows of them yet.
    pub fn committed(&self, storage: usize, commits: &[Commit]) {
        for commit in commits {
            // One after the other: a later commit removes keys that an earlier one has tied.
            let objects = commit.oids.iter().map(|oid| (storage, *oid));
            let cut = self.beside.ties.cut(&self.keyspace, objects);
            self.tracking.invalidate_removed(&self.clients, &cut);
            parked::take_effect(self, storage, commit.tid, commit.number);
        }
        if let Ok(storages) = self.beside.storages() {
            let name = storages.name(storage);
            stream::publish(&self.publishing, &self.clients, (storage, name), commits);
        }
    }

    /// Waits until what has taken effect with commits so far is in the log of keys.
    ///
    /// # Errors
    /// Why the log cannot be written.
    pub fn wait_for_log(&self) -> Result<(), String> {
        self.log.wait_for_all()
    }

    /// Gives a voted transaction the commands that are parked under a token, which take effect with
    /// it. An earlier part of the same transaction, in another storage, has them no longer. False
    /// if another transaction of this storage has them.
    ///
    /// # Errors
    /// There are none, so the transaction must not be committed.
    pub fn claim(&self, storage: usize, number: u64, token: &[u8]) -> Result<bool, String> {
        self.beside.parked.claim((storage, number), token)
    }

    /// Drops the commands of a voted transaction that was not committed.
    pub fn give_up(&self, storage: usize, number: u64) {
        self.beside.parked.give_up(&self.log, (storage, number));
    }

    /// Reads the log of a server, and keeps its changes in it from now on. Called once, before
    /// there are clients, and with the storages that the server is beside.
    ///
    /// # Errors
    /// The log cannot be read, or is damaged.
    pub fn keep(self: &Arc<Self>, options: &KeeperOptions) -> Result<LoadReport, OpenError> {
        durability::open(self, options)
    }

    /// Writes and syncs what was not yet. Changes after this are lost.
    ///
    /// # Errors
    /// That did not succeed. Without `always` clients may have been told of what is lost.
    pub fn close_log(&self) -> Result<(), CloseError> {
        self.log.close()
    }

    /// The file that keys are kept in; `None` if they are in memory only.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        self.log.keeper().map(|keeper| keeper.log.path())
    }

    /// Which file cannot be written, and why: commands that write are refused meanwhile.
    #[must_use]
    pub fn file_failure(&self) -> Option<String> {
        let reason = self.log.failure()?;
        self.file().map(|path| format!("{}: {reason}", path.display()))
    }

    /// Has clients give another password from now on; those that gave the one before stay. Returns
    /// whether it is another one.
    pub fn set_password(&self, password: String) -> bool {
        self.settings.set_password(password)
    }

    /// For how long the file has been written to without an end, by the wall clock; `None` if
    /// nothing is written. With a disk that does not answer it grows.
    #[must_use]
    pub fn file_write_time(&self) -> Option<Duration> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let milliseconds = self.log.keeper()?.log.busy_time(now);
        (milliseconds > 0).then(|| Duration::from_millis(milliseconds))
    }
}
