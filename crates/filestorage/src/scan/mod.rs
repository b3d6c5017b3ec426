//! Reads a data file in its order. A [`Scan`] stops at damage, a [`Walk`] continues behind it.

mod look;
mod resync;
mod scanner;
mod tail;
mod walk;
mod window;

pub(crate) use look::Look;
pub(crate) use resync::Resync;
pub(crate) use scanner::{DataEntry, Scan, Step, TransactionEntry, WINDOW_BYTES};
pub(crate) use tail::Tail;
pub(crate) use walk::{Piece, SeenRecord, Walk};
pub(crate) use window::{LOOK_BYTES, WALK_BYTES, Window};
