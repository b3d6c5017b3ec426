//! `zodium bench pack`: packing a file beside the stock packer, and what commits notice of a pack.
//!
//! Packers are processes that get a fresh copy of one generated file each round, in turns. Then
//! servers are packed while clients commit, and each commit is timed.

mod history;
mod packers;
mod report;
mod writers;

use anyhow::{Context, Result};

use self::history::History;
use self::packers::Packer;
use self::report::Report;
use crate::interrupt::Interrupt;
use crate::machine::Machine;
use crate::options::PackOptions;
use crate::server::{Server, ServerCommand};

/// Measures and reports.
pub(crate) fn run(options: &PackOptions) -> Result<()> {
    let interrupt = Interrupt::listen()?;
    let machine = Machine::here();
    let folder = tempfile::Builder::new().prefix("zodium-bench-").tempdir()?;
    let path = folder.path().join("Data.fs");
    let history = History::new(options);
    eprintln!("writing {}", history.description());
    history.write(&path).context("cannot write the file")?;

    let program = std::env::current_exe()?;
    // Servers and packers run in folders of their own, where a relative path leads nowhere.
    let python = options.zeo_python.as_deref().map(|python| match python.components().count() {
        0 | 1 => Ok(python.to_owned()),
        _ => std::path::absolute(python),
    });
    let python = python.transpose()?;
    let mut packers = vec![Packer::zodium(&program)];
    let mut servers = vec![ServerCommand::zodium(&program, None, false)];
    if let Some(python) = &python {
        packers.push(Packer::stock(python));
        servers.push(ServerCommand::zeo(python, false));
    }
    let mut report = Report::new(machine, history.description(), std::fs::metadata(&path)?.len());
    for round in 0..options.rounds.into() {
        for place in 0..packers.len() {
            let packer = &packers[(place + round) % packers.len()];
            interrupt.check()?;
            let figures = packer.pack(&path, folder.path())?;
            eprintln!("round {}: {} took {:.2} s", round + 1, packer.name, figures.seconds);
            report.packs.push((packer.name, round, figures));
        }
    }
    for round in 0..options.rounds.into() {
        for place in 0..servers.len() {
            let command = &servers[(place + round) % servers.len()];
            interrupt.check()?;
            let server = Server::start(command, &path, folder.path())?;
            let stalls = writers::measure(&server, options, &history);
            let stalls = stalls.with_context(|| server.last_words())?;
            eprintln!("round {}: {} packed under load", round + 1, server.name);
            report.stalls.push((server.name.clone(), stalls));
            drop(server);
            std::fs::remove_dir_all(folder.path().join(&command.name))?;
        }
    }
    print!("{report}");
    Ok(())
}
