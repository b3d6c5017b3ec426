//! The programs that are compared, and how each is started as a storage node.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::CLUSTER;
use crate::options::{NeoOptions, Peer, PeerSource};
use crate::programs::{self, absolute};
use crate::server::ServerCommand;

/// Prints the versions that matter.
const VERSIONS_SCRIPT: &str = "\
import platform
from importlib.metadata import version
print('msgpack', version('msgpack'), 'on Python', platform.python_version())
";

/// A program that is a storage node.
#[derive(Debug)]
pub(super) enum Program {
    Zodium { program: PathBuf, options: Vec<String> },
    Neo { python: PathBuf, checkout: PathBuf },
    Peer(Peer),
}

impl Program {
    /// The programs that the options name. NEO/py is left out with a warning if it is not named.
    pub(super) fn all(options: &NeoOptions) -> Result<Vec<Program>> {
        let program = programs::zodium(&options.program)?;
        let mut all = vec![Program::Zodium { program, options: options.zodium_option.clone() }];
        match (&options.neoppod, &options.neoppod_python) {
            (Some(checkout), Some(python)) => {
                let checkout = std::path::absolute(checkout)?;
                all.push(Program::Neo { python: absolute(python)?, checkout });
            }
            _ => eprintln!(
                "NEO/py IS NOT MEASURED: name a checkout with --neoppod or NEOPPOD, and a Python \
                 that runs it with --neoppod-python or NEOPPOD_PYTHON"
            ),
        }
        for peer in &options.peer {
            if let PeerSource::Running(address) = peer.source {
                bail!("the storage node at {address} has another master: give a command");
            }
            all.push(Program::Peer(peer.clone()));
        }
        Ok(all)
    }

    /// Name and version, for people.
    pub(super) fn version(&self, options: &NeoOptions) -> Result<String> {
        match self {
            Program::Zodium { .. } => programs::zodium_version(&options.program),
            Program::Neo { python, .. } => {
                let output = Command::new(python).args(["-c", VERSIONS_SCRIPT]).output();
                let output =
                    output.with_context(|| format!("cannot start {}", python.display()))?;
                let said = String::from_utf8_lossy(&output.stdout);
                Ok(format!("NEO/py with {}", said.trim()))
            }
            Program::Peer(peer) => Ok(peer.name.clone()),
        }
    }

    /// How to start it as the storage node of this number.
    pub(super) fn command(&self, master: SocketAddr, number: u32) -> ServerCommand {
        let options = [
            format!("--cluster={CLUSTER}"),
            format!("--masters={master}"),
            format!("--nid={number}"),
            "--bind=127.0.0.1:{port}".to_owned(),
            "--adapter=SQLite".to_owned(),
            "--database={path}".to_owned(),
        ];
        match self {
            Program::Zodium { program, options: own } => {
                let command = ["neo", "storage", "--log-level=warn"];
                storage("zodium", program, &command).with(&options).with(own)
            }
            Program::Neo { python, checkout } => {
                let script = checkout.join("neostorage").display().to_string();
                storage("neo", python, &[&script]).with(&options)
            }
            Program::Peer(peer) => {
                let PeerSource::Command(command) = &peer.source else {
                    return ServerCommand::peer(peer);
                };
                let command = command
                    .replace("{cluster}", CLUSTER)
                    .replace("{master}", &master.to_string())
                    .replace("{nid}", &number.to_string());
                let source = PeerSource::Command(command);
                ServerCommand::peer(&Peer { name: peer.name.clone(), source })
            }
        }
    }
}

fn storage(name: &str, program: &Path, arguments: &[&str]) -> ServerCommand {
    let arguments: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
    ServerCommand::neo(name, program, arguments)
}
