//! The command line: the commands, and help for all of them.

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue};
use clap::{Parser, Subcommand};
use strsim::damerau_levenshtein;

use crate::check::CheckOptions;
use crate::config::ConfigOptions;
use crate::healthcheck::HealthcheckOptions;
use crate::installation::{CompletionsOptions, ManOptions};
use crate::pack::PackOptions;
use crate::recover::RecoverOptions;
use crate::serve::ServeOptions;

const ABOUT: &str = "A fast, parallel object database server for ZODB.";

const EXAMPLES: &str = "\
Examples:
  zodium serve Data.fs                       serve a database on 127.0.0.1:8100
  zodium serve Data.fs -a 0.0.0.0:8100       ... to other machines
  zodium serve Data.fs -a /run/zeo.sock      ... on a Unix socket
  zodium serve Data.fs --read-only           ... without writing anything
  zodium serve -C zeo.conf                   serve what a zeo.conf (or our TOML) says
  zodium pack 127.0.0.1:8100 --days 3        pack it while it is served

Connect with the ZEO client that ZODB applications use already:
  import ZEO
  db = ZEO.DB(('127.0.0.1', 8100))";

const PACK_EXAMPLES: &str = "\
Examples:
  zodium pack 127.0.0.1:8100 --days 3        keep three days of history
  zodium pack 127.0.0.1:8100 -s main         a storage by its name
  zodium pack /run/zeo.sock                  a server on a Unix socket
  zodium pack -C zeo.conf                    the server that this configuration is of
  zodium pack Data.fs --to 2026-01-31        a file that nobody serves, to a time";

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
    ///
    /// SIGUSR2 opens log files and certificates anew. Exit code 0 after SIGTERM and SIGINT; 1
    /// when something went wrong, and after SIGHUP, to be started again; 2 for a wrong command
    /// line.
    #[command(after_help = EXAMPLES)]
    Serve(Box<ServeOptions>),
    /// Check, show or convert a configuration file
    Config(ConfigOptions),
    /// Drop old revisions and unreachable objects, of a server's storage or of a data file
    ///
    /// A server is asked to pack, whichever ZEO server it is, and goes on serving meanwhile. A
    /// file is packed in place when nobody serves it; the one from before is kept as
    /// Data.fs.old. Until the last moment the old file is whole: a pack can be interrupted.
    ///
    /// Damage ends a pack. `zodium pack --drop-damaged` leaves damaged records out, of a file that
    /// nobody serves.
    ///
    /// Exit codes: 0 all went well, 1 something failed, 2 a wrong command line, 3 packed, and
    /// damaged records were dropped.
    #[command(after_help = PACK_EXAMPLES)]
    Pack(Box<PackOptions>),
    /// Check a data file, its index and, on request, what is in its objects
    ///
    /// Tells every damage by its position, and goes on after it. Writes nothing and takes no lock:
    /// a file that is being served may be checked, as it is at the start.
    ///
    /// Exit codes: 0 the file is whole, 1 it is damaged, 2 it cannot be read.
    Check(CheckOptions),
    /// Copy what is whole out of a damaged data file into a new one
    ///
    /// Tells what is left out, by bytes, transactions and objects. Nothing is written to the
    /// damaged file.
    ///
    /// Exit codes: 0 all was copied, 1 something was left out, 2 the file cannot be read, or the
    /// new one not written.
    Recover(RecoverOptions),
    /// Ask a server whether it is well: exit code 0, or 1 with a line that says why not
    Healthcheck(Box<HealthcheckOptions>),
    /// Print a script that completes commands and options in a shell
    ///
    /// In bash, for this session: `source <(zodium completions bash)`.
    Completions(CompletionsOptions),
    /// Write the manual pages, as `make install` does
    #[command(hide = true)]
    Man(ManOptions),
}

/// A name that differs by more letters than this is no misspelling of a command.
const LETTERS_WRONG_MAX: usize = 2;

/// What is done about things for which there is no command.
const ELSEWHERE: [(&[&str], &str); 4] = [
    (
        &["backup", "restore", "repozo", "dump"],
        "repozo, which comes with ZODB, backs a data file up and restores it, also while Zodium \
         serves it; docs/operating.md says how",
    ),
    (&["start", "run", "runzeo", "server"], "`zodium serve` starts a server"),
    (&["stop", "restart", "status"], "a server ends with SIGTERM; `zodium healthcheck` asks one"),
    (
        &["bench", "benchmark"],
        "`zodium bench` is a program of its own now: zodium-bench; build it with `cargo build \
         --release -p zodium-bench`",
    ),
];

/// An error of the command line without suggestions that would do something else.
pub(crate) fn improved(mut error: clap::Error) -> clap::Error {
    let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidSubcommand) else {
        return error;
    };
    let given = given.clone();
    if let Some(ContextValue::Strings(similar)) = error.remove(ContextKind::SuggestedSubcommand) {
        let is_misspelt = |name: &String| damerau_levenshtein(name, &given) <= LETTERS_WRONG_MAX;
        let similar: Vec<_> = similar.into_iter().filter(is_misspelt).collect();
        if !similar.is_empty() {
            error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(similar));
        }
    }
    let elsewhere = ELSEWHERE.iter().find(|(names, _)| names.contains(&given.as_str()));
    if let Some((_, tip)) = elsewhere {
        let tips = vec![StyledStr::from(*tip)];
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    }
    error
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn refusal(word: &str) -> String {
        improved(Cli::try_parse_from(["zodium", word]).unwrap_err()).to_string()
    }

    #[test]
    fn only_misspelt_commands_are_corrected() {
        for (misspelt, meant) in [("pak", "pack"), ("srve", "serve"), ("chekc", "check")] {
            let text = refusal(misspelt);
            assert!(text.contains(&format!("a similar subcommand exists: '{meant}'")), "{text}");
        }
        let text = refusal("backup");
        assert!(text.contains("'backup'") && !text.contains("'pack'"), "{text}");
        assert!(text.contains("tip: repozo, which comes with ZODB"), "{text}");
        let text = refusal("bench");
        assert!(text.contains("program of its own now: zodium-bench; build it with"), "{text}");
        assert!(!refusal("something").contains("similar"));
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
