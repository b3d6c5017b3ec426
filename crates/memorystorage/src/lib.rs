//! A storage in memory: the model that other kinds of storage are compared with.
//!
//! It keeps every transaction in a `BTreeMap` by tid, and every revision in a `BTreeMap` by oid and
//! tid. One lock guards both: it is made to be obviously right, not fast. Nothing survives the
//! process.

#![forbid(unsafe_code)]

mod cursor;
mod follow;
mod packing;
mod state;
mod storage;
mod undo;

pub use storage::MemoryStorage;
