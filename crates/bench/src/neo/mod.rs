//! `zodium-bench neo`: storage nodes of NEO side by side.
//!
//! Key decision: the master and the clients are in this process, and native. So the processor time
//! of a storage node is its own work, and no other program bounds the rate.

mod cluster;
mod commits;
mod ids;
mod loads;
mod program;
mod replication;
mod socket;
mod transaction;

use anyhow::{Context, Result};

use self::cluster::Cluster;
use self::program::Program;
use crate::comparison::Comparison;
use crate::machine::Machine;
use crate::options::{NeoOptions, NeoPart};
use crate::result::Output;

/// The name of the clusters.
const CLUSTER: &str = "bench";

/// Measures and reports.
pub(crate) fn run(options: &NeoOptions) -> Result<()> {
    let comparison = Comparison::prepare(options.folder.as_deref())?;
    let mut machine = Machine::here();
    machine.warn();
    let programs = Program::all(options)?;
    let versions = programs.iter().map(|program| program.version(options));
    machine.versions = versions.collect::<Result<_>>()?;
    let mut output = Output::begin(&options.output, machine);
    let bench = NeoBench { options, comparison, programs };
    for part in &options.measure {
        match part {
            NeoPart::Loads => loads::run(&bench, &mut output)?,
            NeoPart::Commits => commits::run(&bench, &mut output)?,
            NeoPart::Replication => replication::run(&bench, &mut output)?,
        }
    }
    drop(bench);
    output.write()
}

/// What all parts have in common.
struct NeoBench<'a> {
    options: &'a NeoOptions,
    comparison: Comparison,
    programs: Vec<Program>,
}

impl NeoBench<'_> {
    /// Starts a cluster of each program.
    fn clusters(&self, storages: usize) -> Result<Vec<Cluster<'_>>> {
        let start = |program| {
            let Comparison { interrupt, .. } = &self.comparison;
            interrupt.check()?;
            let place = (self.comparison.folder(), interrupt);
            Cluster::start(program, storages, self.options.partitions, place)
        };
        self.programs.iter().map(start).collect()
    }

    /// The name of the program of a cluster.
    fn name_of(&self, cluster: &Cluster<'_>) -> String {
        cluster.servers.first().map(|server| server.name.clone()).unwrap_or_default()
    }
}

/// Measures all cases with each cluster, round by round; each round begins with another cluster.
fn take_turns<'a, C>(
    bench: &NeoBench<'_>,
    clusters: &mut [Cluster<'a>],
    cases: &[C],
    mut measure: impl FnMut(&mut Cluster<'a>, &C, usize) -> Result<()>,
) -> Result<()> {
    let count = clusters.len().max(1);
    for round in 0..usize::from(bench.options.time.rounds) {
        for case in cases {
            for place in 0..clusters.len() {
                bench.comparison.interrupt.check()?;
                let cluster = &mut clusters[(place + round) % count];
                let measured = measure(cluster, case, round);
                measured.with_context(|| cluster.last_words())?;
            }
        }
    }
    Ok(())
}
