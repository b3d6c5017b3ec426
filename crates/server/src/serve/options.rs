//! The options of `zodium serve`.
//!
//! None has a default here: what is not given is left to the configuration, whose model has the
//! defaults. The help names them.

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

    /// Another data file: storages are called 1, 2, ... in the order given; may be repeated
    #[arg(short, long, value_name = "PATH")]
    pub(crate) filename: Vec<PathBuf>,

    /// A configuration: a zeo.conf as runzeo reads it, or TOML
    ///
    /// Options override what it says; data files given replace all its storages. `zodium config
    /// check` tells what is wrong with one.
    #[arg(short = 'C', long, alias = "configure", value_name = "FILE", env = "ZODIUM_CONFIG")]
    pub(crate) config: Option<PathBuf>,

    /// Where to listen: HOST:PORT, PORT, or /path/to/a/socket; may be repeated
    /// [default: 127.0.0.1:8100]
    #[arg(short, long, value_name = "ADDRESS", env = "ZODIUM_ADDRESS", value_delimiter = ',')]
    pub(crate) address: Vec<Address>,

    /// Speak msgpack (M5) instead of pickle (Z5)
    ///
    /// Clients follow the server. They need the msgpack package for it, which not all have:
    /// `pip install msgpack`.
    #[arg(long, env = "ZODIUM_MSGPACK", value_parser = FalseyValueParser::new())]
    pub(crate) msgpack: bool,

    /// Refuse to write, and leave the files as they are
    ///
    /// No lock is taken: a file may be written by another process meanwhile, whose later
    /// transactions are not seen. In place of a file that does not exist an empty database is
    /// served.
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

/// How storages are kept.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Storages")]
pub(crate) struct StorageArguments {
    /// Memory for records that were read or written, for each storage [default: 256MiB]
    ///
    /// Hits need neither a lock nor a system call. 0 switches the cache off; the operating
    /// system's own still works.
    #[arg(long, value_name = "SIZE", env = "ZODIUM_CACHE_SIZE")]
    pub(crate) cache_size: Option<ByteSize>,

    /// The name under which clients ask for the storage [default: 1]
    #[arg(long, value_name = "NAME", env = "ZODIUM_STORAGE_NAME")]
    pub(crate) storage_name: Option<String>,

    /// Where blobs are kept; without it they are refused
    #[arg(long, value_name = "PATH", env = "ZODIUM_BLOB_DIR")]
    pub(crate) blob_dir: Option<PathBuf>,

    /// Refuse commits that would make the data file larger than this
    #[arg(long, value_name = "SIZE")]
    pub(crate) quota: Option<ByteSize>,

    /// Whether to keep checksums beside the data file, and to hold loads against them
    /// [default: full]
    #[arg(long, value_name = "WHEN", value_enum, env = "ZODIUM_CHECKSUMS")]
    pub(crate) checksums: Option<ChecksumsArgument>,

    /// Hold the whole file against its checksums this often; 0: never [default: 604800, a week]
    #[arg(long, value_name = "SECONDS", value_parser = seconds, env = "ZODIUM_SCRUB_INTERVAL")]
    pub(crate) scrub_interval: Option<Duration>,

    /// Let a pack remove old revisions only, no objects
    ///
    /// By default it also removes what cannot be reached from the root object, which is wrong
    /// for objects that only other databases refer to.
    #[arg(long)]
    pub(crate) no_pack_gc: bool,

    /// Do not keep the file from before a pack as Data.fs.old
    #[arg(long)]
    pub(crate) no_pack_keep_old: bool,

    /// After a failed write, refuse commits until SIGUSR1 or a restart
    ///
    /// Else the server reopens the file by itself, once the disk holds all that was committed
    /// and can be written to.
    #[arg(long, env = "ZODIUM_NO_REOPEN", value_parser = FalseyValueParser::new())]
    pub(crate) no_reopen: bool,
}

/// What clients may expect.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Clients")]
pub(crate) struct ClientArguments {
    /// Transactions remembered for clients that reconnect with a cache [default: 100]
    ///
    /// Who was away longer has to drop its cache, unless --invalidation-age helps.
    #[arg(long, value_name = "N")]
    pub(crate) invalidation_queue_size: Option<usize>,

    /// Read the log for clients that were away longer, but not longer than this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) invalidation_age: Option<Duration>,

    /// Disconnect a client that holds its locks longer than this between vote and finish
    #[arg(short, long, alias = "timeout", value_name = "SECONDS", value_parser = seconds)]
    #[arg(env = "ZODIUM_TRANSACTION_TIMEOUT")]
    pub(crate) transaction_timeout: Option<Duration>,

    /// Leave all conflicts to clients, those of BTrees and Length as well
    #[arg(long)]
    pub(crate) client_conflict_resolution: bool,

    /// A class (module.Class) that clients can resolve conflicts of; may be repeated, * for all
    ///
    /// An undo of what was changed later is then given to the client that asks for it, as a
    /// store that conflicts would be. Of all other classes, but those of BTrees and Length,
    /// such an undo is refused.
    #[arg(long, value_name = "CLASS", env = "ZODIUM_RESOLVABLE_CLASSES", value_delimiter = ' ')]
    pub(crate) resolvable_class: Vec<String>,

    /// A Python that resolves conflicts with the application's classes, as runzeo does itself
    ///
    /// The path of an interpreter, or its name if it is in PATH: one that has ZODB and the
    /// application. The server starts it as a process of its own, with limits and few rights. It
    /// executes what records name, as runzeo does; see docs/conflicts.md.
    #[arg(long, value_name = "PYTHON", env = "ZODIUM_PYTHON_RESOLVER")]
    pub(crate) python_resolver: Option<PathBuf>,

    /// Longest message a client may send; a longer one ends its connection, unread
    /// [default: 2049MiB]
    #[arg(long, value_name = "SIZE", value_parser = frame_size)]
    pub(crate) message_size_max: Option<u32>,

    /// Connections that may be open; more are closed at once [default: what the limit of open
    /// files, which is raised as far as it goes, leaves room for]
    #[arg(long, value_name = "N", env = "ZODIUM_CONNECTIONS_MAX")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) connections_max: Option<u32>,

    /// Memory that clients may make the server hold: messages, stores, answers. At the limit
    /// clients wait, and large transactions are refused [default: a quarter of what there is]
    #[arg(long, value_name = "SIZE", env = "ZODIUM_MEMORY_LIMIT")]
    pub(crate) memory_limit: Option<ByteSize>,

    /// Disconnect who has not registered in this time after connecting [default: 30]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) handshake_timeout: Option<Duration>,
}

/// Encryption, as ZEO has it: clients always show a certificate, too.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "TLS")]
pub(crate) struct TlsArguments {
    /// PEM file with the certificate of the server and its chain, perhaps also its key
    #[arg(long, value_name = "PATH", env = "ZODIUM_SSL_CERTIFICATE")]
    pub(crate) ssl_certificate: Option<PathBuf>,

    /// PEM file with the key, if it is not in the file of the certificate
    #[arg(long, value_name = "PATH", env = "ZODIUM_SSL_KEY")]
    pub(crate) ssl_key: Option<PathBuf>,

    /// File whose first line is the password of the key
    #[arg(long, value_name = "PATH", env = "ZODIUM_SSL_KEY_PASSWORD_FILE")]
    pub(crate) ssl_key_password_file: Option<PathBuf>,

    /// PEM file or directory with the certificates of clients, or of those who signed them
    #[arg(long, value_name = "PATH", env = "ZODIUM_SSL_AUTHENTICATE")]
    pub(crate) ssl_authenticate: Option<PathBuf>,
}

/// The process.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Process")]
pub(crate) struct ProcessArguments {
    /// Worker threads; a connection stays on one [default: one per core but one]
    #[arg(long, value_name = "N", env = "ZODIUM_WORKERS")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) workers: Option<u16>,

    /// Look for the next request without sleeping for so many microseconds after each
    ///
    /// A lone client is answered several times faster, since no processor has to be woken up, and
    /// a worker's processor is busy meanwhile. About 50 suffices for clients on the same machine.
    #[arg(long, value_name = "MICROSECONDS", env = "ZODIUM_BUSY_POLL")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) busy_poll: Option<u32>,

    /// Write the process id into this file while serving
    #[arg(long, value_name = "PATH")]
    pub(crate) pid_file: Option<PathBuf>,

    /// Serve metrics, health and a status page over HTTP on HOST:PORT, or PORT of 127.0.0.1
    #[arg(long, value_name = "ADDRESS", env = "ZODIUM_MONITOR")]
    pub(crate) monitor: Option<Address>,
}

/// How to log.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Logging")]
pub(crate) struct LogArguments {
    /// How log lines look: for people, or one JSON object a line [default: human]
    #[arg(long, value_name = "FORMAT", value_enum, env = "ZODIUM_LOG_FORMAT")]
    pub(crate) log_format: Option<LogFormatArgument>,

    /// Append log lines to this file, opened anew on SIGUSR2; STDOUT and STDERR mean those; may
    /// be repeated [default: STDERR]
    #[arg(long, value_name = "PATH", value_parser = destination)]
    #[arg(env = "ZODIUM_LOG_FILE")]
    pub(crate) log_file: Vec<LogDestination>,

    /// What is logged: error, warn, info, debug or trace, also by module
    /// (`info,zodium_zeo=debug`) [default: info]
    #[arg(long, value_name = "LEVEL", env = "ZODIUM_LOG")]
    pub(crate) log_level: Option<String>,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormatArgument {
    /// Time, level, text; in colour on a terminal
    Human,
    /// One JSON object a line
    Json,
}

/// What is done with checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ChecksumsArgument {
    /// They are written with commits, and whatever is read is held against them
    Full,
    /// They are written, and the file is held against them now and then, but not each load
    Commit,
    /// There are none
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
