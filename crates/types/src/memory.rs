//! The memory limit for what clients make a server hold: messages in both directions, and stores
//! of open transactions.
//!
//! Key decision: one holder at a time may go past the limit. So that holder can always finish and
//! release its memory, and there is no deadlock. All others are asked to hold little while little
//! is free ([`Memory::share`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// One holder may have one in this many of the free bytes.
const SHARE_OF_FREE: u64 = 8;

/// The unit of counting. With a smaller one all threads would write to one cache line all the
/// time.
const PIECE_BYTES: u64 = 4096;

/// Counts held memory, against a limit.
#[derive(Debug)]
pub struct Memory {
    limit_bytes: u64,
    held_bytes: AtomicU64,
    /// One holder may go past the limit now.
    has_turn: AtomicBool,
}

/// The memory of one holder; released when dropped.
#[derive(Debug)]
pub struct Held {
    memory: Arc<Memory>,
    bytes: u64,
}

/// The right to go past the limit; there is one at a time.
#[derive(Debug)]
pub struct Turn(Arc<Memory>);

impl Memory {
    /// Creates a counter with nothing held; `u64::MAX` means no limit.
    pub fn new(limit_bytes: u64) -> Arc<Memory> {
        let held_bytes = AtomicU64::new(0);
        Arc::new(Memory { limit_bytes, held_bytes, has_turn: AtomicBool::new(false) })
    }

    /// The limit, in bytes.
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// The memory held, in bytes.
    pub fn held_bytes(&self) -> u64 {
        // Relaxed, here and below: the number guards no other memory, and may be a moment old.
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// Whether the limit is reached.
    pub fn is_full(&self) -> bool {
        self.held_bytes() >= self.limit_bytes
    }

    /// The bytes that one holder may have now: a part of the free ones, from `least` to `most`.
    ///
    /// The more is held, the less each holder may have, so that all together stay under the limit.
    pub fn share(&self, least: usize, most: usize) -> usize {
        let free = self.limit_bytes.saturating_sub(self.held_bytes());
        let share = usize::try_from(free / SHARE_OF_FREE).unwrap_or(usize::MAX);
        share.max(least).min(most)
    }

    /// Creates a holder that has nothing yet.
    pub fn holder(self: &Arc<Self>) -> Held {
        Held { memory: Arc::clone(self), bytes: 0 }
    }

    /// Takes the right to go past the limit; `None` while another holder has it.
    pub fn take_turn(self: &Arc<Self>) -> Option<Turn> {
        // Relaxed: it guards no other memory.
        let was_taken = self.has_turn.swap(true, Ordering::Relaxed);
        (!was_taken).then(|| Turn(Arc::clone(self)))
    }
}

impl Held {
    /// Sets the bytes that this holder has.
    pub fn set(&mut self, bytes: usize) {
        let bytes = bytes as u64 / PIECE_BYTES * PIECE_BYTES;
        if bytes > self.bytes {
            self.memory.held_bytes.fetch_add(bytes - self.bytes, Ordering::Relaxed);
        } else if bytes < self.bytes {
            self.memory.held_bytes.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        }
        self.bytes = bytes;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.set(0);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.has_turn.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dropped_is_given_back() {
        let memory = Memory::new(100 << 10);
        let (mut one, mut other) = (memory.holder(), memory.holder());
        one.set(60 << 10);
        other.set(50 << 10);
        one.set(56 << 10);
        assert_eq!((memory.held_bytes(), memory.is_full()), (104 << 10, true));
        drop(one);
        assert_eq!((memory.held_bytes(), memory.is_full()), (48 << 10, false));
        drop(other);
        assert_eq!(memory.held_bytes(), 0);
    }

    #[test]
    fn holders_that_keep_to_their_share_stay_under_the_limit() {
        let memory = Memory::new(1 << 30);
        let mut holders = Vec::new();
        for _ in 0..1000 {
            let mut held = memory.holder();
            held.set(memory.share(0, 16 << 20));
            holders.push(held);
        }
        assert!(!memory.is_full());
        assert!(memory.share(0, 16 << 20) < 1 << 20);
        assert!(memory.share(4096, 16 << 20) >= 4096);
        assert_eq!(Memory::new(u64::MAX).share(1, 77), 77);
    }

    #[test]
    fn one_at_a_time_may_go_past_the_limit() {
        let memory = Memory::new(0);
        let turn = memory.take_turn();
        assert!(turn.is_some() && memory.take_turn().is_none());
        drop(turn);
        assert!(memory.take_turn().is_some());
    }
}
