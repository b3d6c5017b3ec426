//! Detects the trace of a sector that never reached the disk.
//!
//! Transactions are appended to space that the file did not have, or that was only reserved. After
//! a power cut, an unwritten sector there reads as zeros, and a partly written one ends in zeros.
//! So if a transaction looks whole but has a sector that ends in zeros, it is uncertain whether
//! those zeros were written. A transaction without such a sector is as it was written.
//!
//! A sector ends in zeros when its last [`ZEROS_MIN`] bytes are zeros. If the transaction has fewer
//! bytes in the sector, all of those must be zeros. Disks write a sector wholly or not at all. The
//! bound also finds a sector torn anywhere but within its last bytes.

/// Smallest unit that disks write as a whole.
const SECTOR_BYTES: u64 = 512;
/// This many zeros at the end of a sector are a trace. Headers of records have fewer in a row.
const ZEROS_MIN: u64 = 16;

/// Examines the bytes of transactions as they are laid out or read.
#[derive(Debug, Default)]
pub(crate) struct LostSectors {
    /// Start of the transaction.
    start: u64,
    position: u64,
    /// Number of zeros at the end of the bytes so far, as far as they matter.
    zeros: u64,
    seen: bool,
}

impl LostSectors {
    /// Begins a transaction.
    pub(crate) fn begin(&mut self, position: u64) {
        self.start = position;
        self.position = position;
        self.zeros = 0;
    }

    /// Adds the next bytes of the transaction.
    pub(crate) fn add(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = SECTOR_BYTES - self.position % SECTOR_BYTES;
            let count = usize::try_from(room).unwrap_or(usize::MAX).min(bytes.len());
            let (piece, rest) = bytes.split_at(count);
            let last = &piece[count.saturating_sub(ZEROS_MIN as usize)..];
            let zeros = last.iter().rev().take_while(|byte| **byte == 0).count();
            self.zeros = zeros as u64 + if zeros == count { self.zeros } else { 0 };
            self.position += count as u64;
            if self.position.is_multiple_of(SECTOR_BYTES) {
                self.end_sector();
            }
            bytes = rest;
        }
    }

    /// Ends the transaction.
    pub(crate) fn end(&mut self) {
        if !self.position.is_multiple_of(SECTOR_BYTES) {
            self.end_sector();
        }
    }

    /// Whether any of the transactions has the trace of a lost sector.
    pub(crate) fn seen(&self) -> bool {
        self.seen
    }

    fn end_sector(&mut self) {
        let sector_start = (self.position - 1) / SECTOR_BYTES * SECTOR_BYTES;
        let count = self.position - sector_start.max(self.start);
        self.seen |= self.zeros >= ZEROS_MIN.min(count);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Finds a trace by examining each sector as a whole.
    fn has_trace(start: usize, bytes: &[u8]) -> bool {
        let end = start + bytes.len();
        (start / 512..end.div_ceil(512)).any(|sector| {
            let part =
                &bytes[(sector * 512).max(start) - start..(sector * 512 + 512).min(end) - start];
            part[part.len().saturating_sub(16)..].iter().all(|byte| *byte == 0)
        })
    }

    fn seen(start: u64, bytes: &[u8], pieces: &[usize]) -> bool {
        let mut sectors = LostSectors::default();
        sectors.begin(start);
        let mut rest = bytes;
        for piece in pieces {
            let (now, later) = rest.split_at((*piece).min(rest.len()));
            sectors.add(now);
            rest = later;
        }
        sectors.add(rest);
        sectors.end();
        sectors.seen()
    }

    #[test]
    fn a_few_bytes_in_a_sector_are_a_trace_if_all_of_them_are_zeros() {
        for count in 1..=20 {
            for sector in [512, 5 * 512] {
                let zeros = vec![0; count as usize];
                let mut others = zeros.clone();
                others[0] = 1;
                let ones = vec![1; 700];
                // At the start of the transaction, and at its end.
                let first = sector - count;
                assert!(seen(first, &[&zeros[..], &ones].concat(), &[]), "{count}");
                let is_trace = count > 16;
                assert_eq!(seen(first, &[&others[..], &ones].concat(), &[]), is_trace, "{count}");
                let last = sector + 2_048 - 700;
                assert!(seen(last, &[&ones[..], &zeros].concat(), &[]), "{count}");
                others.reverse();
                assert!(!seen(last, &[&ones[..], &others].concat(), &[]), "{count}");
            }
        }
    }

    proptest! {
        #[test]
        fn a_trace_is_seen_wherever_the_bytes_are_split(
            start in 0..2_000_u64,
            length in 1..3_000_usize,
            zeros in prop::collection::vec((0..3_000_usize, 0..600_usize), 0..4),
            pieces in prop::collection::vec(1..700_usize, 0..6),
        ) {
            let mut bytes = vec![1; length];
            for (from, count) in zeros {
                bytes.iter_mut().skip(from).take(count).for_each(|byte| *byte = 0);
            }
            let expected = has_trace(start as usize, &bytes);
            prop_assert_eq!(seen(start, &bytes, &pieces), expected);
        }

        #[test]
        fn a_sector_lost_or_torn_in_steps_of_16_bytes_leaves_a_trace(
            start in 0..2_000_u64,
            length in 1..3_000_usize,
            at in 0..3_000_u64,
            arrived in 0..32_u64,
        ) {
            let mut bytes = vec![1; length];
            let sector = (start + at % length as u64) / 512 * 512;
            for position in (sector + arrived * 16).max(start)..sector + 512 {
                if let Some(byte) = bytes.get_mut((position - start) as usize) {
                    *byte = 0;
                }
            }
            let is_touched = bytes.contains(&0);
            let cut_short = sector + 512 > start + length as u64;
            // A transaction that ends within the sector ends in its length, which is not zero.
            prop_assert!(seen(start, &bytes, &[]) || !is_touched || cut_short);
        }
    }
}
