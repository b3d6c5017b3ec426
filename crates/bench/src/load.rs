//! `zodium bench load`: what a load costs each server, cell by cell, round by round.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use zodium_types::Oid;

use crate::connection::{Connection, Scratch};
use crate::cpu::CpuTime;
use crate::dataset::Dataset;
use crate::generator::{Generator, Load};
use crate::interrupt::Interrupt;
use crate::machine::Machine;
use crate::options::{Cell, Format, LoadOptions};
use crate::report::{Figures, Report, Sample};
use crate::server::{Server, ServerCommand};
use crate::wire::Speech;

/// Requests in flight while every object is loaded once.
const SWEEP_IN_FLIGHT: usize = 64;
/// From this load average on the reader is warned.
const LOAD_AVERAGE_MAX: f64 = 0.5;

/// Measures and reports.
pub(crate) fn run(options: &LoadOptions) -> Result<()> {
    let interrupt = Interrupt::listen()?;
    let machine = Machine::here();
    if machine.load_average > LOAD_AVERAGE_MAX {
        eprintln!(
            "warning: the load average is {}: other programs run, and the figures will be off",
            machine.load_average
        );
    }
    let dataset = Arc::new(options.dataset.dataset());
    let folder = tempfile::Builder::new().prefix("zodium-bench-").tempdir()?;
    let servers = start_servers(options, &dataset, folder.path())?;
    let bench = Bench { options, dataset, interrupt };
    for server in &servers {
        bench.load_all(server).with_context(|| server.last_words())?;
    }
    let mut report = Report::new(options, &bench.dataset, machine);
    bench.announce(&servers);
    if options.format == Format::Go {
        print!("{}", report.go_header());
    }
    bench.measure_all(&servers, |sample| {
        if options.format == Format::Go {
            println!("{}", sample.go_line());
        }
        report.samples.push(sample);
    })?;
    drop(servers);
    report.write(options)
}

fn start_servers(options: &LoadOptions, dataset: &Dataset, folder: &Path) -> Result<Vec<Server>> {
    let path = folder.join("Data.fs");
    dataset.write(&path).context("cannot write the dataset")?;
    let program = std::env::current_exe()?;
    let mut commands = vec![ServerCommand::zodium(&program, options.workers, options.pickle)];
    if let Some(python) = &options.zeo_python {
        // Servers run in a folder of their own, where a relative path leads nowhere.
        let python =
            if python.components().count() > 1 { &std::path::absolute(python)? } else { python };
        commands.push(ServerCommand::zeo(python, options.pickle));
    }
    commands.extend(options.peer.iter().map(ServerCommand::peer));
    if !options.no_floor {
        commands.push(ServerCommand::floor(&program, &options.dataset));
    }
    let mut names: Vec<&str> = commands.iter().map(|command| command.name.as_str()).collect();
    names.sort_unstable();
    let unique = names.windows(2).all(|pair| pair[0] != pair[1]);
    ensure!(unique, "two servers have the same name: {}", names.join(", "));
    commands.iter().map(|command| Server::start(command, &path, folder)).collect()
}

struct Bench<'a> {
    options: &'a LoadOptions,
    dataset: Arc<Dataset>,
    interrupt: Interrupt,
}

/// The counters at one moment.
struct Reading {
    time: Instant,
    replies: u64,
    server: CpuTime,
    client: CpuTime,
}

impl Bench<'_> {
    /// Loads every object once: what a server does not have in memory it gets now, and what it
    /// serves wrongly is found now.
    fn load_all(&self, server: &Server) -> Result<()> {
        let mut connection = self.connect(server.address, server.speech)?;
        let mut scratch = Scratch::new();
        let oids: Vec<u64> = (0..self.dataset.len()).collect();
        for batch in oids.chunks(SWEEP_IN_FLIGHT) {
            batch.iter().for_each(|oid| connection.ask(Oid(*oid)));
            connection.send()?;
            self.interrupt.check()?;
            while !connection.is_idle() {
                connection.receive(&mut scratch, |_| {})?;
            }
        }
        let (wire, asked) = (connection.wire_name(), if self.options.pickle { "Z5" } else { "M5" });
        if server.speech == Speech::Zeo && wire != asked {
            eprintln!("warning: {} speaks {wire}, not {asked}", server.name);
        }
        Ok(())
    }

    fn announce(&self, servers: &[Server]) {
        let LoadOptions { cells, rounds, seconds, warm_up, .. } = self.options;
        let count = u32::try_from(cells.len() * servers.len()).unwrap_or(u32::MAX);
        let total = (*seconds + *warm_up) * count * u32::from(*rounds);
        let names: Vec<&str> = servers.iter().map(|server| server.name.as_str()).collect();
        eprintln!(
            "{} rounds of {} cells with {}: about {} s",
            rounds,
            cells.len(),
            names.join(", "),
            total.as_secs() + 1
        );
    }

    fn measure_all(&self, servers: &[Server], mut done: impl FnMut(Sample)) -> Result<()> {
        for round in 0..usize::from(self.options.rounds) {
            for cell in &self.options.cells {
                // Another one begins each round: none always follows the same.
                let turn = round % servers.len();
                for server in servers[turn..].iter().chain(&servers[..turn]) {
                    let sample = self.measure(server, *cell, round);
                    done(sample.with_context(|| server.last_words())?);
                }
            }
        }
        Ok(())
    }

    fn measure(&self, server: &Server, cell: Cell, round: usize) -> Result<Sample> {
        let connections: Result<Vec<Connection>> =
            (0..cell.clients).map(|_| self.connect(server.address, server.speech)).collect();
        let connections = connections?;
        let wire = connections.first().map_or("", Connection::wire_name);
        let load = Load {
            objects: self.dataset.len(),
            in_flight: cell.in_flight,
            seed: self.options.dataset.seed + round as u64,
        };
        let threads = usize::from(self.options.threads);
        let generator = Generator::start(connections, threads, load)?;
        self.interrupt.sleep(self.options.warm_up)?;
        let before = Reading::take(server, &generator)?;
        generator.count_latencies(true);
        self.interrupt.sleep(self.options.seconds)?;
        generator.count_latencies(false);
        let after = Reading::take(server, &generator)?;
        let latency = generator.finish()?;
        Ok(Sample {
            server: server.name.clone(),
            wire,
            clients: cell.clients,
            in_flight: cell.in_flight,
            round,
            figures: Reading::figures(&before, &after, &latency)?,
        })
    }

    fn connect(&self, address: SocketAddr, speech: Speech) -> Result<Connection> {
        Connection::open(address, speech, &self.dataset)
    }
}

impl Reading {
    fn take(server: &Server, generator: &Generator) -> Result<Reading> {
        Ok(Reading {
            server: server.cpu_time()?,
            client: CpuTime::of_process(std::process::id())?,
            time: Instant::now(),
            replies: generator.replies(),
        })
    }

    fn figures(before: &Reading, after: &Reading, latency: &Histogram<u64>) -> Result<Figures> {
        let requests = after.replies - before.replies;
        ensure!(requests > 0, "no request was answered in time; measure longer (--seconds)");
        let per_request = |time: Duration| time.as_secs_f64() * 1e6 / requests as f64;
        let quantile = |quantile| latency.value_at_quantile(quantile) as f64 / 1e3;
        Ok(Figures {
            requests,
            seconds: (after.time - before.time).as_secs_f64(),
            server_cpu_us: per_request(after.server.since(&before.server)),
            client_cpu_us: per_request(after.client.since(&before.client)),
            p50_us: quantile(0.5),
            p99_us: quantile(0.99),
        })
    }
}
