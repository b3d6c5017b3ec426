//! Handshakes that wait for their peers: at most a fixed number; the newest displaces the oldest.
//!
//! Key decision: a healthy peer answers within a round trip, so the handshake that has waited
//! longest is the least likely to be completed.

use std::cell::RefCell;
use std::collections::BTreeMap;

use tokio::sync::oneshot;

/// Most handshakes of a worker that wait for their peers at once. Each holds the part of a
/// ClientHello that has arrived: a few KiB, at most 64 KiB.
pub(crate) const UNFINISHED_MAX: usize = 1024;

/// The handshakes of one worker that wait for their peers.
#[derive(Debug, Default)]
pub(crate) struct Unfinished(RefCell<State>);

#[derive(Debug, Default)]
struct State {
    next_number: u64,
    /// Dropping the sender displaces the handshake. Lower numbers are older.
    by_age: BTreeMap<u64, oneshot::Sender<()>>,
}

/// Removes a handshake from the set when dropped.
struct Entry<'a> {
    unfinished: &'a Unfinished,
    number: u64,
}

impl Unfinished {
    /// Runs a handshake, or a part of it, as a member of the set; `None` when a newer handshake
    /// displaced it.
    pub(crate) async fn run<T>(&self, handshake: impl Future<Output = T>) -> Option<T> {
        let (displace, displaced) = oneshot::channel();
        let entry = self.enter(displace);
        let outcome = tokio::select! {
            biased;
            outcome = handshake => Some(outcome),
            _ = displaced => None,
        };
        drop(entry);
        outcome
    }

    fn enter(&self, displace: oneshot::Sender<()>) -> Entry<'_> {
        let mut state = self.0.borrow_mut();
        let number = state.next_number;
        state.next_number += 1;
        state.by_age.insert(number, displace);
        if state.by_age.len() > UNFINISHED_MAX {
            state.by_age.pop_first();
        }
        Entry { unfinished: self, number }
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.unfinished.0.borrow_mut().by_age.remove(&self.number);
    }
}
