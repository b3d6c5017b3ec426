//! What happened in a run, as a digest that a second run must reach, and as lines for people.

/// Counts and digests events; keeps or prints lines of them when asked.
pub(crate) struct Trace {
    digest: u64,
    events: u64,
    prints: bool,
}

impl Trace {
    pub(crate) fn new(prints: bool) -> Trace {
        // FNV-1a with 64 bits, from its offset basis.
        Trace { digest: 0xcbf2_9ce4_8422_2325, events: 0, prints }
    }

    /// Notes an event: what, and the numbers that tell it from others of its kind.
    pub(crate) fn event(&mut self, what: &'static str, numbers: &[u64]) {
        self.events += 1;
        self.add(what.as_bytes());
        for number in numbers {
            self.add(&number.to_le_bytes());
        }
        if self.prints {
            let numbers: Vec<_> = numbers.iter().map(|number| format!("{number:x}")).collect();
            println!("{:>8}  {what} {}", self.events, numbers.join(" "));
        }
    }

    /// Notes bytes that went over a link.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        let mut chunks = bytes.chunks_exact(8);
        let mut mix = |word: u64| {
            self.digest = (self.digest ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
        };
        for chunk in &mut chunks {
            mix(chunk.try_into().map_or(0, u64::from_le_bytes));
        }
        chunks.remainder().iter().for_each(|byte| mix(u64::from(*byte)));
    }

    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }

    pub(crate) fn events(&self) -> u64 {
        self.events
    }
}
