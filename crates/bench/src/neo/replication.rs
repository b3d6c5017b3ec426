//! Replication: an empty storage node fetches all objects of another one.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use zodium_neo::messages::{
    AnswerPackOrders, AnswerUnfinishedTransactions, NotifyNodeInformation, StartOperation,
};
use zodium_neo::{CellState, Message, NodeId};

use super::cluster::{Cluster, prepare};
use super::loads::Stored;
use super::socket::Socket;
use super::{NeoBench, take_turns};
use crate::cpu::CpuTime;
use crate::interrupt::Interrupt;
use crate::result::{Measurement, Output, Sample, Shown};
use crate::server::Server;

/// How long a storage node may replicate without a word to its master.
const PATIENCE: Duration = Duration::from_secs(600);
const OBJECT_BYTES: u32 = 1000;

/// Measures the replication of all objects to an empty node.
pub(super) fn run(bench: &NeoBench<'_>, output: &mut Output<'_>) -> Result<()> {
    let options = bench.options;
    let stored = Stored::new(options.replicated_objects, OBJECT_BYTES);
    let mut clusters = bench.clusters(1)?;
    for cluster in &mut clusters {
        eprintln!("writing {} to {}", stored.dataset.description(), bench.name_of(cluster));
        let written = stored.write(cluster, &bench.comparison.interrupt);
        written.with_context(|| cluster.last_words())?;
    }
    let mut measured = measurement(bench, &stored);
    take_turns(bench, &mut clusters, &[()], |cluster, (), round| {
        let sample = measure(cluster, &stored, round, &bench.comparison.interrupt)?;
        output.take(&mut measured, sample);
        Ok(())
    })?;
    output.finish(measured);
    Ok(())
}

fn measurement(bench: &NeoBench<'_>, stored: &Stored) -> Measurement {
    let title = format!(
        "Replication to an empty storage node of NEO: {} in {} partitions; {} rounds, median \
         (min-max)",
        stored.dataset.description(),
        bench.options.partitions,
        bench.options.time.rounds
    );
    let mut measured = Measurement::new("NeoReplication", title)
        .column("objects_per_second", "objects/s", Shown::SpreadThousands)
        .go("objects/s", 1.0)
        .column("source_cpu_us", "CPU of the source us/object", Shown::Spread)
        .go("source-cpu-ns/op", 1e3)
        .column("target_cpu_us", "of the target", Shown::Spread)
        .go("target-cpu-ns/op", 1e3)
        .ratio("objects_per_second", "zodium", "objects/s: zodium / it")
        .bars("objects_per_second");
    measured.note("All objects were loaded from the new node, and verified.");
    measured
}

fn measure(
    cluster: &mut Cluster<'_>,
    stored: &Stored,
    round: usize,
    interrupt: &Interrupt,
) -> Result<Sample> {
    let (target, mut socket, id) = cluster.launch()?;
    let sample = replicate(cluster, &target, &mut socket, id, stored, round);
    let sample = sample.with_context(|| target.last_words())?;
    let client = cluster.client(Some(&mut socket))?;
    let loaded = stored.load_all(&client, &target, interrupt);
    loaded.context("loads from the new storage node failed")?;
    // Stopped before its master leaves it: it would dial again.
    drop(target);
    cluster.change_cells(id, 0, CellState::Discarded)?;
    Ok(sample)
}

fn replicate(
    cluster: &mut Cluster<'_>,
    target: &Server,
    socket: &mut Socket,
    id: NodeId,
    stored: &Stored,
    round: usize,
) -> Result<Sample> {
    cluster.announce_last()?;
    let change = cluster.change_cells(id, 1, CellState::OutOfDate)?;
    let mut rows = cluster.rows();
    for change in &change.changes {
        let cell = zodium_neo::messages::Cell { node: change.node, state: change.state };
        rows[change.partition.0 as usize].push(cell);
    }
    let (timestamp, nodes) = (cluster.time(), cluster.nodes_for(id.number()));
    let nodes = NotifyNodeInformation { timestamp, nodes };
    prepare(socket, nodes, cluster.table(), 1, rows)?;

    let processes = [&cluster.servers[0], target];
    let times = || processes.into_iter().map(cpu_time).collect::<Result<Vec<_>>>();
    let (before, began) = (times()?, Instant::now());
    socket.send(StartOperation { backup: false })?;
    wait_until_done(socket, cluster.partitions(), stored)?;
    let (took, after) = (began.elapsed(), times()?);

    let change = cluster.change_cells(id, 1, CellState::UpToDate)?;
    socket.send(change)?;
    let count = stored.dataset.len() as f64;
    let each = |index: usize| {
        let used = after[index].since(&before[index]);
        used.as_secs_f64() * 1e6 / count
    };
    Ok(Sample::new(&target.name, "", round)
        .value("requests", count)
        .value("seconds", took.as_secs_f64())
        .value("objects_per_second", count / took.as_secs_f64())
        .value("source_cpu_us", each(0))
        .value("target_cpu_us", each(1)))
}

/// Answers a storage node as its master until it has replicated all partitions.
fn wait_until_done(socket: &mut Socket, partitions: u32, stored: &Stored) -> Result<()> {
    let max_tid = stored.dataset.last_tid();
    let mut done = 0;
    socket.set_patience(PATIENCE)?;
    while done < partitions {
        let mut asked = Vec::new();
        socket.receive(|packet| {
            match packet.message {
                Message::NotifyReplicationDone(_) => done += 1,
                Message::AskUnfinishedTransactions(_) => {
                    let answer = AnswerUnfinishedTransactions { max_tid, ttids: Vec::new() };
                    asked.push((packet.id, Message::from(answer)));
                }
                Message::AskPackOrders(_) => {
                    let answer = AnswerPackOrders { orders: Vec::new() };
                    asked.push((packet.id, Message::from(answer)));
                }
                Message::NotifyReady(_) | Message::NotifyPackCompleted(_) => {}
                other => bail!("the new storage node told its master {}", other.name()),
            }
            Ok(())
        })?;
        for (id, answer) in asked {
            socket.answer(id, answer)?;
        }
    }
    Ok(())
}

fn cpu_time(server: &Server) -> Result<CpuTime> {
    server.cpu_time()?.context("a storage node that was not started here")
}
