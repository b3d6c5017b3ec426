//! Shell completions and manual pages, made from the definition of the command line.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, Command};
use clap_complete::Shell;

use crate::streams::print;

/// Options of `zodium completions`.
#[derive(Debug, Args)]
pub(crate) struct CompletionsOptions {
    /// The shell to complete for
    shell: Shell,
}

/// Options of `zodium man`.
#[derive(Debug, Args)]
pub(crate) struct ManOptions {
    /// Folder for the pages, which must exist
    folder: PathBuf,
}

/// Prints the completion script of `command`.
pub(crate) fn completions(options: &CompletionsOptions, mut command: Command) -> Result<()> {
    // In memory first: the generator panics when its output is closed.
    let mut script = Vec::new();
    let name = command.get_name().to_owned();
    clap_complete::generate(options.shell, &mut command, name, &mut script);
    print(&String::from_utf8_lossy(&script)).map(drop)
}

/// Writes a manual page for `command` and one for each of its subcommands.
pub(crate) fn man(options: &ManOptions, command: Command) -> Result<()> {
    let folder = &options.folder;
    clap_mangen::generate_to(command, folder)
        .with_context(|| format!("cannot write manual pages to {}", folder.display()))
}
