//! What all workers of a server share.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use zodium_keyspace::{Keyspace, Removed, now, random_below};

use crate::clients::Clients;
use crate::durability::Keeper;
use crate::events::Class;
use crate::parked::Parked;
use crate::pause::Pause;
use crate::publishing::Publishing;
use crate::scripting::Scripts;
use crate::settings::Settings;
use crate::statistics::{Statistics, WorkerStatistics};
use crate::storages::Storages;
use crate::ties::Ties;
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
}

/// The data, the settings and the connections of a server, for all its workers.
pub struct Server {
    pub(crate) keyspace: Keyspace,
    pub(crate) settings: Settings,
    pub(crate) publishing: Publishing,
    pub(crate) waiting: Waiting,
    /// The storages that it is beside; not set if it is alone.
    pub(crate) storages: OnceLock<Arc<dyn Storages>>,
    pub(crate) ties: Ties,
    pub(crate) tracking: Tracking,
    /// The log of its changes; not set if it keeps keys in memory only.
    pub(crate) keeper: OnceLock<Keeper>,
    pub(crate) parked: Parked,
    pub(crate) pause: Pause,
    pub(crate) clients: Clients,
    pub(crate) statistics: Statistics,
    pub(crate) scripts: Scripts,
    pub(crate) port: u16,
    pub(crate) may_shut_down: bool,
    pub(crate) started_at: u64,
    /// 40 hexadecimal digits that no other run has.
    pub(crate) run_id: String,
}

impl Server {
    /// Creates a server without data.
    #[must_use]
    pub fn new(options: Options) -> Server {
        let workers = options.workers.max(1);
        let digit = |_| char::from(b"0123456789abcdef"[random_below(16)]);
        let settings = Settings::default();
        settings.set_password(options.password.unwrap_or_default());
        Server {
            keyspace: Keyspace::default(),
            settings,
            publishing: Publishing::default(),
            waiting: Waiting::default(),
            storages: OnceLock::new(),
            ties: Ties::default(),
            tracking: Tracking::default(),
            keeper: OnceLock::new(),
            parked: Parked::default(),
            pause: Pause::default(),
            clients: Clients::new(workers),
            statistics: Statistics {
                workers: (0..workers).map(|_| WorkerStatistics::default()).collect(),
                ..Statistics::default()
            },
            scripts: Scripts::default(),
            port: options.port,
            may_shut_down: options.may_shut_down,
            started_at: now(),
            run_id: (0..40).map(digit).collect(),
        }
    }

    /// Number of open connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.clients.count()
    }

    /// Announces keys that were removed because their time was past.
    pub(crate) fn announce_expired(&self, expired: &[Removed]) {
        self.tracking.invalidate_removed(&self.clients, expired);
        for Removed { database, key } in expired {
            self.statistics.expired.fetch_add(1, Ordering::Relaxed);
            self.publishing.announce(&self.clients, (*database, key), Class::Expired, "expired");
        }
    }
}
