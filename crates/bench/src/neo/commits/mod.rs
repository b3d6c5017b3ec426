//! Commits: clients that update objects of their own, on one storage node or several.

mod client;
mod generator;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result, anyhow, ensure};
use zodium_neo::Message;
use zodium_neo::messages::AskObject;

use self::client::{Committer, Homes, Written};
use self::generator::{Generator, Shared};
use super::cluster::Cluster;
use super::transaction::checksum;
use super::{NeoBench, take_turns};
use crate::commit::content::Content;
use crate::options::NeoOptions;
use crate::reading::{Reading, Used};
use crate::result::{Latencies, Measurement, Output, Sample, Shown};

/// Measures commits on each number of storage nodes.
pub(super) fn run(bench: &NeoBench<'_>, output: &mut Output<'_>) -> Result<()> {
    let options = bench.options;
    let content = Arc::new(Content::new(options.object_bytes));
    let mut measured = measurement(options);
    // Numbers of storage nodes take turns too, so that a disturbance affects all.
    let mut clusters = Vec::new();
    for storages in &options.storages {
        clusters.extend(bench.clusters(usize::from(*storages))?);
    }
    take_turns(bench, &mut clusters, &options.clients, |cluster, clients, round| {
        let commits = Commits { bench, content: &content, clients: usize::from(*clients) };
        output.take(&mut measured, commits.measure(cluster, round)?);
        Ok(())
    })?;
    output.finish(measured);
    Ok(())
}

fn measurement(options: &NeoOptions) -> Measurement {
    let title = format!(
        "Commits of {} objects of {} bytes in a cluster of NEO; {} rounds of {} s, median \
         (min-max)",
        options.objects,
        options.object_bytes,
        options.time.rounds,
        options.time.seconds.as_secs_f64()
    );
    let mut measured = Measurement::new("NeoCommit", title)
        .axis("storages", "storages")
        .axis("clients", "clients")
        .column("transactions_per_second", "transactions/s", Shown::SpreadThousands)
        .go("tx/s", 1.0)
        .column("server_cpu_us", "CPU of the storages us", Shown::Spread)
        .go("cpu-ns/op", 1e3)
        .latency("p50", "p50 us", Shown::Median)
        .latency("p99", "p99", Shown::Median)
        .latency("max", "max", Shown::Median)
        .column("client_cpu_us", "client CPU us", Shown::Median)
        .go("client-cpu-ns/op", 1e3)
        .ratio("server_cpu_us", "zodium", "CPU: zodium / it")
        .ratio("transactions_per_second", "zodium", "tx/s: zodium / it")
        .bars("server_cpu_us")
        .latencies();
    measured.note("All acknowledged data were read back and verified.");
    measured
}

struct Commits<'a> {
    bench: &'a NeoBench<'a>,
    content: &'a Arc<Content>,
    clients: usize,
}

impl Commits<'_> {
    fn measure(&self, cluster: &mut Cluster<'_>, round: usize) -> Result<Sample> {
        let clients = self.connect(cluster)?;
        let (used, commits, clients, latencies) = self.commit(cluster, clients)?;
        let written: Vec<Written> = clients
            .into_iter()
            .flat_map(|client| client.objects)
            .filter(|written| written.count > 0)
            .collect();
        verify(cluster, self.content, &written)?;
        ensure!(commits > 0, "nothing was committed");
        let sample = Sample::new(&self.bench.name_of(cluster), "", round)
            .case("storages", cluster.servers.len())
            .case("clients", self.clients)
            .value("transactions", commits as f64)
            .value("transactions_per_second", commits as f64 / used.time.as_secs_f64());
        let sample = used.values(sample, commits);
        Ok(sample.percentiles("", &latencies).distribution(&latencies))
    }

    fn connect(&self, cluster: &mut Cluster<'_>) -> Result<Vec<Committer>> {
        let homes =
            Homes { partitions: cluster.partitions().into(), storages: cluster.servers.len() };
        let chunk = usize::from(self.bench.options.objects);
        let connect = |_| {
            let sockets = cluster.connect()?;
            Ok(Committer::new(sockets, homes, self.content, &mut cluster.ids, chunk))
        };
        (0..self.clients).map(connect).collect()
    }

    /// Has the clients commit for the time that the options say.
    fn commit(
        &self,
        cluster: &mut Cluster<'_>,
        clients: Vec<Committer>,
    ) -> Result<(Used, u64, Vec<Committer>, Latencies)> {
        let (shared, time) = (Shared::default(), &self.bench.options.time);
        let interrupt = &self.bench.comparison.interrupt;
        let Cluster { servers, masters, ids, .. } = cluster;
        let generator = Generator::new(clients, masters, ids, &shared)?;
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| generator.run());
            let count = || shared.commits.load(Ordering::Relaxed);
            let measure = || -> Result<(Used, u64)> {
                interrupt.sleep(time.warm_up)?;
                // Recording starts before counting, so that every counted commit is recorded.
                shared.counting.store(true, Ordering::Relaxed);
                let (before, commits) = (Reading::of(servers.iter())?, count());
                let happened = || count() > commits || thread.is_finished();
                interrupt.sleep_until(time.seconds, happened)?;
                let commits = count() - commits;
                Ok((before.until(&Reading::of(servers.iter())?), commits))
            };
            let measured = measure();
            shared.stopping.store(true, Ordering::Relaxed);
            let ended = thread.join().map_err(|_| anyhow!("the thread of the clients panicked"))?;
            let (clients, latencies) = ended?;
            let (used, commits) = measured?;
            Ok((used, commits, clients, latencies))
        })
    }
}

/// Reads all acknowledged revisions back.
fn verify(cluster: &mut Cluster<'_>, content: &Content, written: &[Written]) -> Result<()> {
    let mut sockets = cluster.connect()?;
    let partitions = u64::from(cluster.partitions());
    for expected in written {
        let socket = &mut sockets[cluster.home(expected.oid.0 % partitions)];
        socket.send(AskObject { oid: expected.oid, at: None, before: None })?;
        socket
            .wait(|packet| {
                let Message::AnswerObject(answer) = packet.message else { return Ok(None) };
                let count = content.check(expected.oid, answer.data)?;
                ensure!(
                    (answer.oid, answer.serial, count)
                        == (expected.oid, expected.serial, expected.count),
                    "object {} is of {} with count {count}, not of {} with count {}",
                    expected.oid,
                    answer.serial,
                    expected.serial,
                    expected.count
                );
                ensure!(answer.checksum == checksum(answer.data), "a wrong SHA-1 was sent");
                Ok(Some(()))
            })
            .with_context(|| format!("{} objects were acknowledged", written.len()))?;
    }
    Ok(())
}
