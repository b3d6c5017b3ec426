//! The command line: the commands, and help for all of them.

use clap::{Parser, Subcommand};

use crate::serve::ServeOptions;

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
    /// Serve FileStorages (Data.fs) to ZEO clients
    ///
    /// Opens the files that FileStorage, runzeo and repozo use, makes one that is not there,
    /// and serves them until SIGTERM or SIGINT. What was acknowledged is on disk; the index is
    /// saved on the way out.
    #[command(after_help = EXAMPLES)]
    Serve(Box<ServeOptions>),
    /// Measure Zodium beside its peers, on this machine
    Bench(zodium_bench::BenchOptions),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
