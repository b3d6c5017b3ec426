//! Where the bytes of the damaged file stand in the recovered one.
//!
//! What is copied keeps its order, and most of it follows what it followed before. So a few runs
//! tell where each of millions of records went.

/// Stretches that were copied as they are, in the order of either file.
#[derive(Default)]
pub(super) struct Moved {
    runs: Vec<Run>,
}

struct Run {
    from: u64,
    to: u64,
    bytes: u64,
}

impl Moved {
    /// Notes that the bytes at `from` were copied to `to`, behind all that was noted before.
    pub(super) fn add(&mut self, from: u64, to: u64, bytes: u64) {
        match self.runs.last_mut() {
            Some(run) if run.from + run.bytes == from && run.to + run.bytes == to => {
                run.bytes += bytes;
            }
            _ => self.runs.push(Run { from, to, bytes }),
        }
    }

    /// Where the byte at a position of the damaged file stands now.
    pub(super) fn find(&self, position: u64) -> Option<u64> {
        let next = self.runs.partition_point(|run| run.from <= position);
        let run = self.runs.get(next.checked_sub(1)?)?;
        (position < run.from + run.bytes).then(|| position - run.from + run.to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_copied_is_found_and_what_was_not_is_not() {
        let mut moved = Moved::default();
        for (from, to, bytes) in [(4, 4, 10), (14, 14, 6), (30, 20, 5), (35, 25, 5), (40, 50, 1)] {
            moved.add(from, to, bytes);
        }
        assert_eq!(moved.runs.len(), 3);
        let found = [3, 4, 19, 20, 29, 30, 39, 40, 41].map(|position| moved.find(position));
        let expected = [None, Some(4), Some(19), None, None, Some(20), Some(29), Some(50), None];
        assert_eq!(found, expected);
    }
}
