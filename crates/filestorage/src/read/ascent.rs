//! What is known of the order of the tids in a log.
//!
//! ZODB's FileStorage reads logs whose tids go back, as they come of two storages that were copied
//! one after the other. Few are like that, and an index does not tell.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use zodium_types::Tid;

use crate::format::MAGIC_BYTES;

/// What is known of the order of the tids in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TidOrder {
    /// Each transaction is later than all before it.
    Ascends,
    /// One stands behind a later one.
    GoesBack,
    /// Not all of it was read.
    Unknown,
}

/// How far the tids of a log are known to ascend.
#[derive(Debug)]
pub(crate) struct Ascent {
    /// Relaxed: it is set once, and what depends on it is right in either case.
    goes_back: AtomicBool,
    /// Locked while a search walks on.
    pub(super) walked: Mutex<Walked>,
}

/// Where the walk over all headers has come to.
#[derive(Debug)]
pub(super) struct Walked {
    pub(super) end: u64,
    pub(super) last_tid: Tid,
}

impl Ascent {
    /// Of a log that ends at `end`, with `last_tid`.
    pub(crate) fn new(order: TidOrder, end: u64, last_tid: Tid) -> Ascent {
        let walked = match order {
            TidOrder::Ascends => Walked { end, last_tid },
            TidOrder::GoesBack | TidOrder::Unknown => {
                Walked { end: MAGIC_BYTES, last_tid: Tid::ZERO }
            }
        };
        let goes_back = AtomicBool::new(order == TidOrder::GoesBack);
        Ascent { goes_back, walked: Mutex::new(walked) }
    }

    /// Whether a transaction is known to stand behind a later one.
    pub(crate) fn goes_back(&self) -> bool {
        self.goes_back.load(Ordering::Relaxed)
    }

    pub(super) fn note_going_back(&self) {
        self.goes_back.store(true, Ordering::Relaxed);
    }

    /// What is known when all was copied to another log.
    pub(crate) fn of_copy(&self) -> Ascent {
        let order = if self.goes_back() { TidOrder::GoesBack } else { TidOrder::Unknown };
        Ascent::new(order, MAGIC_BYTES, Tid::ZERO)
    }
}
