//! Garbage collection over databases that refer to each other, while they are in use.
//!
//! An object is garbage if no revision that was current at any moment since the beginning of the
//! grace time leads to it from a root. So what was moved from one place to another meanwhile is
//! kept, whatever the order in which the logs are read.
//!
//! Key decision: marks are only ever added. Before and after each batch of deletions the logs are
//! read on, and an object that a later transaction refers to is brought back with its data.

mod graph;
mod marking;
#[cfg(test)]
mod random_runs;
mod sweep;

pub use marking::{Databases, Marking, Summary};
pub use sweep::{Change, Outcome, Sweep, sweep};
