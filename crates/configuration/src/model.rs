//! The model of a server's configuration, with all defaults.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use zodium_types::Address;

/// The configuration of a server.
#[derive(Clone, Debug, PartialEq)]
pub struct Configuration {
    /// Options of the server as a whole.
    pub server: ServerOptions,
    /// The storages: at least one, with distinct names.
    pub storages: Vec<StorageOptions>,
    /// Logging.
    pub log: LogOptions,
    /// Metrics, health and the status page; absent: not served.
    pub monitor: Option<MonitorOptions>,
}

/// Options of the server as a whole.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerOptions {
    /// Addresses to listen on; at least one.
    pub addresses: Vec<Address>,
    /// The encoding announced to clients.
    pub encoding: Encoding,
    /// Serve all storages read-only.
    pub read_only: bool,
    /// Worker threads; absent: one per core.
    pub workers: Option<u16>,
    /// How long a worker polls for the next request before it sleeps; absent: it sleeps at once.
    pub busy_poll: Option<Duration>,
    /// Transactions remembered for clients that reconnect.
    pub invalidation_queue_size: usize,
    /// Age up to which the log is read for clients that missed more transactions than that.
    pub invalidation_age: Option<Duration>,
    /// Longest time that a client may hold its locks between vote and finish.
    pub transaction_timeout: Option<Duration>,
    /// Leave all conflicts to clients, even those that the server could resolve itself.
    pub client_conflict_resolution: bool,
    /// Classes (`module.Class`) whose conflicts clients can resolve; `*` stands for all classes.
    /// An undo of their objects, if changed later, is passed to the client to be merged.
    pub resolvable_classes: Vec<String>,
    /// A Python interpreter that resolves conflicts with the classes of the application: a path,
    /// or a name that is looked up in `PATH`.
    pub python_resolver: Option<PathBuf>,
    /// After a failed write, reopen the file and accept commits again once the disk works.
    pub reopen_after_failure: bool,
    /// Longest message that a client may send, in bytes.
    pub message_bytes_max: u32,
    /// Most open connections; absent: as many as the limit of open files leaves room for.
    pub connections_max: Option<u32>,
    /// Memory that clients may make the server hold, in bytes; absent: a quarter of the memory.
    pub memory_bytes_max: Option<u64>,
    /// Handshake timeout: longest time until a client has registered.
    pub handshake_time_max: Duration,
    /// File for the process id while running.
    pub pid_file: Option<PathBuf>,
    /// TLS, which encrypts connections and requires client certificates; absent: neither.
    pub tls: Option<TlsOptions>,
}

/// Encodings of ZEO's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// `Z5`.
    Pickle,
    /// `M5`.
    Msgpack,
}

/// TLS as in ZEO's `<ssl>` section: clients always present a certificate.
#[derive(Clone, Debug, PartialEq)]
pub struct TlsOptions {
    /// PEM file with the server's certificate and its chain, and optionally its key.
    pub certificate: PathBuf,
    /// PEM file with the key; absent: it is in the certificate's file.
    pub key: Option<PathBuf>,
    /// The source of the password of an encrypted key.
    pub key_password: Option<KeyPassword>,
    /// A PEM file, or a directory of them, with certificates of clients or authorities, and
    /// optional revocation lists.
    pub authenticate: PathBuf,
}

/// The source of a key's password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyPassword {
    /// The first line of a file.
    File(PathBuf),
    /// An environment variable.
    Environment(String),
}

/// One storage.
#[derive(Clone, Debug, PartialEq)]
pub struct StorageOptions {
    /// The name that clients ask for.
    pub name: String,
    /// Where its data are stored.
    pub kind: StorageKind,
    /// Directory of blobs; absent: blobs are refused.
    pub blob_directory: Option<PathBuf>,
    /// Serve it read-only.
    pub read_only: bool,
    /// Memory for records that were read or written, in bytes.
    pub cache_bytes: u64,
    /// Size of the data file, in bytes, from which on commits are refused.
    pub quota_bytes: Option<u64>,
    /// Use of checksums.
    pub checksums: Checksums,
    /// Interval of scrubs, which verify the checksums of the whole file; absent: never.
    pub scrub_interval: Option<Duration>,
    /// Packing.
    pub pack: PackOptions,
    /// Subjects of client certificates that may use it (a common name, or a whole subject as
    /// `CN=...,O=...`); absent: every client that the server accepts. Needs TLS.
    pub allow: Option<Vec<String>>,
}

/// Use of the checksums beside a data file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksums {
    /// Written by commits, and verified by every read and by scrubs.
    Full,
    /// Written by commits, and verified by scrubs, but not by loads.
    Commit,
    /// No checksums.
    Off,
}

impl Checksums {
    /// All variants, with the words for them.
    pub const NAMED: [(&str, Checksums); 3] =
        [("full", Checksums::Full), ("commit", Checksums::Commit), ("off", Checksums::Off)];

    /// The word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Checksums::Full => "full",
            Checksums::Commit => "commit",
            Checksums::Off => "off",
        }
    }
}

/// Where the data of a storage are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorageKind {
    /// A FileStorage.
    File {
        /// The data file.
        path: PathBuf,
        /// Replace an existing file by a new, empty one (`create true` in ZConfig).
        truncate: bool,
    },
    /// Memory; data are lost when the server ends (`<mappingstorage>`).
    Memory,
}

/// Options of packs.
#[derive(Clone, Debug, PartialEq)]
pub struct PackOptions {
    /// Drop objects that cannot be reached from the root.
    pub garbage_collection: bool,
    /// Keep the previous file as `Data.fs.old`.
    pub keep_old: bool,
    /// Fail when an object refers to a missing one, instead of only reporting it.
    pub abort_on_dangling: bool,
    /// Schedule of packs by the server.
    pub schedule: Option<PackSchedule>,
}

/// The schedule of packs by the server, in local time.
#[derive(Clone, Debug, PartialEq)]
pub struct PackSchedule {
    /// Hour, from 0 to 23, and minute.
    pub at: (u8, u8),
    /// Days of the week; empty: all.
    pub on: Vec<Weekday>,
    /// Days of history that are kept.
    pub keep_days: f64,
}

/// A day of the week.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "days need none")]
pub enum Weekday {
    Monday,
    Tuesday,
    Wednesday,
    Thursday,
    Friday,
    Saturday,
    Sunday,
}

impl Weekday {
    /// The week, from Monday.
    pub const ALL: [Weekday; 7] = [
        Weekday::Monday,
        Weekday::Tuesday,
        Weekday::Wednesday,
        Weekday::Thursday,
        Weekday::Friday,
        Weekday::Saturday,
        Weekday::Sunday,
    ];

    /// Its English name, in lower case.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Weekday::Monday => "monday",
            Weekday::Tuesday => "tuesday",
            Weekday::Wednesday => "wednesday",
            Weekday::Thursday => "thursday",
            Weekday::Friday => "friday",
            Weekday::Saturday => "saturday",
            Weekday::Sunday => "sunday",
        }
    }
}

/// Logging.
#[derive(Clone, Debug, PartialEq)]
pub struct LogOptions {
    /// Destinations of log lines.
    pub destinations: Vec<LogDestination>,
    /// Format of log lines.
    pub format: LogFormat,
    /// Log level: `error`, `warn`, `info`, `debug`, `trace` or `off`, also by module.
    pub level: String,
}

/// A destination of log lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogDestination {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// A file, reopened on SIGUSR2.
    File(PathBuf),
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Text for humans.
    Human,
    /// One JSON object per line.
    Json,
}

/// Metrics, health and the status page over HTTP.
#[derive(Clone, Debug, PartialEq)]
pub struct MonitorOptions {
    /// Address to listen on.
    pub address: Address,
}

impl Default for ServerOptions {
    fn default() -> ServerOptions {
        ServerOptions {
            addresses: vec![Address::Tcp { host: "127.0.0.1".to_owned(), port: 8100 }],
            encoding: Encoding::Pickle,
            read_only: false,
            workers: None,
            busy_poll: None,
            invalidation_queue_size: 100,
            invalidation_age: None,
            transaction_timeout: None,
            client_conflict_resolution: false,
            resolvable_classes: Vec::new(),
            python_resolver: None,
            reopen_after_failure: true,
            message_bytes_max: 2049 << 20,
            connections_max: None,
            memory_bytes_max: None,
            handshake_time_max: Duration::from_secs(30),
            pid_file: None,
            tls: None,
        }
    }
}

impl StorageOptions {
    /// Creates a storage with default options.
    pub fn new(name: impl Into<String>, kind: StorageKind) -> StorageOptions {
        StorageOptions {
            name: name.into(),
            kind,
            blob_directory: None,
            read_only: false,
            cache_bytes: 256 << 20,
            quota_bytes: None,
            checksums: Checksums::Full,
            scrub_interval: Some(Duration::from_secs(7 * 24 * 60 * 60)),
            pack: PackOptions::default(),
            allow: None,
        }
    }
}

impl PackSchedule {
    /// Default of [`PackSchedule::keep_days`].
    pub const KEEP_DAYS_DEFAULT: f64 = 1.0;
}

impl Default for PackOptions {
    fn default() -> PackOptions {
        PackOptions {
            garbage_collection: true,
            keep_old: true,
            abort_on_dangling: false,
            schedule: None,
        }
    }
}

impl Default for LogOptions {
    fn default() -> LogOptions {
        LogOptions {
            destinations: vec![LogDestination::Stderr],
            format: LogFormat::Human,
            level: "info".to_owned(),
        }
    }
}

impl fmt::Display for LogDestination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogDestination::Stdout => f.write_str("stdout"),
            LogDestination::Stderr => f.write_str("stderr"),
            LogDestination::File(path) => write!(f, "{}", path.display()),
        }
    }
}
