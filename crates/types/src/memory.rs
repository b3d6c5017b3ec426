//! The memory that clients make a server hold (messages on their way in and out, what open
//! transactions have stored), counted together and kept under a limit.
//!
//! Key decision: nobody waits for memory while holding some, but for one at a time, who may go
//! past the limit: so there is always somebody who gets on, and gives back what it has. Everybody
//! else is asked to hold little while little is free ([`Memory::share`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// One holder may have this part of what is free.
const SHARE_OF_FREE: u64 = 8;

/// What is held is counted in pieces of this size: small change would have all threads write to
/// one cache line all the time.
const PIECE_BYTES: u64 = 4096;

/// What is held, and how much may be.
#[derive(Debug)]
pub struct Memory {
    limit_bytes: u64,
    held_bytes: AtomicU64,
    /// Somebody may go past the limit now.
    has_turn: AtomicBool,
}

/// What one holder has; given back when it is dropped.
#[derive(Debug)]
pub struct Held {
    memory: Arc<Memory>,
    bytes: u64,
}

/// The right to go past the limit, which one has at a time.
#[derive(Debug)]
pub struct Turn(Arc<Memory>);

impl Memory {
    /// Nothing is held yet; `u64::MAX` is no limit.
    pub fn new(limit_bytes: u64) -> Arc<Memory> {
        let held_bytes = AtomicU64::new(0);
        Arc::new(Memory { limit_bytes, held_bytes, has_turn: AtomicBool::new(false) })
    }

    /// How much may be held, in bytes.
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// How much is held, in bytes.
    pub fn held_bytes(&self) -> u64 {
        // Relaxed, here and below: a number that stands for itself, and may be a moment old.
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// Whether as much is held as may be.
    pub fn is_full(&self) -> bool {
        self.held_bytes() >= self.limit_bytes
    }

    /// How much one holder may have now: a part of what is free, from `least` to `most` bytes.
    /// The more is held, the less each may have, so that all together stay under the limit.
    pub fn share(&self, least: usize, most: usize) -> usize {
        let free = self.limit_bytes.saturating_sub(self.held_bytes());
        let share = usize::try_from(free / SHARE_OF_FREE).unwrap_or(usize::MAX);
        share.max(least).min(most)
    }

    /// A holder that has nothing yet.
    pub fn holder(self: &Arc<Self>) -> Held {
        Held { memory: Arc::clone(self), bytes: 0 }
    }

    /// The right to go past the limit, unless somebody has it.
    pub fn take_turn(self: &Arc<Self>) -> Option<Turn> {
        // Relaxed: it guards no other memory.
        let was_taken = self.has_turn.swap(true, Ordering::Relaxed);
        (!was_taken).then(|| Turn(Arc::clone(self)))
    }
}

impl Held {
    /// It has so much now.
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
