//! The command line: every option with its short and its long help.

use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;
use clap::{Args, Parser, Subcommand, ValueEnum};
use zodium_types::Address;

const ABOUT: &str = "A fast, parallel object database server for ZODB.";

const EXAMPLES: &str = "\
Examples:
  zodium serve Data.fs                       serve a database on 127.0.0.1:8100
  zodium serve Data.fs -a 0.0.0.0:8100       ... to other machines
  zodium serve Data.fs -a /run/zeo.sock      ... on a Unix socket
  zodium serve Data.fs --read-only           ... without writing anything

Connect with the ZEO client that ZODB applications use already:
  import ZEO
  db = ZEO.DB(('127.0.0.1', 8100))";

/// The whole command line.
#[derive(Debug, Parser)]
#[command(name = "zodium", version, about = ABOUT, after_help = EXAMPLES)]
#[command(disable_help_subcommand = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve a FileStorage (Data.fs) to ZEO clients
    ///
    /// Opens the file that FileStorage, runzeo and repozo use, makes it when it is not there,
    /// and serves it until SIGTERM or SIGINT. What was acknowledged is on disk; the index is
    /// saved on the way out.
    #[command(after_help = EXAMPLES)]
    Serve(ServeOptions),
    /// Measure Zodium beside its peers, on this machine
    Bench(zodium_bench::BenchOptions),
}

/// Options of `zodium serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeOptions {
    /// The data file, usually called Data.fs; created if absent
    pub(crate) path: PathBuf,

    /// Where to listen: HOST:PORT, PORT, or /path/to/a/socket; may be repeated
    #[arg(short, long, value_name = "ADDRESS", default_value = "127.0.0.1:8100")]
    pub(crate) address: Vec<Address>,

    /// Speak msgpack (M5) instead of pickle (Z5)
    ///
    /// Clients follow the server. They need the msgpack package for it, which not all have:
    /// `pip install msgpack`.
    #[arg(long)]
    pub(crate) msgpack: bool,

    /// Refuse to write, and leave the files as they are
    ///
    /// No lock is taken: the file may be written by another process meanwhile, whose later
    /// transactions are not seen.
    #[arg(long)]
    pub(crate) read_only: bool,

    /// Worker threads; a connection stays on one [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) workers: Option<u16>,

    /// Memory for records that were read or written
    ///
    /// Hits need neither a lock nor a system call. 0 switches the cache off; the operating
    /// system's own still works.
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    pub(crate) cache_size: ByteSize,

    /// The name under which clients ask for the storage
    #[arg(long, value_name = "NAME", default_value = "1")]
    pub(crate) storage_name: String,

    /// Transactions remembered for clients that reconnect with a cache
    ///
    /// Who was away longer has to drop its cache, unless --invalidation-age helps.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) invalidation_queue_size: usize,

    /// Read the log for clients that were away longer, but not longer than this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) invalidation_age: Option<Duration>,

    /// Disconnect a client that holds its locks longer than this between vote and finish
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) transaction_timeout: Option<Duration>,

    /// Let a pack remove old revisions only, no objects
    ///
    /// By default it also removes what cannot be reached from the root object, which is wrong
    /// for objects that only other databases refer to.
    #[arg(long)]
    pub(crate) no_pack_gc: bool,

    /// Do not keep the file from before a pack as Data.fs.old
    #[arg(long)]
    pub(crate) no_pack_keep_old: bool,

    /// Let clients resolve conflicts; they always do, the option is for scripts made for runzeo
    #[arg(long)]
    pub(crate) client_conflict_resolution: bool,

    /// Longest message a client may send; a longer one ends its connection, unread
    #[arg(long, value_name = "SIZE", default_value = "2049MiB", value_parser = frame_size)]
    pub(crate) message_size_max: u32,

    #[command(flatten)]
    pub(crate) logging: LogOptions,
}

/// How to log.
#[derive(Debug, Args)]
#[command(next_help_heading = "Logging")]
pub(crate) struct LogOptions {
    /// How log lines look: for people, or one JSON object a line
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = LogFormat::Human)]
    pub(crate) log_format: LogFormat,

    /// What is logged: error, warn, info, debug or trace, also by module (`info,zodium_zeo=debug`)
    #[arg(long, value_name = "LEVEL", env = "ZODIUM_LOG", default_value = "info")]
    pub(crate) log_level: String,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Time, level, text; in colour on a terminal
    Human,
    /// One JSON object a line
    Json,
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
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn sizes_and_times_are_checked() {
        assert_eq!(frame_size("1MiB"), Ok(1 << 20));
        assert!(frame_size("5GiB").is_err());
        assert!(frame_size("many").is_err());
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        assert!(seconds("-1").is_err());
    }
}
