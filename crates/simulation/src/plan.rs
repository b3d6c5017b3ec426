//! The shape of a run. Each seed leaves some faults out: a fault that is always present hides what
//! happens without it.

use std::time::Duration;

use zodium_engine::{Config, Reopening};
use zodium_filestorage::OpenOptions;
use zodium_net::Limits;
use zodium_zeo::codec::Encoding;
use zodium_zeo_server::Config as ZeoConfig;

use crate::random::Chance;
use crate::server::{Setting, open_options};

/// Longest frame that a server accepts.
const FRAME_BYTES_MAX: u32 = 1 << 24;
/// The events of connections that the server ends.
pub(crate) const EXPIRED: &str = "expired";
pub(crate) const LEFT_BEHIND: &str = "left behind";
/// Most bytes that wait for a client, if that is not what a run is about.
const PUSH_BYTES_USUAL: usize = 16 << 20;

/// A bug injected on purpose, to check that the simulation detects it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InjectedBug {
    /// No bug.
    #[default]
    None,
    /// Syncs report success without making anything durable.
    SyncsDoNothing,
    /// An invalidation is sent after the message that should follow it.
    LateInvalidations,
    /// Some invalidations are not sent.
    LostInvalidations,
    /// Some invalidations are sent twice.
    RepeatedInvalidations,
    /// A byte of loaded data is changed.
    WrongBytes,
    /// Conflicts are not detected.
    NoConflicts,
    /// The server's answer about the last transaction is older than what another client was told.
    NoCatchUp,
    /// The reply to a vote is never sent.
    LostReplies,
}

/// The parameters of a run, from its seed.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) clients: usize,
    pub(crate) workers: usize,
    pub(crate) encoding: Encoding,
    pub(crate) cache_bytes: usize,
    /// One in so many reads waits for the disk; 0: none.
    pub(crate) cold_every: u64,
    /// Most bytes in transit from the server.
    pub(crate) window: usize,
    pub(crate) output_bytes_high: usize,
    pub(crate) push_bytes_max: usize,
    pub(crate) invalidation_queue_size: usize,
    pub(crate) reads_log: bool,
    pub(crate) transaction_timeout: Option<Duration>,
    pub(crate) reopening: Option<Reopening>,
    /// Most bytes delivered at once.
    pub(crate) chunk_bytes: u64,
    /// Client operations per thousand that end with a lost connection.
    pub(crate) disconnects: u64,
    /// Interruptible disk operations per thousand that are interrupted.
    pub(crate) interruptions: u64,
    pub(crate) crashes: u64,
    pub(crate) faults: u64,
    pub(crate) clock_jumps: u64,
    pub(crate) packs: bool,
    /// Steps per thousand, of those that may, in which a client falls asleep.
    pub(crate) sleeps: u64,
    /// Most filler bytes of a record.
    pub(crate) filling_bytes: u64,
    pub(crate) objects: Objects,
    pub(crate) bug: InjectedBug,
}

/// Number of objects of each kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Objects {
    pub(crate) accounts: u64,
    pub(crate) ring: u64,
    pub(crate) counters: u64,
    pub(crate) logs: u64,
    /// Pairs of which at least one must be on.
    pub(crate) pairs: u64,
}

impl Plan {
    pub(crate) fn new(chance: &Chance, bug: InjectedBug) -> Plan {
        let sometimes = |number: u64| if chance.permille(500) { number } else { 0 };
        let or = |rare: u64, usual: u64| if chance.permille(300) { rare } else { usual };
        let encodings = [Encoding::Pickle, Encoding::Msgpack];
        Plan {
            clients: chance.number(4..=16) as usize,
            workers: chance.number(1..=3) as usize,
            encoding: encodings[chance.place(2)],
            cache_bytes: or(0, 1 << 20) as usize,
            cold_every: sometimes(chance.number(2..=40)),
            window: or(chance.number(100..=4000), 1 << 20) as usize,
            output_bytes_high: or(chance.number(500..=8000), 1 << 20) as usize,
            push_bytes_max: or(chance.number(300..=3000), PUSH_BYTES_USUAL as u64) as usize,
            invalidation_queue_size: or(chance.number(0..=10), 100) as usize,
            reads_log: chance.permille(500),
            transaction_timeout: chance
                .permille(500)
                .then(|| Duration::from_secs(chance.number(5..=60))),
            reopening: chance.permille(500).then(Reopening::default),
            chunk_bytes: or(chance.number(1..=100), chance.number(1000..=1 << 16)),
            disconnects: sometimes(chance.number(1..=60)),
            interruptions: sometimes(chance.number(100..=900)),
            crashes: sometimes(chance.number(1..=8)),
            faults: sometimes(chance.number(1..=10)),
            clock_jumps: sometimes(chance.number(1..=20)),
            packs: chance.permille(400),
            sleeps: sometimes(chance.number(1..=100)),
            filling_bytes: or(100_000, or(6000, or(1500, 50))),
            objects: Objects {
                accounts: chance.number(2..=20),
                ring: chance.number(4..=10),
                counters: chance.number(1..=3),
                logs: chance.number(1..=2),
                pairs: chance.number(1..=2),
            },
            bug,
        }
    }

    /// Why a server ends a connection: its client does not read, or its transaction expires.
    ///
    /// # Errors
    /// When there is no reason.
    pub(crate) fn reason_of_end(&self) -> Result<&'static str, String> {
        match self.transaction_timeout {
            _ if self.push_bytes_max < PUSH_BYTES_USUAL => Ok(LEFT_BEHIND),
            Some(_) => Ok(EXPIRED),
            None => Err("the server ends a connection without a reason".to_owned()),
        }
    }

    /// The settings that each of its servers is started with.
    pub(crate) fn setting(&self) -> Setting {
        Setting {
            open: OpenOptions { cache_bytes: self.cache_bytes, ..open_options() },
            storage: self.storage_config(),
            zeo: ZeoConfig {
                encoding: self.encoding,
                frame_bytes_max: FRAME_BYTES_MAX,
                read_only: false,
                // There is no timer here.
                notice_interval: Duration::ZERO,
            },
            limits: Limits {
                output_bytes_high: self.output_bytes_high,
                push_bytes_max: self.push_bytes_max,
                // There is no timer here, and no client is slow.
                handshake_time_max: Duration::MAX,
                ..Limits::default()
            },
            workers: self.workers,
        }
    }

    fn storage_config(&self) -> Config {
        Config {
            invalidation_queue_size: self.invalidation_queue_size,
            invalidation_age: self.reads_log.then_some(Duration::from_secs(100_000)),
            transaction_timeout: self.transaction_timeout,
            pack_gc: false,
            pack_keep_old: false,
            reopening: self.reopening,
            ..Config::default()
        }
    }
}
