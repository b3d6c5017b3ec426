//! The native part of the Python package `zodium`: the clients of ZEO servers and of NEO clusters,
//! and the program.

#![forbid(unsafe_code)]

mod attach;
mod backend;
mod call;
mod client;
mod error;
mod ids;
mod interrupt;
mod logging;
mod neo_client;
mod outcome;
mod program;
mod reader;
mod resolver;
mod server_client;
mod transaction;
mod value;
mod watcher;

/// The native module; only the package's own modules import it.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::attach::{after_fork_in_child, after_fork_in_parent, before_exit, before_fork};
    #[pymodule_export]
    use crate::client::NativeClient;
    #[pymodule_export]
    use crate::neo_client::NeoClient;
    #[pymodule_export]
    use crate::outcome::NativeUnfinished;
    #[pymodule_export]
    use crate::program::run_program;
    #[pymodule_export]
    use crate::reader::{NativeLogReader, plain_extension};
    #[pymodule_export]
    use crate::server_client::ServerClient;
    #[pymodule_export]
    use crate::transaction::NativeTransaction;
}
