//! Memory per key: what a server has grown by after keys were set in it.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};

use super::{fill, start};
use crate::comparison::Comparison;
use crate::memory::Memory;
use crate::options::{DatasetOptions, RespOptions};
use crate::result::{Measurement, Output, Sample, Shown};
use crate::server::ServerCommand;

/// Sets keys in each server once: memory does not depend on the load of the machine.
pub(super) fn measure(
    options: &RespOptions,
    comparison: &mut Comparison,
    commands: &[ServerCommand],
    output: &mut Output<'_>,
) -> Result<()> {
    let title = format!(
        "Memory of RESP servers: {} keys of 16 bytes, each set once over one connection",
        options.memory_keys
    );
    let mut measured = Measurement::new("RespMemory", title)
        .axis("value_bytes", "value bytes")
        .column("bytes_per_key", "bytes/key", Shown::Median)
        .go("B/key", 1.0)
        .column("fill_seconds", "s to set all", Shown::Median)
        .go("s", 1.0)
        .ratio("bytes_per_key", "zodium", "memory: zodium / it");
    measured.note("Bytes a key are those that resident memory has grown by, over the keys.");
    for bytes in &options.memory_bytes {
        let dataset = Arc::new(DatasetOptions::sized(options.memory_keys, *bytes).dataset());
        start(comparison, commands)?;
        for server in &comparison.servers {
            let process =
                server.process_id().context("a server that runs elsewhere cannot be watched")?;
            let (before, began) = (Memory::of_process(process)?, Instant::now());
            let filled = fill(server, &dataset, &comparison.interrupt);
            filled.with_context(|| server.last_words())?;
            let seconds = began.elapsed().as_secs_f64();
            let grown = Memory::of_process(process)?.resident.saturating_sub(before.resident);
            let sample = Sample::new(&server.name, "", 0)
                .case("value_bytes", bytes)
                .value("bytes_per_key", grown as f64 / options.memory_keys as f64)
                .value("fill_seconds", seconds);
            output.take(&mut measured, sample);
        }
    }
    output.finish(measured);
    Ok(())
}
