//! Forwards the native client's log messages to Python's logging.
//!
//! Key decision: messages are dropped if the interpreter is not available. Native threads may
//! outlive it.

use log::{Level, LevelFilter, Log, Metadata, Record};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::attach::attached;
use crate::interrupt::{aside, keep_for_call};

/// The targets of the clients' log messages.
const SOURCES: [&str; 2] = ["zodium_client", "zodium_neo_client"];
/// The name of the Python logger.
const LOGGER: &str = "zodium.client";

struct PythonLog;

/// Installs the logger; the program in the same package uses another one.
pub(crate) fn begin() {
    // Fails if another client has installed it already.
    if log::set_logger(&PythonLog).is_ok() {
        log::set_max_level(LevelFilter::Info);
    }
}

impl Log for PythonLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        SOURCES.iter().any(|source| metadata.target().starts_with(source))
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let text = record.args().to_string();
            attached(|py| {
                let told = aside(py, || tell(py, level(record.level()), &text));
                // If logging fails, there is no way to report it.
                let _ = told.or_else(|error| keep_for_call(py, error));
            });
        }
    }

    fn flush(&self) {}
}

fn tell(py: Python<'_>, level: u8, text: &str) -> PyResult<()> {
    logger(py)?.call_method1("log", (level, "%s", text)).map(drop)
}

fn logger(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    py.import("logging")?.call_method1("getLogger", (LOGGER,))
}

/// Logs an exception that no caller of Python gets; `text` says what has failed.
pub(crate) fn report(py: Python<'_>, text: &str, error: PyErr) {
    let logged = aside(py, || {
        let options = PyDict::new(py);
        options.set_item("exc_info", error.value(py))?;
        logger(py)?.call_method("error", ("%s", text), Some(&options)).map(drop)
    });
    if let Err(failure) = logged {
        // This thread may be near Python's limit of recursion.
        error.write_unraisable(py, None);
        let _ = keep_for_call(py, failure);
    }
}

/// Converts a level to Python's numbers.
fn level(level: Level) -> u8 {
    match level {
        Level::Error => 40,
        Level::Warn => 30,
        Level::Info => 20,
        Level::Debug | Level::Trace => 10,
    }
}
