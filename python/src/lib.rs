//! The native part of the Python package `zodium`: the client of ZEO servers, and the program.

#![forbid(unsafe_code)]

mod client;
mod error;
mod ids;
mod interrupt;
mod logging;
mod outcome;
mod program;
mod reader;
mod transaction;
mod value;
mod watcher;

/// The native module; only the package's own modules import it.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::client::NativeClient;
    #[pymodule_export]
    use crate::outcome::NativeUnfinished;
    #[pymodule_export]
    use crate::program::run_program;
    #[pymodule_export]
    use crate::reader::{NativeLogReader, plain_extension};
    #[pymodule_export]
    use crate::transaction::NativeTransaction;
}
