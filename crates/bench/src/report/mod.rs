//! What was measured, and its three forms: for benchstat, for people, for programs.

mod go;
mod table;

use std::io::Write;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::dataset::Dataset;
use crate::machine::Machine;
use crate::options::{Format, LoadOptions};

/// All samples, and on what they were taken.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    machine: Machine,
    dataset: Objects,
    seconds: f64,
    rounds: u16,
    pub(crate) samples: Vec<Sample>,
}

#[derive(Debug, Serialize)]
struct Objects {
    objects: u64,
    median_bytes: u32,
    seed: u64,
}

/// One server in one cell of one round.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Sample {
    pub(crate) server: String,
    /// `M5`, `Z5` or `raw`.
    pub(crate) wire: &'static str,
    pub(crate) clients: usize,
    pub(crate) in_flight: usize,
    pub(crate) round: usize,
    #[serde(flatten)]
    pub(crate) figures: Figures,
}

/// What was measured; microseconds of processor time are per request.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Figures {
    pub(crate) requests: u64,
    pub(crate) seconds: f64,
    pub(crate) server_cpu_us: f64,
    pub(crate) client_cpu_us: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
}

impl Figures {
    pub(crate) fn requests_per_second(&self) -> f64 {
        self.requests as f64 / self.seconds
    }
}

impl Report {
    pub(crate) fn new(options: &LoadOptions, dataset: &Dataset, machine: Machine) -> Report {
        let objects = Objects {
            objects: dataset.len(),
            median_bytes: dataset.median_length(),
            seed: options.dataset.seed,
        };
        Report {
            machine,
            dataset: objects,
            seconds: options.seconds.as_secs_f64(),
            rounds: options.rounds,
            samples: Vec::new(),
        }
    }

    /// Writes everything but the lines for benchstat, which were written as they came.
    pub(crate) fn write(&self, options: &LoadOptions) -> Result<()> {
        match options.format {
            Format::Go => eprint!("\n{}", self.table()),
            Format::Table => print!("{}", self.table()),
            Format::Json => {
                println!("{}", self.json()?);
                eprint!("{}", self.table());
            }
        }
        std::io::stdout().flush()?;
        if let Some(path) = &options.json {
            std::fs::write(path, self.json()? + "\n")
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }

    fn json(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)?)
    }
}
