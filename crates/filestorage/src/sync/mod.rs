//! Atomics, cells and locks of the index and the record cache: the real ones, or models of them.
//!
//! Key decision: the index and the cache take these types from here alone. So `make loom`, which
//! compiles with `--cfg loom`, checks the very code of the server, interleaving by interleaving.

#[cfg(test)]
#[cfg(loom)]
mod beside;
#[cfg(loom)]
mod modelled;
#[cfg(not(loom))]
mod real;

#[cfg(test)]
#[cfg(loom)]
pub(crate) use self::beside::beside;
#[cfg(loom)]
pub(crate) use self::modelled::*;
#[cfg(not(loom))]
pub(crate) use self::real::*;
