//! FileStorage as one kind of storage: the traits of the seam, over its own methods.
//!
//! Positions in the file end here: a transaction that was prepared knows them, and nothing above.

mod cursor;
mod packing;
mod prepared;
mod read;
mod undo;
mod write;
