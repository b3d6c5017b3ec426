//! Conflict resolution with the application's classes, in this process.

use std::fmt;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use zodium_engine::{Merge, Resolver};
use zodium_storage::Access;

use crate::attach::attached;
use crate::interrupt::{aside, keep_for_call};

/// Calls a function of Python with three records.
pub(crate) struct PythonResolver {
    /// Called with the old, the committed and the new record; returns the merged one, or None.
    resolve: Py<PyAny>,
}

impl PythonResolver {
    pub(crate) fn new(resolve: Py<PyAny>) -> PythonResolver {
        PythonResolver { resolve }
    }
}

impl Resolver for PythonResolver {
    fn resolve(&self, old: &[u8], committed: &[u8], new: &[u8], access: Access) -> Merge {
        if access == Access::NonBlocking {
            return Merge::WouldBlock;
        }
        let merged = attached(|py| {
            let [old, committed, new] = [old, committed, new].map(|one| PyBytes::new(py, one));
            let merged = aside(py, || self.resolve.call1(py, (old, committed, new)));
            let merged = merged.and_then(|merged| merged.extract::<Option<Vec<u8>>>(py));
            merged.unwrap_or_else(|error| {
                if let Err(error) = keep_for_call(py, error) {
                    error.write_unraisable(py, None);
                }
                None
            })
        });
        merged.flatten().map_or(Merge::Unresolved, Merge::Resolved)
    }
}

impl fmt::Debug for PythonResolver {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("PythonResolver").finish_non_exhaustive()
    }
}
