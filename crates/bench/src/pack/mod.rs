//! `zodium-bench pack`: packs a file beside the stock packer, and measures commits during a pack.
//!
//! Each packer is a process that gets a fresh copy of one generated file each round, in turns. Then
//! servers are packed while clients commit, and each commit is timed.

mod history;
mod packers;
mod report;
mod writers;

use anyhow::{Context, Result};

use self::history::History;
use self::packers::Packer;
use crate::comparison::Comparison;
use crate::file_system::require_disk;
use crate::machine::Machine;
use crate::options::PackOptions;
use crate::programs::{self, absolute};
use crate::result::Output;
use crate::server::{Data, Server, ServerCommand};

/// Measures and reports.
pub(crate) fn run(options: &PackOptions) -> Result<()> {
    let mut comparison = Comparison::prepare(options.folder.as_deref())?;
    require_disk(comparison.folder())?;
    let mut machine = Machine::here();
    machine.warn();
    comparison.note_versions(&options.program, options.zeo_python.as_deref())?;
    machine.versions.clone_from(&comparison.versions);
    let folder = comparison.folder();
    let path = folder.join("Data.fs");
    let history = History::new(options);
    eprintln!("writing {}", history.description());
    history.write(&path, &comparison.interrupt).context("cannot write the file")?;
    let file_bytes = std::fs::metadata(&path)?.len();

    let program = programs::zodium(&options.program)?;
    let python = options.zeo_python.as_deref().map(absolute).transpose()?;
    let mut packers = vec![Packer::zodium(&program)];
    let mut servers = vec![ServerCommand::zodium(&program, "M5")];
    if let Some(python) = &python {
        packers.push(Packer::stock(python));
        servers.push(ServerCommand::zeo(python, "M5"));
    }
    let mut output = Output::begin(&options.output, machine);
    let title = format!("{}; a file of {} MB", history.description(), file_bytes / 1_000_000);
    let mut packs = report::packs(title);
    for round in 0..options.rounds.into() {
        for place in 0..packers.len() {
            let packer = &packers[(place + round) % packers.len()];
            let metrics = packer.pack(&path, folder, &comparison.interrupt)?;
            eprintln!("round {}: {} took {:.2} s", round + 1, packer.name, metrics.seconds);
            output.take(&mut packs, report::pack(packer.name, round, file_bytes, &metrics));
        }
    }
    output.finish(packs);
    let mut stalls = report::stalls();
    for round in 0..options.rounds.into() {
        for place in 0..servers.len() {
            let command = &servers[(place + round) % servers.len()];
            comparison.interrupt.check()?;
            let interrupt = &comparison.interrupt;
            let server = Server::start(command, Data::Copied(&path), folder, interrupt)?;
            let stalled = writers::measure(&server, options, &history, interrupt);
            let stalled = stalled.with_context(|| server.last_words())?;
            eprintln!("round {}: {} packed under load", round + 1, server.name);
            for sample in report::stall(&server.name, round, &stalled)? {
                output.take(&mut stalls, sample);
            }
            let used = server.data().and_then(std::path::Path::parent).map(ToOwned::to_owned);
            drop(server);
            used.map(std::fs::remove_dir_all).transpose()?;
        }
    }
    output.finish(stalls);
    output.write()
}
