//! Loads: the cost of reading objects from one storage node.

use std::sync::Arc;

use anyhow::{Context, Result};
use zodium_types::Oid;

use super::cluster::{ClientIdentity, Cluster};
use super::transaction::{checksum, fill};
use super::{NeoBench, take_turns};
use crate::connection::Connection;
use crate::dataset::Dataset;
use crate::interrupt::Interrupt;
use crate::matrix::{Matrix, columns};
use crate::neo_reply::{Checksums, Loading};
use crate::options::DatasetOptions;
use crate::result::{Measurement, Output};
use crate::server::Server;
use crate::wire::Wire;

/// Objects that were stored, and how to load them.
pub(super) struct Stored {
    pub(super) dataset: Arc<Dataset>,
    checksums: Checksums,
}

/// Measures all cells.
pub(super) fn run(bench: &NeoBench<'_>, output: &mut Output<'_>) -> Result<()> {
    let options = bench.options;
    let stored = Stored::new(options.load_objects, options.load_bytes);
    let mut clusters = bench.clusters(1)?;
    for cluster in &mut clusters {
        eprintln!("writing {} to {}", stored.dataset.description(), bench.name_of(cluster));
        let written = stored.write(cluster, &bench.comparison.interrupt);
        written.with_context(|| cluster.last_words())?;
    }
    let title = format!(
        "Loads from one storage node of NEO: {}; {} rounds of {} s, median (min-max)",
        stored.dataset.description(),
        options.time.rounds,
        options.time.seconds.as_secs_f64()
    );
    let mut measured = columns(Measurement::new("NeoLoad", title))
        .ratio("server_cpu_us", "zodium", "CPU: zodium / it")
        .bars("server_cpu_us")
        .latencies();
    measured.note("All objects were verified.");
    let matrix =
        Matrix { dataset: Arc::clone(&stored.dataset), time: &options.time, threads: 1, seed: 1 };
    take_turns(bench, &mut clusters, &options.cells, |cluster, cell, round| {
        let open = |_| stored.connect(&cluster.client(None)?, &cluster.servers[0]);
        let connections = (0..cell.clients).map(open).collect::<Result<Vec<_>>>()?;
        let interrupt = &bench.comparison.interrupt;
        let server = &cluster.servers[0];
        let sample = matrix.measure_over(interrupt, server, connections, *cell, round)?;
        output.take(&mut measured, sample);
        Ok(())
    })?;
    output.finish(measured);
    Ok(())
}

impl Stored {
    pub(super) fn new(objects: u64, bytes: u32) -> Stored {
        let dataset = Arc::new(DatasetOptions::sized(objects, bytes).dataset());
        let checksum = |oid| checksum(&dataset.data(Oid(oid)));
        let checksums = (0..dataset.len()).map(checksum).collect();
        Stored { dataset, checksums }
    }

    /// Writes all objects, and loads each once.
    pub(super) fn write(&self, cluster: &mut Cluster<'_>, interrupt: &Interrupt) -> Result<()> {
        fill(cluster, &self.dataset, interrupt)?;
        let client = cluster.client(None)?;
        self.load_all(&client, &cluster.servers[0], interrupt)
    }

    /// Connects a client for loads.
    pub(super) fn connect(&self, client: &ClientIdentity, server: &Server) -> Result<Connection> {
        let stream = client.connect(server.address)?.into_stream()?;
        let wire = Wire::Neo(Loading::new(&self.checksums, &self.dataset));
        Ok(Connection::over(stream, wire, &self.dataset))
    }

    /// Loads every object once, and checks it.
    pub(super) fn load_all(
        &self,
        client: &ClientIdentity,
        server: &Server,
        interrupt: &Interrupt,
    ) -> Result<()> {
        self.connect(client, server)?.sweep(self.dataset.len(), interrupt)
    }
}
