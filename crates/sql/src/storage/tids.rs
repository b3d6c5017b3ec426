//! Walks over the transactions of all partitions in the order of their tids.

use std::collections::VecDeque;

use zodium_types::Tid;

use super::view::View;
use crate::partitions::Partitions;
use crate::{SqlError, transactions};

/// Tids of a partition that are read at once.
const CHUNK: usize = 256;

/// The tids of a range, oldest or newest first.
#[derive(Debug)]
pub(super) struct Tids {
    partitions: Vec<Ahead>,
    is_backwards: bool,
}

/// The tids of one partition that are read and not given yet, and those that are left.
#[derive(Debug)]
struct Ahead {
    tids: VecDeque<Tid>,
    /// `None` when all are read.
    left: Option<(Tid, Tid)>,
}

impl Tids {
    /// The tids from `first` to `last`.
    pub(super) fn new(partitions: Partitions, range: (Tid, Tid), is_backwards: bool) -> Tids {
        let ahead = |_| Ahead { tids: VecDeque::new(), left: Some(range) };
        Tids { partitions: partitions.all().map(ahead).collect(), is_backwards }
    }

    /// The next tid, which stays the next one until it is [taken](Tids::take).
    pub(super) fn peek(&mut self, view: &View) -> Result<Option<Tid>, SqlError> {
        let is_backwards = self.is_backwards;
        for (partition, ahead) in (0..).zip(&mut self.partitions) {
            let Some(range) = ahead.left.filter(|_| ahead.tids.is_empty()) else { continue };
            let tids = view.read("read transactions", |connection| {
                transactions::tids(connection, partition, range, is_backwards, CHUNK)
            })?;
            ahead.left =
                tids.last().filter(|_| tids.len() == CHUNK).and_then(|last| match is_backwards {
                    true => Some((range.0, Tid(last.0.checked_sub(1)?))),
                    false => Some((last.next(), range.1)),
                });
            ahead.tids = tids.into();
        }
        let fronts = self.partitions.iter().filter_map(|ahead| ahead.tids.front().copied());
        Ok(if is_backwards { fronts.max() } else { fronts.min() })
    }

    /// Passes over a tid that was the next one.
    pub(super) fn take(&mut self, tid: Tid) {
        let ahead = self.partitions.iter_mut().find(|ahead| ahead.tids.front() == Some(&tid));
        if let Some(ahead) = ahead {
            ahead.tids.pop_front();
        }
    }
}
