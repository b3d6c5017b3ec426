//! Transactions whose outcome is unknown.

use std::sync::Arc;

use pyo3::prelude::*;
use zodium_client::Unfinished;

/// The transaction in an `OutcomeUnknown`.
#[pyclass(frozen, name = "Unfinished", module = "zodium._native")]
pub(crate) struct NativeUnfinished(pub(crate) Arc<Unfinished>);
