//! FileStorage as one kind of storage: implements the seam's traits with its own methods.
//!
//! Positions in the file do not pass this seam: a prepared transaction knows them, its caller does
//! not.

mod cursor;
mod packing;
mod read;
mod undo;
mod upkeep;
mod write;
