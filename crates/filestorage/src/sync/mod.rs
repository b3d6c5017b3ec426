//! Atomics, cells and locks of the index and the record cache: the real types, or their models.
//!
//! Key decision: the index and the cache take these types only from here. So `make loom`, which
//! compiles with `--cfg loom`, checks the server's own code in every interleaving.

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
