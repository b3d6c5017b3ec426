//! Reads a data file in its order. A [`Scan`] stops at damage, a [`Walk`] continues behind it.

mod damages;
mod entries;
mod record_lookup;
mod resync;
mod scanner;
mod sums;
mod tail;
mod verification;
mod walk;
mod window;

pub(crate) use damages::Damages;
pub(crate) use entries::{DataEntry, Step, TransactionEntry};
pub(crate) use record_lookup::RecordLookup;
pub(crate) use resync::Resync;
pub(crate) use scanner::{Scan, WINDOW_BYTES};
pub(crate) use sums::{Part, Sums};
pub(crate) use tail::Tail;
pub(crate) use walk::{Piece, SeenRecord, Walk};
pub(crate) use window::{LOOK_BYTES, WALK_BYTES, Window};
