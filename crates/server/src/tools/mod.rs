//! The commands for databases of any kind: `zodium COMMAND STORAGE`.
//!
//! Exit codes: 0 for success, 1 for a difference or damage, 2 for what cannot be done. When the
//! program that reads the output ends, so does the command, with 0.

mod analyze;
mod archive_status;
mod archiving;
mod backup;
mod blob_part;
mod blobs;
mod catobj;
mod check;
mod check_btrees;
mod check_log;
mod check_options;
mod commit;
mod compare;
mod copy;
mod dump;
mod explore;
mod following;
mod gc;
mod info;
mod load;
mod oids;
mod open;
mod output;
pub(crate) mod part;
mod prune;
mod refs;
mod remote;
mod repositories;
mod restore;
mod shared;
mod shown;
mod stats;
pub(crate) mod storage_name;
mod sweeping;
mod tail;
mod view;
mod watch;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use zodium_backup::BackupError;
use zodium_tools::ToolError;

pub(crate) use check_options::CheckOptions;

pub(crate) use self::storage_name::is_sqlite;
use crate::error_text::in_words;
use crate::streams::complain;

/// Exit code for a difference, and for damage.
const DIFFERENT: u8 = 1;
/// Exit code for what cannot be done.
const IMPOSSIBLE: u8 = 2;

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum ToolCommand {
    /// Show a storage as web pages: transactions, objects, history, sizes
    ///
    /// Serves the pages on loopback until it is interrupted. It only reads, unless --allow-undo is
    /// given. Classes are never imported. docs/explorer.md describes the pages.
    Explore(explore::ExploreOptions),
    /// Back a storage up, or verify a backup
    ///
    /// Copies what is not there yet. The storage may be served meanwhile. `zodium restore` makes a
    /// storage of a backup. docs/backup.md describes repositories, keys and object stores.
    Backup(backup::BackupOptions),
    /// Restore a storage from a backup, as it was last or at a time
    Restore(restore::RestoreOptions),
    /// Remove restore points of a repository, and what only they need
    Prune(prune::PruneOptions),
    /// Copy all transactions into another storage, of any kind
    ///
    /// Tids, statuses, metadata and back pointers are kept. Blobs are copied to the directory of
    /// --to-blob-dir. At the end the two storages are compared: exit code 1 if they differ.
    #[command(visible_alias = "convert")]
    Copy(copy::CopyOptions),
    /// Compare two storages: exit code 0 if they are equal, 1 if not
    ///
    /// Compares tids, statuses, metadata and records. The storages may be of different kinds.
    Cmp(compare::CompareOptions),
    /// Print all transactions with their objects, in the format of zodbtools
    ///
    /// `zodium load` and zodbtools' `zodb restore` write such a dump into another storage, and
    /// `zodium commit` commits one transaction of it.
    Dump(dump::DumpArguments),
    /// Write the transactions of a dump into a storage, with their tids
    ///
    /// Reads standard input, and prints the tid of each transaction that is durable. Transactions
    /// must be later than those of the storage. A missing file is created.
    Load(load::LoadOptions),
    /// Commit one transaction, which is read from standard input
    ///
    /// The input is a transaction of a dump without its first line. An object that was changed
    /// after transaction AT is a conflict: nothing is committed then. Prints the new tid.
    Commit(commit::CommitOptions),
    /// Print name, size and last transaction of a storage
    Info(info::InfoOptions),
    /// Print the newest transactions, the newest first
    Tail(tail::TailOptions),
    /// Print transactions as they are committed, until it is interrupted
    Watch(watch::WatchOptions),
    /// Print the data of an object as of a transaction
    Catobj(catobj::CatobjOptions),
    /// Print the history of objects, what they refer to, and what refers to them
    Oids(oids::OidsOptions),
    /// Report references that lead nowhere, or what refers to an object, and by which path
    ///
    /// Looks at the current revisions. Weak references, and those to other databases, do not count.
    /// Exit code 1 if a reference leads nowhere.
    Refs(refs::RefsOptions),
    /// Print how many objects and bytes there are of each class, in all transactions
    Analyze(analyze::AnalyzeOptions),
    /// Print how many current objects and bytes there are of each class
    Stats(stats::StatsOptions),
    /// Delete the objects that nothing leads to, in databases that refer to each other
    ///
    /// Works beside other writers. The bytes are freed by the next pack, which must not collect
    /// garbage itself where databases refer to each other (`pack-gc false`). Nothing is deleted if
    /// references of an object cannot be read, or lead to a database that is not given.
    Gc(gc::GcOptions),
}

/// Runs a command.
pub(crate) fn run(command: &ToolCommand) -> Result<ExitCode> {
    finished(match command {
        ToolCommand::Info(options) => info::run(options),
        ToolCommand::Dump(options) => dump::run(options),
        ToolCommand::Load(options) => load::run(options),
        ToolCommand::Commit(options) => commit::run(options),
        ToolCommand::Cmp(options) => compare::run(options),
        ToolCommand::Catobj(options) => catobj::run(options),
        ToolCommand::Analyze(options) => analyze::run(options),
        ToolCommand::Stats(options) => stats::run(options),
        ToolCommand::Tail(options) => tail::run(options),
        ToolCommand::Oids(options) => oids::run(options),
        ToolCommand::Refs(options) => refs::run(options),
        ToolCommand::Explore(options) => explore::run(options),
        ToolCommand::Gc(options) => gc::run(options),
        ToolCommand::Backup(options) => backup::run(options),
        ToolCommand::Prune(options) => prune::run(options),
        ToolCommand::Restore(options) => restore::run(options),
        ToolCommand::Watch(options) => watch::run(options),
        ToolCommand::Copy(options) => copy::run(options),
    })
}

/// Runs `zodium check`, which has a place of its own among the commands.
pub(crate) fn check(options: &CheckOptions) -> Result<ExitCode> {
    finished(check::run(options))
}

/// The exit code of a command, whose error is printed here.
fn finished(outcome: Result<ExitCode>) -> Result<ExitCode> {
    let error = match outcome {
        Err(error) if !error.is::<clap::Error>() => error,
        outcome => return outcome,
    };
    let is_damaged_backup = error.downcast_ref().is_some_and(BackupError::is_damage);
    let code = match error.downcast_ref::<ToolError>() {
        Some(error) if error.is_closed_pipe() => return Ok(ExitCode::SUCCESS),
        Some(error) if error.is_damage() => DIFFERENT,
        _ if is_damaged_backup => DIFFERENT,
        _ => IMPOSSIBLE,
    };
    complain!("zodium: {}", in_words(&error));
    Ok(ExitCode::from(code))
}
