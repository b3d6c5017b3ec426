//! Atomics, cells and mutexes: the real types, or their models for `make loom`.

#[cfg(loom)]
mod modelled;
#[cfg(not(loom))]
mod real;

#[cfg(loom)]
pub(crate) use self::modelled::*;
#[cfg(not(loom))]
pub(crate) use self::real::*;
