//! `[server]`: addresses, clients and their limits, conflicts, the process.

use std::path::PathBuf;
use std::time::Duration;

use zodium_types::Address;

use super::kinds::zconfig_values::{boolean, path_or_none, whole_seconds};
use super::kinds::{Bytes, Choice, Count, File, List, Location, Program, Switch, Text, Time};
use super::tls::TlsOptions;

/// Headings of options on the command line.
const CLIENTS: &str = "Clients";
const PROCESS: &str = "Process";
const STORAGES: &str = "Storages";

/// Encodings of ZEO's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// `Z5`.
    Pickle,
    /// `M5`.
    Msgpack,
}

const ENCODINGS: [(&str, Encoding, &str); 2] =
    [("pickle", Encoding::Pickle, "Z5"), ("msgpack", Encoding::Msgpack, "M5")];

/// What reads objects that are not in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColdReads {
    /// `Ring` where the system allows it, else `Threads`.
    Auto,
    /// Threads that wait for the disk.
    Threads,
    /// The workers themselves, through io_uring.
    Ring,
}

const COLD_READS: [(&str, ColdReads, &str); 3] = [
    ("auto", ColdReads::Auto, "As ring, or as threads where the system forbids that"),
    ("threads", ColdReads::Threads, "Threads that wait for the disk"),
    ("ring", ColdReads::Ring, "The workers, through io_uring; fails to start without it"),
];

/// When changes of keys are synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RespSync {
    /// Before they are acknowledged.
    Always,
    /// Once a second.
    EverySecond,
    /// When the system does it.
    No,
}

impl RespSync {
    /// Its name, which is the one of `appendfsync`.
    #[must_use]
    pub fn name(self) -> &'static str {
        RESP_SYNCS.iter().find(|(_, sync, _)| *sync == self).map_or("", |(name, _, _)| name)
    }

    /// The one of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<RespSync> {
        RESP_SYNCS.iter().find(|(other, _, _)| *other == name).map(|(_, sync, _)| *sync)
    }
}

const RESP_SYNCS: [(&str, RespSync, &str); 3] = [
    ("always", RespSync::Always, "Before they are acknowledged"),
    ("everysec", RespSync::EverySecond, "Once a second"),
    ("no", RespSync::No, "When the system does it"),
];

settings! {
    /// Options of the server as a whole.
    pub struct ServerOptions {
        /// Listen on HOST:PORT, PORT, or /path/to/a/socket
        addresses: Vec<Address> = vec![Address::Tcp { host: "127.0.0.1".to_owned(), port: 8100 }], {
            List(Location);
            key: "address", zeo_conf: "address", is_always_written: true, option: "address",
            value: "ADDRESS", short: Some('a'), env: "ZODIUM_ADDRESS", separator: Some(',')
        }

        /// Serve Redis and Valkey clients too, on HOST:PORT, PORT, or /path/to/a/socket
        ///
        /// Keys and values are in memory, and in `resp-file`; see docs/resp.md. The same workers
        /// serve both kinds of clients, and TLS applies to both.
        resp_addresses: Vec<Address> = Vec::new(), {
            List(Location);
            key: "resp-address", option: "resp", value: "ADDRESS", env: "ZODIUM_RESP",
            separator: Some(',')
        }

        /// A file whose first line is the password of Redis and Valkey clients
        resp_password_file: Option<PathBuf> = None, {
            File;
            key: "resp-password-file", option: "resp-password-file", value: "PATH",
            env: "ZODIUM_RESP_PASSWORD_FILE"
        }

        /// The file that the keys of Redis and Valkey clients are kept in
        ///
        /// Without it they are in memory only. It is created if it does not exist. See
        /// docs/resp.md.
        resp_file: Option<PathBuf> = None, {
            File;
            key: "resp-file", option: "resp-file", value: "PATH", env: "ZODIUM_RESP_FILE"
        }

        /// When changes of keys are synced to their file
        ///
        /// The default is `everysec`, or what `resp-config` says. With `always` a client is
        /// answered when its change is on the device. With `everysec` a power cut loses the last
        /// second, and with `no` what the system has not written.
        resp_sync: Option<RespSync> = None, {
            Choice(&RESP_SYNCS);
            key: "resp-sync", option: "resp-sync", value: "WHEN", env: "ZODIUM_RESP_SYNC"
        }

        /// A configuration file of Valkey or Redis, for Redis and Valkey clients
        ///
        /// Its settings, such as `maxmemory`, are those of `CONFIG SET`. Other options of this
        /// program go before it. See docs/resp.md.
        resp_config: Option<PathBuf> = None, {
            File;
            key: "resp-config", option: "resp-config", value: "PATH", env: "ZODIUM_RESP_CONFIG"
        }

        /// Encoding of messages
        ///
        /// Clients follow the server. For msgpack they need the package msgpack, which is not
        /// always installed: `pip install msgpack`.
        encoding: Encoding = Encoding::Pickle, {
            Choice(&ENCODINGS);
            key: "encoding", zeo_conf: "msgpack", option: "msgpack", flag: "msgpack",
            option_help: "Speak msgpack (M5) instead of pickle (Z5)", env: "ZODIUM_MSGPACK";
            from_zeo_conf: |text, _| {
                boolean(text).map(|is_msgpack| is_msgpack.then_some(Encoding::Msgpack))
            }
        }

        /// Refuse commits, and leave the files unchanged
        ///
        /// No lock is taken, so another process may write the file meanwhile; its later
        /// transactions are not seen. If the file does not exist, an empty database is served.
        read_only: bool = false, {
            Switch;
            key: "read-only", zeo_conf: "read-only", option: "read-only", flag: "true",
            env: "ZODIUM_READ_ONLY"
        }

        /// Number of transactions remembered for clients that reconnect with a cache
        ///
        /// Clients that missed more of them must drop their caches, unless `invalidation-age`
        /// covers the gap.
        invalidation_queue_size: usize = 100, {
            Count::<usize>::any();
            key: "invalidation-queue-size", zeo_conf: "invalidation-queue-size",
            option: "invalidation-queue-size", value: "N", heading: CLIENTS
        }

        /// Read the log for clients that missed more, if they were away for at most this time
        invalidation_age: Option<Duration> = None, {
            Time::ANY;
            key: "invalidation-age", zeo_conf: "invalidation-age", option: "invalidation-age",
            value: "SECONDS", heading: CLIENTS
        }

        /// Disconnect clients that hold locks between vote and finish for more than this time
        transaction_timeout: Option<Duration> = None, {
            Time::ANY;
            key: "transaction-timeout", zeo_conf: "transaction-timeout",
            option: "transaction-timeout", value: "SECONDS", short: Some('t'),
            alias: Some("timeout"), env: "ZODIUM_TRANSACTION_TIMEOUT", heading: CLIENTS;
            from_zeo_conf: |text, _| whole_seconds(text).map(Some)
        }

        /// Leave all conflicts to clients, also those of BTrees and Length
        client_conflict_resolution: bool = false, {
            Switch;
            key: "client-conflict-resolution", zeo_conf: "client-conflict-resolution",
            option: "client-conflict-resolution", flag: "true", heading: CLIENTS
        }

        /// A class (module.Class) whose conflicts clients can resolve, or * for all
        ///
        /// If such an object was changed after the transaction that is undone, the client that
        /// undoes it resolves the conflict, as for a conflicting store. For other classes, except
        /// BTrees and Length, such an undo is refused; see docs/conflicts.md.
        resolvable_classes: Vec<String> = Vec::new(), {
            List(Text);
            key: "resolvable-classes", option: "resolvable-class", value: "CLASS",
            env: "ZODIUM_RESOLVABLE_CLASSES", separator: Some(' '), heading: CLIENTS;
            get: |server| Some(server.resolvable_classes.clone()),
            // Options add to those of the file.
            set: |server, classes| server.resolvable_classes.extend(classes),
        }

        /// A Python that resolves conflicts of the application's classes, as runzeo itself does
        ///
        /// The path of an interpreter with ZODB and the application, or its name if it is in PATH.
        /// The server starts it as a separate process, with limits and few rights. It executes the
        /// classes that records name, as runzeo does; see docs/conflicts.md.
        python_resolver: Option<PathBuf> = None, {
            Program;
            key: "python-resolver", elsewhere: "`%define zodium_python_resolver`",
            option: "python-resolver", value: "PYTHON", env: "ZODIUM_PYTHON_RESOLVER",
            heading: CLIENTS
        }

        /// Longest message of a client; a longer one ends its connection
        message_bytes_max: u32 = 2049 << 20, {
            Bytes::<u32>::at_least(1 << 10, "ZEO's messages are shorter than 4 GiB");
            key: "message-size-max", option: "message-size-max", value: "SIZE", heading: CLIENTS
        }

        /// Most open connections; further ones are closed at once
        connections_max: Option<u32> = None, {
            Count::<u32>::within(1, u32::MAX as u64);
            key: "connections-max", otherwise: "as many as the limit of open files allows",
            option: "connections-max", value: "N", env: "ZODIUM_CONNECTIONS_MAX",
            heading: CLIENTS
        }

        /// Most memory for clients' messages, stores and answers
        ///
        /// At the limit clients wait, and large transactions are refused; see docs/limits.md.
        memory_bytes_max: Option<u64> = None, {
            Bytes::<u64>::any();
            key: "memory-limit", otherwise: "a quarter of the memory", option: "memory-limit",
            value: "SIZE", env: "ZODIUM_MEMORY_LIMIT", heading: CLIENTS
        }

        /// Disconnect clients that do not register within this time after connecting
        handshake_time_max: Duration = Duration::from_secs(30), {
            Time::ANY;
            key: "handshake-timeout", option: "handshake-timeout", value: "SECONDS",
            heading: CLIENTS
        }

        /// Number of worker threads
        workers: Option<u16> = None, {
            Count::<u16>::within(1, 1024);
            key: "workers", otherwise: "one per core except one", option: "workers", value: "N",
            env: "ZODIUM_WORKERS", heading: PROCESS
        }

        /// Serve with as few workers as the load needs, and move connections between them
        ///
        /// A worker with many clients finds more requests each time it wakes up, so a commit costs
        /// less processor time. A busy worker hands clients over to others, up to one for each
        /// processor. Connections over TLS do not move, and none does with --busy-poll.
        balance: bool = true, {
            Switch;
            key: "balance", option: "no-balance", flag: "false",
            option_help: "Give each worker the same number of connections, and leave them there",
            env: "ZODIUM_NO_BALANCE", heading: PROCESS
        }

        /// Poll for the next request for this time after each, instead of sleeping
        ///
        /// A single client is answered several times faster, since no processor has to be woken
        /// up. The worker's processor is busy meanwhile. About 50 microseconds suffice for clients
        /// on the same machine.
        busy_poll: Option<Duration> = None, {
            Time::micros(Duration::from_secs(1));
            key: "busy-poll", option: "busy-poll", value: "MICROSECONDS", env: "ZODIUM_BUSY_POLL",
            heading: PROCESS
        }

        /// How loads read objects of a data file that are not in memory
        ///
        /// Through io_uring a worker reads them itself: no other thread has to be woken up for
        /// each, and back. Databases on other servers are not read so.
        cold_reads: ColdReads = ColdReads::Auto, {
            Choice(&COLD_READS);
            key: "cold-reads", option: "cold-reads", value: "HOW", env: "ZODIUM_COLD_READS",
            heading: PROCESS
        }

        /// Write the process id to this file while serving
        ///
        /// A file that is there is replaced if it is empty or holds a number.
        pid_file: Option<PathBuf> = None, {
            File;
            key: "pid-file", zeo_conf: "pid-filename", option: "pid-file", value: "PATH",
            heading: PROCESS;
            from_zeo_conf: path_or_none
        }

        /// After a failed write, reopen the file and accept commits again
        ///
        /// The server does so by itself, once the disk has all committed data and can be written;
        /// see docs/operating.md.
        reopen_after_failure: bool = true, {
            Switch;
            key: "reopen-after-failure", option: "no-reopen", flag: "false",
            option_help: "After a failed write, refuse commits until SIGUSR1 or a restart",
            env: "ZODIUM_NO_REOPEN", heading: STORAGES
        }

        /// TLS, which encrypts connections and requires client certificates; absent: neither.
        tls: Option<TlsOptions> = None, []
    }
}
