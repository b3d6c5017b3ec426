//! The command line: the commands, and help for all of them.

use std::ffi::OsString;

use clap::builder::{Resettable, StyledStr};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use strsim::damerau_levenshtein;

use crate::config::ConfigOptions;
use crate::healthcheck::HealthcheckOptions;
use crate::installation::{CompletionsOptions, ManOptions};
use crate::neo::NeoOptions;
use crate::pack::PackOptions;
use crate::recover::RecoverOptions;
use crate::resp::RespOptions;
use crate::serve::ServeOptions;
use crate::status::StatusOptions;
use crate::tools::{CheckOptions, ToolCommand};

const ABOUT: &str = "A fast, parallel object database server for ZODB.";

const EXAMPLES: &str = "\
Examples:
  zodium serve Data.fs                       serve a database on 127.0.0.1:8100
  zodium serve Data.fs -a 0.0.0.0:8100       ... to other machines
  zodium serve Data.fs -a /run/zeo.sock      ... on a Unix socket
  zodium serve Data.fs --read-only           ... without writing anything
  zodium serve -C zeo.conf                   serve what a zeo.conf (or our TOML) says
  zodium pack 127.0.0.1:8100 --days 3        pack it while it is served
  zodium backup 127.0.0.1:8100 /backup/main  back it up while it is served
  zodium explore Data.fs                     look at it in a browser
  zodium status 127.0.0.1:8100 --watch       what its server does
  zodium dump --log-order Data.fs | zodium load copy.fs
  zodium refs Data.fs --to 0x1a --path       what refers to an object, and from where

Connect with the ZEO client that ZODB applications use already:
  import ZEO
  db = ZEO.DB(('127.0.0.1', 8100))";

const PACK_EXAMPLES: &str = "\
Examples:
  zodium pack 127.0.0.1:8100 --days 3        keep three days of history
  zodium pack 127.0.0.1:8100 -s main         a storage by its name
  zodium pack /run/zeo.sock                  a server on a Unix socket
  zodium pack -C zeo.conf                    the server of this configuration
  zodium pack Data.fs --to 2026-01-31        a file that no server has open, to a time";

/// The whole command line.
#[derive(Debug, Parser)]
#[command(name = "zodium", version = crate::VERSION, about = ABOUT, after_help = EXAMPLES)]
#[command(disable_help_subcommand = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// Reads a command line, and the variables of the environment that replace options.
    pub(crate) fn of(arguments: Vec<OsString>) -> Result<Cli, clap::Error> {
        let command = without_empty_variables(Cli::command());
        let mut matches = command.try_get_matches_from(arguments)?;
        Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut Cli::command()))
    }
}

/// Has an empty variable of the environment count as none, as in the lists of containers.
fn without_empty_variables(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|argument| {
        match argument.get_env().and_then(std::env::var_os).is_some_and(|text| text.is_empty()) {
            true => argument.env(Resettable::Reset),
            false => argument,
        }
    });
    command.mut_subcommands(without_empty_variables)
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve FileStorages (Data.fs) to ZEO clients
    ///
    /// Opens the files that FileStorage, runzeo and repozo use, creates a missing one, and serves
    /// them until SIGTERM or SIGINT. Acknowledged transactions are on disk; the index is saved at
    /// the stop.
    ///
    /// SIGUSR2 reopens log files and reads certificates again. Exit codes: 0 after SIGTERM and
    /// SIGINT, 1 after an error and after SIGHUP, so that a supervisor restarts it, 2 for a wrong
    /// command line.
    #[command(after_help = EXAMPLES)]
    Serve(Box<ServeOptions>),
    /// Check, show or convert a configuration file
    Config(ConfigOptions),
    /// Show how a server is: clients, commits, loads, conflicts and locks of each storage
    ///
    /// Any ZEO server can be asked. The status page (`--monitor`) of a Zodium server shows more.
    Status(Box<StatusOptions>),
    /// Check whether a server is healthy: exit code 0, or 1 with a line that gives the reason
    Healthcheck(Box<HealthcheckOptions>),
    /// Drop old revisions and unreachable objects, of a server's storage or of a data file
    ///
    /// Any ZEO server can be asked to pack, and continues to serve meanwhile. A file is packed in
    /// place if no server has it open; the old one is kept as Data.fs.old. The old file stays
    /// whole until the last moment, so a pack can be interrupted.
    ///
    /// Damage ends a pack. `zodium pack --drop-damaged` drops damaged records, from a file that no
    /// server has open.
    ///
    /// Exit codes: 0 success, 1 an error, 2 a wrong command line, 3 packed, and damaged records
    /// were dropped.
    #[command(after_help = PACK_EXAMPLES)]
    Pack(Box<PackOptions>),
    /// Check a data file with its index, or another storage, and on request the content of objects
    ///
    /// Reports each damage, of a file with its position, and continues after it. Writes nothing and
    /// takes no lock, so a file can be checked while it is served, in its state at the start of the
    /// check. Of a storage that is no file the log and each current object are read, as its clients
    /// see them.
    ///
    /// Exit codes: 0 the storage is whole, 1 it is damaged, 2 it cannot be read.
    Check(CheckOptions),
    /// Copy the whole transactions of a damaged data file into a new one
    ///
    /// Reports the bytes, transactions and objects that are left out. Nothing is written to the
    /// damaged file.
    ///
    /// Exit codes: 0 everything was copied, also if damage was mended, 1 something was left out, or
    /// does not match its checksum, 2 the file cannot be read, or the new one cannot be written.
    Recover(RecoverOptions),
    #[command(flatten)]
    Tool(Box<ToolCommand>),
    /// Run a node of a NEO cluster
    Neo(NeoOptions),
    /// Serve Redis and Valkey clients, without a database
    ///
    /// Keys and values are in memory, and with `--file` also on disk; docs/resp.md says which
    /// commands there are. `zodium serve --resp ADDRESS` serves them beside a database.
    ///
    /// Exit codes: 0 after SIGTERM, SIGINT and SHUTDOWN, 1 after an error and after SIGHUP, 2 for a
    /// wrong command line.
    Resp(RespOptions),
    /// Print a script that completes commands and options in a shell
    ///
    /// In bash, for this session: `source <(zodium completions bash)`.
    Completions(CompletionsOptions),
    /// Write the manual pages, as `make install` does
    #[command(hide = true)]
    Man(ManOptions),
}

/// Most letters by which a misspelled command may differ from its name.
const LETTERS_WRONG_MAX: usize = 2;

/// Advice for words that are not commands.
const ELSEWHERE: [(&[&str], &str); 4] = [
    (
        &["repozo"],
        "`zodium backup --format repozo` and `zodium restore` write and read the folders of repozo",
    ),
    (&["start", "run", "runzeo", "server"], "`zodium serve` starts a server"),
    (&["stop", "restart"], "stop a server with SIGTERM; `zodium status` shows how it is"),
    (
        &["bench", "benchmark"],
        "`zodium bench` is a program of its own now: zodium-bench; build it with `cargo build \
         --release -p zodium-bench`",
    ),
];

/// An error of the command line without suggestions that would do something else.
pub(crate) fn improved(mut error: clap::Error) -> clap::Error {
    if let Some(tip) = tip_for_second_file(&error) {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
        return error;
    }
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

/// The tip for `zodium serve A.fs B.fs`.
fn tip_for_second_file(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let usage = error.get(ContextKind::Usage)?.to_string();
    let is_further = error.kind() == ErrorKind::UnknownArgument && !given.starts_with('-');
    let is_serve = usage.contains(" serve [OPTIONS]");
    (is_further && is_serve).then(|| format!("further data files: -f {given}"))
}

#[cfg(test)]
mod tests {
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
        let text = refusal("repozo");
        assert!(text.contains("'repozo'") && !text.contains("'pack'"), "{text}");
        assert!(text.contains("tip: `zodium backup --format repozo`"), "{text}");
        let text = refusal("bench");
        assert!(text.contains("program of its own now: zodium-bench; build it with"), "{text}");
        assert!(!refusal("something").contains("similar"));
    }

    #[test]
    fn a_second_data_file_is_told_to_be_an_option() {
        let refusal =
            |words: &[&str]| improved(Cli::try_parse_from(words).unwrap_err()).to_string();
        let text = refusal(&["z", "serve", "A.fs", "B.fs"]);
        assert!(text.contains("tip: further data files: -f B.fs"), "{text}");
        for words in [["zodium", "serve", "A.fs", "--B.fs"], ["zodium", "check", "A.fs", "B.fs"]] {
            assert!(!refusal(&words).contains("further data files"));
        }
    }

    #[test]
    fn only_options_of_tls_are_below_its_heading() {
        for command in Cli::command().get_subcommands() {
            for argument in command.get_arguments() {
                let is_below =
                    argument.get_help_heading().is_some_and(|text| text.contains("TLS,"));
                let is_of_tls = argument.get_id().as_str().starts_with("ssl_");
                assert!(!is_below || is_of_tls, "{}: {argument}", command.get_name());
            }
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
