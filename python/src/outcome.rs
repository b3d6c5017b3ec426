//! Transactions whose outcome is unknown.

use std::process;
use std::sync::Arc;

use pyo3::prelude::*;
use zodium_client::Unfinished;

/// The transaction in an `OutcomeUnknown`.
#[pyclass(frozen, name = "Unfinished", module = "zodium._native")]
pub(crate) struct NativeUnfinished {
    pub(crate) transaction: Arc<Unfinished>,
    /// The process that finished it: a forked child must not read the answer from its connection.
    process: u32,
}

impl NativeUnfinished {
    pub(crate) fn new(transaction: Arc<Unfinished>) -> NativeUnfinished {
        NativeUnfinished { transaction, process: process::id() }
    }

    pub(crate) fn is_parents(&self) -> bool {
        self.process != process::id()
    }
}
