//! A real server in this process, and clients that use it through the client side of the codec.

pub(crate) mod client;
pub(crate) mod counted;
pub(crate) mod server;

use std::fmt;

/// A server that deviated from its model.
#[derive(Debug)]
pub(crate) struct Difference {
    /// What was called, found and expected.
    pub(crate) what: String,
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

/// A number from an environment variable.
pub(crate) fn from_environment(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(value) => value.parse().unwrap_or_else(|_| panic!("{name}={value} is not a number")),
        Err(_) => default,
    }
}
