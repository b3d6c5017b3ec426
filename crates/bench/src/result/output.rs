//! Where results go: lines for benchstat as they come, then a table or JSON, and a file.

use std::io::Write;

use anyhow::{Context, Result};

use super::{Document, Measurement, Sample};
use crate::machine::Machine;
use crate::options::{Format, OutputOptions};

/// A run on its way to the reader.
#[derive(Debug)]
pub(crate) struct Output<'a> {
    options: &'a OutputOptions,
    document: Document,
}

impl Output<'_> {
    /// Begins with what the run is taken on.
    pub(crate) fn begin(options: &OutputOptions, machine: Machine) -> Output<'_> {
        let document = Document::begin(machine);
        if options.format == Format::Go {
            print!("{}", document.go_header());
        }
        Output { options, document }
    }

    /// Takes a sample for a measurement that is still under way.
    pub(crate) fn take(&self, measured: &mut Measurement, sample: Sample) {
        if self.options.format == Format::Go {
            println!("{}", measured.go_line(&sample));
        }
        measured.samples.push(sample);
    }

    /// Takes a measurement that is complete.
    pub(crate) fn finish(&mut self, mut measured: Measurement) {
        measured.note_ratios();
        if self.options.format == Format::Go {
            measured.go_ratio_lines().iter().for_each(|line| println!("{line}"));
        }
        self.document.measurements.push(measured);
    }

    /// Writes everything but the lines for benchstat, which were written as they came.
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
