//! Transactions of which it is not known whether they were committed.

use std::sync::Arc;

use pyo3::prelude::*;
use zodium_client::Unfinished;

/// What `OutcomeUnknown` carries, to be asked for.
#[pyclass(frozen, name = "Unfinished", module = "zodium._native")]
pub(crate) struct NativeUnfinished(pub(crate) Arc<Unfinished>);
