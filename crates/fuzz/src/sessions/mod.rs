//! Sessions of a real server in this process, used through the client side of the codec, and models
//! that predict the result of each call.

mod client;
mod lock_model;
mod order_model;
pub mod orders;
mod server;
pub mod splits;
pub mod storage_calls;
mod storage_model;
mod storage_reads;
mod writer;

use std::fmt;

/// A server that deviated from its model.
#[derive(Debug)]
pub struct Difference {
    /// What was called, found and expected.
    pub what: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.what)
    }
}

impl<E: std::error::Error> From<E> for Difference {
    fn from(error: E) -> Difference {
        Difference { what: format!("{error:?}") }
    }
}

/// Fails unless both are equal.
pub(crate) fn same<T: PartialEq + fmt::Debug>(
    what: impl fmt::Display,
    found: T,
    expected: T,
) -> Result<(), Difference> {
    if found == expected {
        return Ok(());
    }
    Err(Difference { what: format!("{what}: found {found:?}, expected {expected:?}") })
}
