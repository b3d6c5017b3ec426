//! Runs the servers of a comparison and measures them in turns.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::interrupt::Interrupt;
use crate::options::{DatasetOptions, ServerOptions, ZodiumOptions};
use crate::programs::{self, absolute};
use crate::server::{Data, Server, ServerCommand};

/// Prints the versions of ZEO/py and its dependencies.
const VERSIONS_SCRIPT: &str = "\
import platform
from importlib.metadata import version
python = platform.python_version()
print('ZEO/py', version('ZEO'), 'with ZODB', version('ZODB'), 'on Python', python)
";

/// The running servers of a comparison, and the folder with their files.
#[derive(Debug)]
pub(crate) struct Comparison {
    pub(crate) interrupt: Interrupt,
    /// The compared programs with their versions.
    pub(crate) versions: Vec<String>,
    pub(crate) servers: Vec<Server>,
    folder: TempDir,
    /// Folders of servers whose files are elsewhere, and of helper processes.
    other_folders: Vec<TempDir>,
}

impl Comparison {
    /// A comparison without servers yet; its files go to a new folder in `folder`.
    pub(crate) fn prepare(folder: Option<&Path>) -> Result<Comparison> {
        Ok(Comparison {
            interrupt: Interrupt::listen()?,
            versions: Vec::new(),
            servers: Vec::new(),
            folder: new_folder(folder)?,
            other_folders: Vec::new(),
        })
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Starts the servers that the options ask for.
    pub(crate) fn start(&mut self, options: &ServerOptions, data: Data<'_>) -> Result<()> {
        self.start_all(&commands(options)?, data)?;
        self.note_versions(&options.program, options.zeo_python.as_deref())
    }

    pub(crate) fn note_versions(
        &mut self,
        zodium: &ZodiumOptions,
        zeo_python: Option<&Path>,
    ) -> Result<()> {
        self.versions.push(programs::zodium_version(zodium)?);
        self.versions.extend(zeo_python.map(versions).transpose()?);
        Ok(())
    }

    /// Starts these servers.
    pub(crate) fn start_all(&mut self, commands: &[ServerCommand], data: Data<'_>) -> Result<()> {
        self.start_in(None, commands, data)
    }

    /// Starts servers with their files in a new subfolder of `folder`.
    pub(crate) fn start_in(
        &mut self,
        folder: Option<&Path>,
        commands: &[ServerCommand],
        data: Data<'_>,
    ) -> Result<()> {
        let other = folder.map(|folder| new_folder(Some(folder))).transpose()?;
        let folder = other.as_ref().unwrap_or(&self.folder).path().to_owned();
        self.other_folders.extend(other);
        for command in commands {
            let label = command.label();
            let is_new = self.servers.iter().all(|server| server.label() != label);
            ensure!(is_new, "two servers have the same name: {label}");
            self.servers.push(Server::start(command, data, &folder, &self.interrupt)?);
        }
        Ok(())
    }

    /// Starts a helper process that is not measured itself.
    pub(crate) fn start_aside(&self, command: &ServerCommand) -> Result<Server> {
        let folder = tempfile::Builder::new().prefix("aside-").tempdir_in(self.folder.path())?;
        // Its folder is removed with all others.
        Server::start(command, Data::New, &folder.keep(), &self.interrupt)
    }

    /// Measures all cases, round by round. Within a round the servers take turns. Each round begins
    /// with another server, so that no server always follows the same one.
    pub(crate) fn take_turns<C>(
        &self,
        rounds: u16,
        cases: &[C],
        mut measure: impl FnMut(&Server, &C, usize) -> Result<()>,
    ) -> Result<()> {
        for round in 0..usize::from(rounds) {
            for case in cases {
                self.take_turn(round, |server| measure(server, case, round))?;
            }
        }
        Ok(())
    }

    /// Calls `measure` for every server, beginning with another one each round.
    pub(crate) fn take_turn(
        &self,
        round: usize,
        mut measure: impl FnMut(&Server) -> Result<()>,
    ) -> Result<()> {
        let (first, rest) = self.servers.split_at(round % self.servers.len().max(1));
        for server in rest.iter().chain(first) {
            self.interrupt.check()?;
            measure(server).with_context(|| server.last_words())?;
        }
        Ok(())
    }

    /// Prints the expected duration to standard error.
    pub(crate) fn announce(&self, rounds: u16, cases: usize, seconds: f64) {
        let labels: Vec<String> = self.servers.iter().map(Server::label).collect();
        let total = seconds * f64::from(rounds) * cases as f64 * labels.len() as f64;
        eprintln!(
            "{rounds} rounds of {cases} cases with {}: about {} s",
            labels.join(", "),
            total.ceil()
        );
    }
}

fn new_folder(folder: Option<&Path>) -> std::io::Result<TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("zodium-bench-");
    let Some(folder) = folder else { return builder.tempdir() };
    std::fs::create_dir_all(folder)?;
    // Each server runs in its own folder, where a relative path would not resolve.
    builder.tempdir_in(std::path::absolute(folder)?)
}

/// The servers of the options, without the floor.
pub(crate) fn commands(options: &ServerOptions) -> Result<Vec<ServerCommand>> {
    let program = programs::zodium(&options.program)?;
    let mut own = options.zodium_option.clone();
    own.extend(options.workers.map(|count| format!("--workers={count}")));
    let encodings = options.encodings().iter();
    let mut commands: Vec<ServerCommand> =
        encodings.clone().map(|wire| ServerCommand::zodium(&program, wire).with(&own)).collect();
    if let Some(python) = &options.zeo_python {
        let python = absolute(python)?;
        commands.extend(encodings.map(|wire| ServerCommand::zeo(&python, wire)));
    }
    commands.extend(options.peer.iter().map(ServerCommand::peer));
    Ok(commands)
}

/// The floor, unless the options leave it out.
pub(crate) fn floor(
    options: &ServerOptions,
    dataset: &DatasetOptions,
) -> Result<Option<ServerCommand>> {
    let program = programs::own()?;
    Ok((!options.no_floor).then(|| ServerCommand::floor(&program, dataset)))
}

fn versions(python: &Path) -> Result<String> {
    let output = std::process::Command::new(python).args(["-c", VERSIONS_SCRIPT]).output();
    let output = output.with_context(|| format!("cannot start {}", python.display()))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
