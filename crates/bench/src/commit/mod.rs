//! `zodium-bench commit`: throughput, latency and cost of commits, beside the peers.

mod batches;
mod client;
pub(crate) mod content;
pub(crate) mod delay;
mod delayed;
mod generator;
mod journal;
mod link;
mod report;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use zodium_pickle::Value;

use self::batches::Batches;
use self::client::{Client, ClientMetrics};
use self::content::Content;
use self::generator::Generator;
use self::journal::Journal;
use self::link::Link;
use self::report::Case;
use crate::comparison::{Comparison, commands};
use crate::file_system::require_disk;
use crate::machine::Machine;
use crate::options::{CommitOptions, Files, Mode};
use crate::reading::{Reading, Used};
use crate::result::Output;
use crate::server::{Data, Server, ServerCommand};

/// Number of objects that all clients write in conflict mode.
const SHARED_OBJECTS: usize = 8;
/// Number of transactions after which an updating client writes the same objects again.
const OWN_TRANSACTIONS: usize = 8;
/// Number of round trips measured before a case.
const ROUND_TRIPS: usize = 9;

/// Measures and reports.
pub(crate) fn run(options: &CommitOptions) -> Result<()> {
    let mut comparison = Comparison::prepare(options.servers.folder.as_deref())?;
    let mut machine = Machine::here();
    machine.warn();
    // Zodium reports batch sizes over HTTP; it counts them in any case.
    let mut servers = options.servers.clone();
    servers.zodium_option.push("--monitor=127.0.0.1:{monitor}".to_owned());
    let commands = commands(&servers)?;
    for files in &options.files {
        if *files == Files::Disk {
            require_disk(comparison.folder())?;
        }
        let memory = (*files == Files::Tmpfs).then_some(options.tmpfs.as_path());
        let placed: Vec<ServerCommand> =
            commands.iter().map(|command| command.clone().at(files.name())).collect();
        comparison.start_in(memory, &placed, Data::New)?;
    }
    comparison.note_versions(&servers.program, servers.zeo_python.as_deref())?;
    machine.versions.clone_from(&comparison.versions);

    let bench = Bench { options, content: Arc::new(Content::new(options.object_bytes)) };
    let cases = bench.cases();
    let time = &options.time;
    comparison.announce(time.rounds, cases.len(), (time.seconds + time.warm_up).as_secs_f64());
    let mut output = Output::begin(&options.output, machine);
    let (mut commits, mut steps) = (report::commits(options), report::steps());
    let mut lone = LoneClients::default();
    comparison.take_turns(time.rounds, &cases, |server, case, round| {
        let mut measured = bench.measure(&comparison, server, case)?;
        measured.rate_of_one = lone.rate(server, case, round, &measured);
        output.take(&mut commits, report::commit(server, case, round, &measured));
        for sample in report::operations(server, case, round, &measured) {
            output.take(&mut steps, sample);
        }
        Ok(())
    })?;
    drop(comparison);
    output.finish(commits);
    output.finish(steps);
    output.write()
}

/// Rates of a single client by server, mode, round trip and round, as the baseline of more clients.
#[derive(Default)]
struct LoneClients(HashMap<(String, &'static str, Duration, usize), f64>);

impl LoneClients {
    /// The baseline rate of a case; `None` if it was not measured before.
    fn rate(
        &mut self,
        server: &Server,
        case: &Case,
        round: usize,
        measured: &Measured,
    ) -> Option<f64> {
        let key = (server.label(), case.mode.name(), case.delay, round);
        if case.clients > 1 {
            return self.0.get(&key).copied();
        }
        self.0.insert(key, measured.commits as f64 / measured.used.time.as_secs_f64());
        None
    }
}

struct Bench<'a> {
    options: &'a CommitOptions,
    content: Arc<Content>,
}

/// Results of a server in a case.
struct Measured {
    wire: &'static str,
    used: Used,
    commits: u64,
    round_trip: Duration,
    /// Transactions per second of a single client.
    rate_of_one: Option<f64>,
    /// Since the case began, if the server reports them.
    batches: Option<Batches>,
    /// One for each client.
    metrics: Vec<ClientMetrics>,
}

impl Bench<'_> {
    fn cases(&self) -> Vec<Case> {
        let mut cases = Vec::new();
        let mut all_clients = self.options.clients.clone();
        // A single client first: it is the baseline of the others.
        all_clients.sort_unstable();
        for mode in &self.options.modes {
            for delay in &self.options.delays_ms {
                for clients in &all_clients {
                    cases.push(Case { mode: *mode, delay: *delay, clients: (*clients).into() });
                }
            }
        }
        cases
    }

    fn measure(&self, comparison: &Comparison, server: &Server, case: &Case) -> Result<Measured> {
        let (clients, journal) = self.clients(server, case)?;
        let mut link = Link::open(server.address)?;
        let wire = link.wire_name();
        let round_trip = round_trip(&mut link, case.delay)?;
        let generator = Generator::start(clients, case.delay)?;
        comparison.interrupt.sleep(self.options.time.warm_up)?;
        let earlier = Batches::of(server.monitor)?;
        // Recording starts before counting, so that every counted commit is recorded.
        generator.count(true);
        let (before, commits) = (Reading::take(server)?, generator.commits());
        // Each client has begun at most one commit earlier, so one more has all its steps here.
        let enough = commits + case.clients as u64;
        let happened = || generator.commits() > enough || generator.has_ended();
        comparison.interrupt.sleep_until(self.options.time.seconds, happened)?;
        // Before the time is taken: on a busy machine too, no commit counts that came later.
        let commits = generator.commits() - commits;
        let after = Reading::take(server)?;
        generator.count(false);
        let later = Batches::of(server.monitor)?;
        let clients = generator.finish()?;
        let metrics = self.verify(server, clients, journal)?;
        let batches = later.zip(earlier).map(|(later, earlier)| Batches {
            syncs: later.syncs - earlier.syncs,
            transactions: later.transactions - earlier.transactions,
        });
        anyhow::ensure!(commits > 0, "nothing was committed");
        let used = before.until(&after);
        Ok(Measured { wire, used, commits, round_trip, rate_of_one: None, batches, metrics })
    }

    /// Creates clients with objects to write, committed without a delay; also returns the journal
    /// of these commits.
    fn clients(&self, server: &Server, case: &Case) -> Result<(Vec<Client>, Journal)> {
        let objects = usize::from(self.options.objects);
        let client = |seed: usize| {
            let content = Arc::clone(&self.content);
            Client::new(Link::open(server.address)?, content, case.mode, objects, seed as u64 + 1)
        };
        let mut journal = Journal::default();
        let mut clients = Vec::new();
        let mut shared = Vec::new();
        for number in 0..case.clients {
            let count = match case.mode {
                Mode::Add => 0,
                Mode::Update => objects * OWN_TRANSACTIONS,
                Mode::Conflict | Mode::ConflictAny if number == 0 => SHARED_OBJECTS,
                Mode::Conflict | Mode::ConflictAny => 0,
            };
            if count > 0 {
                let mut maker = client(number)?;
                maker.make_own(count)?;
                shared = maker.own().to_vec();
                journal.add(&maker.into_results().0);
            }
            let mut client = client(number + case.clients)?;
            client.share(&shared);
            clients.push(client);
        }
        Ok((clients, journal))
    }

    /// Verifies all acknowledged commits; returns the metrics.
    fn verify(
        &self,
        server: &Server,
        clients: Vec<Client>,
        mut journal: Journal,
    ) -> Result<Vec<ClientMetrics>> {
        let mut all = Vec::new();
        for client in clients {
            let (own, metrics) = client.into_results();
            journal.add(&own);
            all.push(metrics);
        }
        let mut link = Link::open(server.address)?;
        let verified = journal.verify(&mut link, &self.content);
        verified.with_context(|| format!("{} objects were acknowledged", journal.len()))?;
        Ok(all)
    }
}

/// The median time of a call that does nothing.
fn round_trip(link: &mut Link, added: Duration) -> Result<Duration> {
    let mut times = Vec::new();
    for _ in 0..ROUND_TRIPS {
        let began = Instant::now();
        link.call("lastTransaction", &Value::tuple([]), added / 2)?;
        times.push(began.elapsed());
    }
    times.sort_unstable();
    Ok(times.get(ROUND_TRIPS / 2).copied().unwrap_or_default())
}
