//! Locks of data that is read far more often than it is written: readers share no memory that they
//! write to.
//!
//! Key decision: a reader announces what it reads in a word of its own, and a writer looks at the
//! words of all readers. So readers of the same data do not slow each other down, however many
//! processors there are. A lock is *open* while readers may enter in this way. A writer closes it,
//! and readers then take its mutex as writers do, until about as many of them have done so as there
//! are words to look at. So a lock that is written more often than it is read costs little more
//! than its mutex. The idea is that of Dice and Kogan, "BRAVO: Biased Locking for Reader-Writer
//! Locks", USENIX ATC 2019, with a word for each reader instead of a shared table.
//!
//! This is the one crate of the server with unsafe code: `make loom` and `make miri` check it.

mod guards;
mod lock;
mod locks;
#[cfg(test)]
#[cfg(loom)]
mod models;
mod readers;
mod sync;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;

pub use guards::{ReadGuard, ReadGuards, WriteGuard};
pub use locks::{LOCKS_MAX, ReadLocks};
pub use readers::{READERS_MAX, Reader};
