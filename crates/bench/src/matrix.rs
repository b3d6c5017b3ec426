//! Measures loads for a number of clients, each with a number of requests in flight.

use std::sync::Arc;

use anyhow::{Result, ensure};

use crate::comparison::Comparison;
use crate::connection::Connection;
use crate::dataset::Dataset;
use crate::generator::{Generator, Load, Objects};
use crate::interrupt::Interrupt;
use crate::options::{Cell, TimeOptions};
use crate::reading::Reading;
use crate::result::{Measurement, Sample, Shown};
use crate::server::Server;

/// What all cells of the matrix have in common.
#[derive(Clone, Debug)]
pub(crate) struct Matrix<'a> {
    pub(crate) dataset: Arc<Dataset>,
    pub(crate) time: &'a TimeOptions,
    /// Threads of the generator.
    pub(crate) threads: usize,
    pub(crate) seed: u64,
}

impl Matrix<'_> {
    pub(crate) fn measure(
        &self,
        comparison: &Comparison,
        server: &Server,
        cell: Cell,
        round: usize,
    ) -> Result<Sample> {
        let connections = self.connect(server, cell)?;
        self.measure_over(&comparison.interrupt, server, connections, cell, round)
    }

    /// Measures a cell over connections of its clients.
    pub(crate) fn measure_over(
        &self,
        interrupt: &Interrupt,
        server: &Server,
        connections: Vec<Connection>,
        cell: Cell,
        round: usize,
    ) -> Result<Sample> {
        let wire = connections.first().map_or("", Connection::wire_name);
        let generator = self.start_over(connections, cell, round)?;
        interrupt.sleep(self.time.warm_up)?;
        // Latencies are recorded before counting starts, so that every counted reply has one.
        generator.count_latencies(true);
        let (before, replies) = (Reading::take(server)?, generator.replies());
        let happened = || generator.replies() > replies || generator.has_ended();
        interrupt.sleep_until(self.time.seconds, happened)?;
        let after = Reading::take(server)?;
        let requests = generator.replies() - replies;
        generator.count_latencies(false);
        let latencies = generator.finish()?;
        ensure!(requests > 0, "no request was answered");
        let used = before.until(&after);
        let seconds = used.time.as_secs_f64();
        let sample = Sample::new(&server.name, wire, round)
            .case("clients", cell.clients)
            .case("in_flight", cell.in_flight)
            .case("busy_poll", server.busy_poll_us)
            .value("requests", requests as f64)
            .value("requests_per_second", requests as f64 / seconds)
            .value("ns_per_request", 1e9 * seconds / requests as f64);
        let sample = used.values(sample, requests);
        Ok(sample.percentiles("", &latencies).distribution(&latencies))
    }

    /// Starts the load of a cell; also returns the encoding of its connections.
    pub(crate) fn start(
        &self,
        server: &Server,
        cell: Cell,
        round: usize,
    ) -> Result<(Generator, &'static str)> {
        let connections = self.connect(server, cell)?;
        let wire = connections.first().map_or("", Connection::wire_name);
        Ok((self.start_over(connections, cell, round)?, wire))
    }

    fn connect(&self, server: &Server, cell: Cell) -> Result<Vec<Connection>> {
        let open = |_| Connection::open(server.address, server.protocol, &self.dataset);
        (0..cell.clients).map(open).collect()
    }

    fn start_over(
        &self,
        connections: Vec<Connection>,
        cell: Cell,
        round: usize,
    ) -> Result<Generator> {
        let load = Load {
            objects: Objects::AtRandom(self.dataset.len()),
            in_flight: cell.in_flight,
            seed: self.seed + round as u64,
        };
        Generator::start(connections, self.threads, load)
    }
}

/// Adds the columns and axes of loads.
pub(crate) fn columns(measured: Measurement) -> Measurement {
    measured
        .axis("clients", "clients")
        .axis("in_flight", "in flight")
        .column("server_cpu_us", "server CPU us/request", Shown::Spread)
        .go("cpu-ns/op", 1e3)
        .column("requests_per_second", "requests/s", Shown::SpreadThousands)
        .go("req/s", 1.0)
        .latency("p50", "p50 us", Shown::Median)
        .latency("p90", "p90", Shown::Median)
        .latency("p99", "p99", Shown::Median)
        .latency("p99_9", "p99.9", Shown::Median)
        .latency("max", "max", Shown::Median)
        .column("client_cpu_us", "client CPU us", Shown::Median)
        .go("client-cpu-ns/op", 1e3)
        .column("ns_per_request", "ns/request", Shown::Never)
        .go("ns/op", 1.0)
}
