//! What the native client notes, in Python's logging.
//!
//! Key decision: the interpreter is tried, never insisted on. Threads of ours may outlive it.

use log::{Level, LevelFilter, Log, Metadata, Record};
use pyo3::prelude::*;

/// The part of the program whose notes these are.
const SOURCE: &str = "zodium_client";
/// Where they go.
const LOGGER: &str = "zodium.client";

struct PythonLog;

/// From now on notes go to Python's logging; the program of the same package does otherwise.
pub(crate) fn begin() {
    // A second client finds it set.
    if log::set_logger(&PythonLog).is_ok() {
        log::set_max_level(LevelFilter::Info);
    }
}

impl Log for PythonLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with(SOURCE)
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let text = record.args().to_string();
            Python::try_attach(|py| {
                // There is nobody to tell that nothing can be told.
                let _ = tell(py, level(record.level()), &text);
            });
        }
    }

    fn flush(&self) {}
}

fn tell(py: Python<'_>, level: u8, text: &str) -> PyResult<()> {
    let logger = py.import("logging")?.call_method1("getLogger", (LOGGER,))?;
    logger.call_method1("log", (level, "%s", text)).map(drop)
}

/// A level in Python's numbers.
fn level(level: Level) -> u8 {
    match level {
        Level::Error => 40,
        Level::Warn => 30,
        Level::Info => 20,
        Level::Debug | Level::Trace => 10,
    }
}
