//! Native calls: what Python's classes make without the GIL, and how they end.

use pyo3::prelude::*;
use zodium_client::ClientError;

use crate::error::raised;
use crate::interrupt::take_raised;

/// Makes a native call, without the GIL.
pub(crate) fn released<T: Send>(
    py: Python<'_>,
    call: impl FnOnce() -> Result<T, ClientError> + Send,
) -> PyResult<T> {
    let result = py.detach(call).map_err(|error| raised(py, &error));
    ended(py, result)
}

/// Ends a native call with its result, unless a signal handler has raised during the call. An error
/// of the call is then the cause of that exception: it says what is left undone.
pub(crate) fn ended<T>(py: Python<'_>, result: PyResult<T>) -> PyResult<T> {
    let Some(raised) = take_raised() else { return result };
    if let Err(error) = result {
        raised.set_cause(py, Some(error));
    }
    Err(raised)
}

/// Makes a native call that cannot raise, without the GIL: the exception of a signal handler is
/// reported only.
pub(crate) fn released_in_drop(py: Python<'_>, call: impl FnOnce() + Send) {
    py.detach(call);
    if let Some(raised) = take_raised() {
        raised.write_unraisable(py, None);
    }
}
