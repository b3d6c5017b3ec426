//! Events of a run: as a digest that a second run must reproduce, and as lines for people.

use std::collections::BTreeMap;
use std::fmt;

/// Counts and digests events; keeps or prints their lines if asked to.
pub(crate) struct Trace {
    digest: Digest,
    events: u64,
    happened: BTreeMap<&'static str, u64>,
    prints: bool,
}

impl Trace {
    pub(crate) fn new(prints: bool) -> Trace {
        Trace { digest: Digest::default(), events: 0, happened: BTreeMap::new(), prints }
    }

    /// Records an event: its kind, and numbers that describe it.
    pub(crate) fn event(&mut self, what: &'static str, numbers: &[u64]) {
        self.events += 1;
        *self.happened.entry(what).or_default() += 1;
        self.digest.add(what.as_bytes());
        for number in numbers {
            self.digest.add(&number.to_le_bytes());
        }
        if self.prints {
            let numbers: Vec<_> = numbers.iter().map(|number| format!("{number:x}")).collect();
            println!("{:>8}  {what} {}", self.events, numbers.join(" "));
        }
    }

    pub(crate) fn events(&self) -> Events {
        Events { digest: self.digest.0, count: self.events, happened: self.happened.clone() }
    }
}

/// The events of a run, or of several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// Digest of all events of a run in order.
    pub digest: u64,
    /// Number of events.
    pub count: u64,
    /// Number of events of each kind.
    pub happened: BTreeMap<&'static str, u64>,
}

impl Events {
    /// Adds those of another run. Digests are combined regardless of their order.
    pub fn add(&mut self, other: &Events) {
        self.digest = self.digest.wrapping_add(other.digest);
        self.count += other.count;
        for (what, count) in &other.happened {
            *self.happened.entry(what).or_default() += count;
        }
    }
}

impl fmt::Display for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Events { digest, count, happened } = self;
        let happened: Vec<_> = happened.iter().map(|(what, n)| format!("{n} {what}")).collect();
        write!(f, "digest {digest:016x} of {count} events: {}", happened.join(", "))
    }
}

/// A digest of bytes in order.
#[derive(Clone, Copy)]
pub(crate) struct Digest(pub(crate) u64);

impl Default for Digest {
    fn default() -> Digest {
        // The offset basis of 64-bit FNV-1a; the steps below are FNV-1a over words.
        Digest(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        let mut mix = |word: u64| {
            self.0 = (self.0 ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
        };
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            mix(chunk.try_into().map_or(0, u64::from_le_bytes));
        }
        chunks.remainder().iter().for_each(|byte| mix(u64::from(*byte)));
    }
}
