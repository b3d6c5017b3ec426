//! Writes results: lines for benchstat as they come, then a table or JSON, and a file.

use std::io::Write;

use anyhow::{Context, Result};

use super::{Document, Measurement, Sample};
use crate::machine::Machine;
use crate::options::{Format, OutputOptions};

/// The output of a running benchmark.
#[derive(Debug)]
pub(crate) struct Output<'a> {
    options: &'a OutputOptions,
    document: Document,
}

impl Output<'_> {
    /// Starts the output with a description of the machine.
    pub(crate) fn begin(options: &OutputOptions, machine: Machine) -> Output<'_> {
        let document = Document::begin(machine);
        if options.format == Format::Go {
            print!("{}", document.go_header());
        }
        Output { options, document }
    }

    /// Adds a sample to a measurement that is still running.
    pub(crate) fn take(&self, measured: &mut Measurement, sample: Sample) {
        if self.options.format == Format::Go {
            println!("{}", measured.go_line(&sample));
        }
        measured.samples.push(sample);
    }

    /// Adds a complete measurement.
    pub(crate) fn finish(&mut self, mut measured: Measurement) {
        measured.note_ratios();
        if self.options.format == Format::Go {
            measured.go_ratio_lines().iter().for_each(|line| println!("{line}"));
        }
        self.document.measurements.push(measured);
    }

    /// Writes everything except the lines for benchstat, which are written already.
    pub(crate) fn write(self) -> Result<()> {
        let tables = self.document.tables();
        match self.options.format {
            Format::Go => eprint!("\n{tables}"),
            Format::Table => print!("{tables}"),
            Format::Json => {
                println!("{}", self.json()?);
                eprint!("{tables}");
            }
        }
        std::io::stdout().flush()?;
        if let Some(path) = &self.options.json {
            let cannot = || format!("cannot write {}", path.display());
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder).with_context(cannot)?;
            }
            std::fs::write(path, self.json()? + "\n").with_context(cannot)?;
        }
        Ok(())
    }

    fn json(&self) -> Result<String> {
        Ok(serde_json::to_string(&self.document)?)
    }
}
