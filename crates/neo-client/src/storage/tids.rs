//! Walks over the transactions of all partitions in the order of their tids.

use std::collections::VecDeque;

use zodium_neo::Partition;
use zodium_types::Tid;

use crate::NeoError;
use crate::reads::Reads;

/// Tids of a partition that are read at once.
const CHUNK: u32 = 256;

/// The tids of a range, oldest or newest first.
pub(super) struct Tids {
    range: (Tid, Tid),
    is_backwards: bool,
    partitions: Vec<Ahead>,
}

/// The tids of one partition that are read and not given yet.
struct Ahead {
    partition: Partition,
    tids: VecDeque<Tid>,
    /// Whether there may be more; where to go on: a tid, or a number of transactions to skip.
    left: Option<Left>,
}

#[derive(Clone, Copy)]
enum Left {
    From(Tid),
    Skip(i64),
}

impl Tids {
    /// The tids from `first` to `last`.
    pub(super) fn new(
        reads: &Reads<'_>,
        range: (Tid, Tid),
        is_backwards: bool,
    ) -> Result<Tids, NeoError> {
        let left = if is_backwards { Left::Skip(0) } else { Left::From(range.0) };
        let ahead = |partition| Ahead { partition, tids: VecDeque::new(), left: Some(left) };
        let partitions = (0..reads.partitions()?).map(Partition).map(ahead).collect();
        Ok(Tids { range, is_backwards, partitions })
    }

    /// The next tid, which stays the next one until it is [taken](Tids::take).
    pub(super) fn peek(&mut self, reads: &Reads<'_>) -> Result<Option<Tid>, NeoError> {
        for ahead in &mut self.partitions {
            while ahead.tids.is_empty() && ahead.left.is_some() {
                ahead.read_on(reads, self.range)?;
            }
        }
        let fronts = self.partitions.iter().filter_map(|ahead| ahead.tids.front().copied());
        Ok(if self.is_backwards { fronts.max() } else { fronts.min() })
    }

    /// Passes over a tid that was the next one.
    pub(super) fn take(&mut self, tid: Tid) {
        let ahead = self.partitions.iter_mut().find(|ahead| ahead.tids.front() == Some(&tid));
        if let Some(ahead) = ahead {
            ahead.tids.pop_front();
        }
        match self.is_backwards {
            // Transactions that came meanwhile move the others back in the list.
            true => self.range.1 = Tid(tid.0.saturating_sub(1)),
            false => self.range.0 = tid.next(),
        }
    }
}

impl Ahead {
    fn read_on(&mut self, reads: &Reads<'_>, range: (Tid, Tid)) -> Result<(), NeoError> {
        let found = match self.left {
            Some(Left::From(first)) => reads.tids(self.partition, (first, range.1), CHUNK)?,
            Some(Left::Skip(skip)) => reads.newest(self.partition, skip, CHUNK.into())?,
            None => return Ok(()),
        };
        let is_full = found.len() >= CHUNK as usize;
        let last = found.last().copied();
        self.left = match self.left {
            Some(Left::From(_)) => last.filter(|_| is_full).map(|last| Left::From(last.next())),
            Some(Left::Skip(skip)) if is_full && last.is_some_and(|last| last >= range.0) => {
                Some(Left::Skip(skip + i64::from(CHUNK)))
            }
            _ => None,
        };
        self.tids.extend(found.into_iter().filter(|tid| (range.0..=range.1).contains(tid)));
        Ok(())
    }
}
