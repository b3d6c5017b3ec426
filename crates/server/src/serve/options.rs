//! The options of `zodium serve`.
//!
//! Options have no defaults here. Without an option the configuration applies, whose model has the
//! defaults. The help texts name them.

use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;
use clap::builder::FalseyValueParser;
use clap::{Args, ValueEnum};
use zodium_configuration::LogDestination;
use zodium_types::Address;

/// Options of `zodium serve`.
#[derive(Debug, Default, Args)]
pub(crate) struct ServeOptions {
    /// The data file, usually called Data.fs; created if absent
    #[arg(env = "ZODIUM_PATH")]
    pub(crate) path: Option<PathBuf>,

    /// Another data file; may be repeated. Storages are called 1, 2, ... in this order
    #[arg(short, long, value_name = "PATH")]
    pub(crate) filename: Vec<PathBuf>,

    /// A configuration file: a zeo.conf as runzeo reads it, or TOML
    ///
    /// Options override its settings; data files on the command line replace all its storages.
    /// `zodium config check` reports its errors.
    #[arg(short = 'C', long, alias = "configure", value_name = "FILE", env = "ZODIUM_CONFIG")]
    pub(crate) config: Option<PathBuf>,

    /// Listen on HOST:PORT, PORT, or /path/to/a/socket; may be repeated
    /// [default: 127.0.0.1:8100]
    #[arg(short, long, value_name = "ADDRESS", env = "ZODIUM_ADDRESS", value_delimiter = ',')]
    pub(crate) address: Vec<Address>,

    /// Speak msgpack (M5) instead of pickle (Z5)
    ///
    /// Clients follow the server. They need the package msgpack, which is not always installed:
    /// `pip install msgpack`.
    #[arg(long, env = "ZODIUM_MSGPACK", value_parser = FalseyValueParser::new())]
    pub(crate) msgpack: bool,

    /// Refuse commits, and leave the files unchanged
    ///
    /// No lock is taken, so another process may write the file meanwhile; its later transactions
    /// are not seen. If the file does not exist, an empty database is served.
    #[arg(long, env = "ZODIUM_READ_ONLY", value_parser = FalseyValueParser::new())]
    pub(crate) read_only: bool,

    #[command(flatten)]
    pub(crate) storage: StorageArguments,

    #[command(flatten)]
    pub(crate) clients: ClientArguments,

    #[command(flatten)]
    pub(crate) tls: TlsArguments,

    #[command(flatten)]
    pub(crate) process: ProcessArguments,

    #[command(flatten)]
    pub(crate) logging: LogArguments,
}

/// Options of storages.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Storages")]
pub(crate) struct StorageArguments {
    /// Size of each storage's cache of records [default: 256MiB]
    ///
    /// Hits need neither a lock nor a system call. 0 switches the cache off; that of the
    /// operating system remains.
    #[arg(long, value_name = "SIZE", env = "ZODIUM_CACHE_SIZE")]
    pub(crate) cache_size: Option<ByteSize>,

    /// The name of the storage for clients [default: 1]
    #[arg(long, value_name = "NAME", env = "ZODIUM_STORAGE_NAME")]
    pub(crate) storage_name: Option<String>,

    /// The blob directory; without it blobs are refused
    #[arg(long, value_name = "PATH", env = "ZODIUM_BLOB_DIR")]
    pub(crate) blob_dir: Option<PathBuf>,

    /// Refuse commits that would make the data file larger than this
    #[arg(long, value_name = "SIZE")]
    pub(crate) quota: Option<ByteSize>,

    /// Keep checksums beside the data file, and compare loads with them [default: full]
    #[arg(long, value_name = "WHEN", value_enum, env = "ZODIUM_CHECKSUMS")]
    pub(crate) checksums: Option<ChecksumsArgument>,

    /// Seconds between two comparisons of the whole file with its checksums; 0: never
    /// [default: 604800, a week]
    #[arg(long, value_name = "SECONDS", value_parser = seconds, env = "ZODIUM_SCRUB_INTERVAL")]
    pub(crate) scrub_interval: Option<Duration>,

    /// Let packs remove old revisions only, not objects
    ///
    /// By default they also remove objects that cannot be reached from the root. That is wrong
    /// for objects that only other databases refer to.
    #[arg(long)]
    pub(crate) no_pack_gc: bool,

    /// Do not keep the file as it was before a pack as Data.fs.old
    #[arg(long)]
    pub(crate) no_pack_keep_old: bool,

    /// After a failed write, refuse commits until SIGUSR1 or a restart
    ///
    /// By default the server reopens the file by itself, once the disk has all committed data and
    /// can be written.
    #[arg(long, env = "ZODIUM_NO_REOPEN", value_parser = FalseyValueParser::new())]
    pub(crate) no_reopen: bool,
}

/// Options for clients and their transactions.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Clients")]
pub(crate) struct ClientArguments {
    /// Number of transactions remembered for clients that reconnect with a cache [default: 100]
    ///
    /// Clients that missed more of them must drop their caches, unless --invalidation-age covers
    /// the gap.
    #[arg(long, value_name = "N")]
    pub(crate) invalidation_queue_size: Option<usize>,

    /// Read the log for clients that missed more, if they were away for at most this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) invalidation_age: Option<Duration>,

    /// Disconnect clients that hold locks between vote and finish for more than this many seconds
    #[arg(short, long, alias = "timeout", value_name = "SECONDS", value_parser = seconds)]
    #[arg(env = "ZODIUM_TRANSACTION_TIMEOUT")]
    pub(crate) transaction_timeout: Option<Duration>,

    /// Leave all conflicts to clients, also those of BTrees and Length
    #[arg(long)]
    pub(crate) client_conflict_resolution: bool,

    /// A class (module.Class) whose conflicts clients can resolve; may be repeated, * for all
    ///
    /// If such an object was changed after the transaction that is undone, the client that undoes
    /// it resolves the conflict, as for a conflicting store. For other classes, except BTrees and
    /// Length, such an undo is refused.
    #[arg(long, value_name = "CLASS", env = "ZODIUM_RESOLVABLE_CLASSES", value_delimiter = ' ')]
    pub(crate) resolvable_class: Vec<String>,

    /// A Python that resolves conflicts of the application's classes, as runzeo itself does
    ///
    /// The path of an interpreter with ZODB and the application, or its name if it is in PATH.
    /// The server starts it as a separate process, with limits and few rights. It executes the
    /// classes that records name, as runzeo does; see docs/conflicts.md.
    #[arg(long, value_name = "PYTHON", env = "ZODIUM_PYTHON_RESOLVER")]
    pub(crate) python_resolver: Option<PathBuf>,

    /// Longest message of a client; a longer one ends its connection [default: 2049MiB]
    #[arg(long, value_name = "SIZE", value_parser = frame_size)]
    pub(crate) message_size_max: Option<u32>,

    /// Most open connections; further ones are closed at once [default: as many as the limit of
    /// open files allows, which is raised as far as possible]
    #[arg(long, value_name = "N", env = "ZODIUM_CONNECTIONS_MAX")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) connections_max: Option<u32>,

    /// Most memory for clients' messages, stores and answers. At the limit clients wait, and
    /// large transactions are refused [default: a quarter of the memory]
    #[arg(long, value_name = "SIZE", env = "ZODIUM_MEMORY_LIMIT")]
    pub(crate) memory_limit: Option<ByteSize>,

    /// Disconnect clients that do not register within this many seconds of connecting
    /// [default: 30]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) handshake_timeout: Option<Duration>,
}

/// Options of TLS. As with ZEO, clients always present a certificate too.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "TLS")]
pub(crate) struct TlsArguments {
    /// PEM file with the server's certificate and its chain, and possibly its key
    #[arg(long, value_name = "PATH", env = "ZODIUM_SSL_CERTIFICATE")]
    pub(crate) ssl_certificate: Option<PathBuf>,

    /// PEM file with the key, if it is not in the file of the certificate
    #[arg(long, value_name = "PATH", env = "ZODIUM_SSL_KEY")]
    pub(crate) ssl_key: Option<PathBuf>,

    /// File with the password of the key in its first line
    #[arg(long, value_name = "PATH", env = "ZODIUM_SSL_KEY_PASSWORD_FILE")]
    pub(crate) ssl_key_password_file: Option<PathBuf>,

    /// PEM file or directory with the certificates of clients, or of the authorities that signed
    /// them
    #[arg(long, value_name = "PATH", env = "ZODIUM_SSL_AUTHENTICATE")]
    pub(crate) ssl_authenticate: Option<PathBuf>,
}

/// Options of the process.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Process")]
pub(crate) struct ProcessArguments {
    /// Number of worker threads; a connection stays on one [default: one per core except one]
    #[arg(long, value_name = "N", env = "ZODIUM_WORKERS")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) workers: Option<u16>,

    /// Poll for the next request for this many microseconds after each, instead of sleeping
    ///
    /// A single client is answered several times faster, since no processor has to be woken up.
    /// The worker's processor is busy meanwhile. About 50 suffices for clients on the same
    /// machine.
    #[arg(long, value_name = "MICROSECONDS", env = "ZODIUM_BUSY_POLL")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) busy_poll: Option<u32>,

    /// Write the process id to this file while serving
    #[arg(long, value_name = "PATH")]
    pub(crate) pid_file: Option<PathBuf>,

    /// Serve metrics, health and a status page over HTTP on HOST:PORT, or PORT of 127.0.0.1
    #[arg(long, value_name = "ADDRESS", env = "ZODIUM_MONITOR")]
    pub(crate) monitor: Option<Address>,
}

/// Options of the log.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Logging")]
pub(crate) struct LogArguments {
    /// Format of log lines: text, or one JSON object a line [default: human]
    #[arg(long, value_name = "FORMAT", value_enum, env = "ZODIUM_LOG_FORMAT")]
    pub(crate) log_format: Option<LogFormatArgument>,

    /// Append log lines to this file, reopened on SIGUSR2, or to STDOUT or STDERR; may be
    /// repeated [default: STDERR]
    #[arg(long, value_name = "PATH", value_parser = destination)]
    #[arg(env = "ZODIUM_LOG_FILE")]
    pub(crate) log_file: Vec<LogDestination>,

    /// Log level: error, warn, info, debug or trace, also by module (`info,zodium_zeo=debug`)
    /// [default: info]
    #[arg(long, value_name = "LEVEL", env = "ZODIUM_LOG")]
    pub(crate) log_level: Option<String>,
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormatArgument {
    /// Time, level, text; in colour on a terminal
    Human,
    /// One JSON object a line
    Json,
}

/// How checksums are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ChecksumsArgument {
    /// Written with commits, and compared with everything that is read
    Full,
    /// Written with commits, and compared with the whole file at intervals, but not with loads
    Commit,
    /// No checksums
    Off,
}

fn destination(text: &str) -> Result<LogDestination, String> {
    match text {
        "" => Err("expected the path of a file".to_owned()),
        "STDOUT" => Ok(LogDestination::Stdout),
        "STDERR" => Ok(LogDestination::Stderr),
        path => Ok(LogDestination::File(path.into())),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

fn frame_size(text: &str) -> Result<u32, String> {
    let size: ByteSize = text.parse()?;
    u32::try_from(size.as_u64())
        .ok()
        .filter(|bytes| *bytes >= 1024)
        .ok_or_else(|| "expected a size from 1KiB to 4095MiB".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_are_checked() {
        assert_eq!(frame_size("1MiB"), Ok(1 << 20));
        assert!(frame_size("5GiB").is_err());
        assert!(frame_size("many").is_err());
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        assert!(seconds("-1").is_err());
    }
}
