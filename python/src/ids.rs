//! Arguments that are bytes: oids, tids and data of records.
//!
//! Key decision: ASCII text is accepted as bytes, because ZEO's client does so and applications
//! with a Python 2 history pass `'\0' * 8`. Any other text would be ambiguous.

use std::borrow::Cow;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyString;
use zodium_types::{Oid, Tid};

/// An oid passed from Python.
#[derive(Clone, Copy)]
pub(crate) struct OidArgument(pub(crate) Oid);

/// A tid passed from Python.
#[derive(Clone, Copy)]
pub(crate) struct TidArgument(pub(crate) Tid);

/// The data of a record passed from Python.
pub(crate) struct DataArgument<'a>(pub(crate) Cow<'a, [u8]>);

impl<'a, 'py> FromPyObject<'a, 'py> for OidArgument {
    type Error = PyErr;

    fn extract(given: Borrowed<'a, 'py, PyAny>) -> PyResult<OidArgument> {
        Ok(OidArgument(Oid(number(given, "an oid")?)))
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for TidArgument {
    type Error = PyErr;

    fn extract(given: Borrowed<'a, 'py, PyAny>) -> PyResult<TidArgument> {
        Ok(TidArgument(Tid(number(given, "a tid")?)))
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for DataArgument<'a> {
    type Error = PyErr;

    fn extract(given: Borrowed<'a, 'py, PyAny>) -> PyResult<DataArgument<'a>> {
        let found = bytes(given).ok_or_else(|| {
            PyTypeError::new_err(format!("data of a record are bytes, this is {}", shown(&given)))
        });
        found.map(DataArgument)
    }
}

fn number(given: Borrowed<'_, '_, PyAny>, what: &str) -> PyResult<u64> {
    let eight = bytes(given).and_then(|found| found.as_ref().try_into().ok());
    eight.map(u64::from_be_bytes).ok_or_else(|| {
        PyTypeError::new_err(format!("{what} has 8 bytes, this is {}", shown(&given)))
    })
}

fn bytes<'a>(given: Borrowed<'a, '_, PyAny>) -> Option<Cow<'a, [u8]>> {
    if let Ok(found) = <&'a [u8]>::extract(given) {
        return Some(Cow::Borrowed(found));
    }
    let text = given.cast::<PyString>().ok()?;
    let text = text.to_cow().ok()?;
    text.is_ascii().then(|| Cow::Owned(text.as_bytes().to_vec()))
}

fn shown(given: &Bound<'_, PyAny>) -> String {
    given.repr().map_or_else(|_| "something else".to_owned(), |text| text.to_string())
}
