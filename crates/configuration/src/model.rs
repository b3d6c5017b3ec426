//! The model of a server's configuration, with the defaults of everything.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use zodium_types::Address;

/// All that a server is told.
#[derive(Clone, Debug, PartialEq)]
pub struct Configuration {
    /// What holds for the server as a whole.
    pub server: ServerOptions,
    /// What it serves: at least one storage, each name once.
    pub storages: Vec<StorageOptions>,
    /// Logging.
    pub log: LogOptions,
    /// Metrics, health and the status page; absent: not served.
    pub monitor: Option<MonitorOptions>,
}

/// What holds for the server as a whole.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerOptions {
    /// Where to listen; at least one.
    pub addresses: Vec<Address>,
    /// The encoding announced to clients.
    pub encoding: Encoding,
    /// Serve all storages for reading only.
    pub read_only: bool,
    /// Worker threads; absent: one per core.
    pub workers: Option<u16>,
    /// How long a worker looks for the next request without sleeping; absent: it sleeps at once.
    pub busy_poll: Option<Duration>,
    /// Transactions remembered for clients that reconnect.
    pub invalidation_queue_size: usize,
    /// How far back the log is read for clients that were away longer.
    pub invalidation_age: Option<Duration>,
    /// How long a client may hold its locks between vote and finish.
    pub transaction_timeout: Option<Duration>,
    /// Leave all conflicts to clients, even those that the server could resolve itself.
    pub client_conflict_resolution: bool,
    /// Classes (`module.Class`) that clients can resolve conflicts of: an undo of what was
    /// changed later is given to the client for these. `*` stands for all classes.
    pub resolvable_classes: Vec<String>,
    /// A Python interpreter that resolves conflicts with the classes of the application: a path,
    /// or a name to be looked up in `PATH`.
    pub python_resolver: Option<PathBuf>,
    /// Take commits again without a restart after a write failed, once the disk is well.
    pub reopen_after_failure: bool,
    /// Longest message a client may send, in bytes.
    pub message_bytes_max: u32,
    /// Connections that may be open; absent: as many as the limit of open files leaves room for.
    pub connections_max: Option<u32>,
    /// Memory that clients may make the server hold, in bytes; absent: a quarter of what there is.
    pub memory_bytes_max: Option<u64>,
    /// How long a client may take to register.
    pub handshake_time_max: Duration,
    /// Where to write the process id while running.
    pub pid_file: Option<PathBuf>,
    /// Encrypt connections, and let in only who shows a certificate.
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

/// TLS as ZEO's `<ssl>` section has it: clients always show a certificate.
#[derive(Clone, Debug, PartialEq)]
pub struct TlsOptions {
    /// PEM file with the server's certificate and its chain, perhaps also its key.
    pub certificate: PathBuf,
    /// PEM file with the key; absent: it is in the certificate's file.
    pub key: Option<PathBuf>,
    /// Where the password of an encrypted key comes from.
    pub key_password: Option<KeyPassword>,
    /// PEM file, or directory of PEM files, with the certificates of clients or of those who
    /// signed them, and perhaps CRLs.
    pub authenticate: PathBuf,
}

/// Where the password of a key comes from.
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
    /// What clients ask for.
    pub name: String,
    /// What it is kept in.
    pub kind: StorageKind,
    /// Directory of blobs; absent: blobs are refused.
    pub blob_directory: Option<PathBuf>,
    /// Serve it for reading only.
    pub read_only: bool,
    /// Memory for records that were read or written, in bytes.
    pub cache_bytes: u64,
    /// Size of the data file, in bytes, from which on commits are refused.
    pub quota_bytes: Option<u64>,
    /// What is done with checksums beside the data file.
    pub checksums: Checksums,
    /// How often the whole file is held against them; absent: never.
    pub scrub_interval: Option<Duration>,
    /// Packing.
    pub pack: PackOptions,
    /// Subjects of client certificates that may use it (a common name, or a whole subject as
    /// `CN=...,O=...`); absent: every client that the server lets in. Needs TLS.
    pub allow: Option<Vec<String>>,
}

/// What is done with checksums beside a data file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksums {
    /// Written with commits, and whatever is read is held against them.
    Full,
    /// Written with commits; the file is held against them now and then, but not each load.
    Commit,
    /// There are none.
    Off,
}

impl Checksums {
    /// All of them, by the words that name them.
    pub const NAMED: [(&str, Checksums); 3] =
        [("full", Checksums::Full), ("commit", Checksums::Commit), ("off", Checksums::Off)];

    /// The word that names it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Checksums::Full => "full",
            Checksums::Commit => "commit",
            Checksums::Off => "off",
        }
    }
}

/// What a storage is kept in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorageKind {
    /// A FileStorage.
    File {
        /// The data file.
        path: PathBuf,
        /// Begin a new, empty file in place of one that exists (`create true` in ZConfig).
        truncate: bool,
    },
    /// Memory: gone when the server ends (`<mappingstorage>`).
    Memory,
}

/// How a storage is packed.
#[derive(Clone, Debug, PartialEq)]
pub struct PackOptions {
    /// Drop objects that cannot be reached from the root.
    pub garbage_collection: bool,
    /// Keep the file from before as `Data.fs.old`.
    pub keep_old: bool,
    /// Give up when an object refers to one that is not there, instead of only reporting it.
    pub abort_on_dangling: bool,
    /// When the server packs by itself.
    pub schedule: Option<PackSchedule>,
}

/// When a server packs by itself, in local time.
#[derive(Clone, Debug, PartialEq)]
pub struct PackSchedule {
    /// Hour, from 0 to 23, and minute.
    pub at: (u8, u8),
    /// On which days; empty: on all.
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
    /// Where lines go.
    pub destinations: Vec<LogDestination>,
    /// How they look.
    pub format: LogFormat,
    /// What is logged: `error`, `warn`, `info`, `debug`, `trace`, also by module.
    pub level: String,
}

/// Where log lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogDestination {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// A file, opened anew on SIGUSR2.
    File(PathBuf),
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Human,
    /// One JSON object a line.
    Json,
}

/// Metrics, health and the status page over HTTP.
#[derive(Clone, Debug, PartialEq)]
pub struct MonitorOptions {
    /// Where to listen.
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
    /// A storage with nothing but its name and what it is kept in.
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
    /// Days of history that are kept where nothing else is said.
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
