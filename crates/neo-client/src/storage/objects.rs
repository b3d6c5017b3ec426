//! A walk over all objects, in the order of oids.

use std::collections::VecDeque;

use parking_lot::Mutex;
use zodium_neo::Partition;
use zodium_types::Oid;

use crate::NeoError;
use crate::reads::Reads;

/// Oids that are asked for at once, over all partitions.
const AHEAD: u32 = 10_000;

/// The oids that come next in a walk, kept from one step to the next.
#[derive(Default)]
pub(super) struct ObjectsAhead(Mutex<Ahead>);

#[derive(Default)]
struct Ahead {
    /// In ascending order without gaps in the cluster, from `from` on.
    oids: VecDeque<Oid>,
    from: Oid,
}

impl ObjectsAhead {
    /// The first object at or after `from`, and the one after it. Blocking.
    pub(super) fn next(
        &self,
        reads: &Reads<'_>,
        from: Oid,
    ) -> Result<Option<(Oid, Option<Oid>)>, NeoError> {
        let mut ahead = self.0.lock();
        // A walk that begins where another one began must not see the list of that one.
        if from > ahead.from {
            while ahead.oids.front().is_some_and(|oid| *oid < from) {
                ahead.oids.pop_front();
            }
        } else {
            ahead.oids.clear();
        }
        // With one left it is not known which one follows.
        if ahead.oids.len() < 2 {
            ahead.oids = listed(reads, from)?.into();
        }
        ahead.from = from;
        let mut oids = ahead.oids.iter().copied();
        Ok(oids.next().map(|first| (first, oids.next())))
    }
}

/// The objects from one on, as far as all partitions are known.
fn listed(reads: &Reads<'_>, from: Oid) -> Result<Vec<Oid>, NeoError> {
    let partitions = reads.partitions()?;
    let each = (AHEAD / partitions.max(1)).max(2);
    let mut lists = Vec::new();
    for partition in (0..partitions).map(Partition) {
        lists.push(reads.oids(partition, from, each)?);
    }
    Ok(merged(lists, each as usize))
}

/// Merges lists. Beyond the end of a list that is full, objects of it would be missing.
fn merged(lists: Vec<Vec<Oid>>, each: usize) -> Vec<Oid> {
    let full = lists.iter().filter(|list| list.len() >= each);
    let end = full.filter_map(|list| list.last()).min().copied();
    let mut oids: Vec<Oid> = lists.into_iter().flatten().collect();
    oids.retain(|oid| end.is_none_or(|end| *oid <= end));
    oids.sort_unstable();
    oids
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_merged_as_far_as_all_are_known() {
        let lists = |lists: &[&[u64]], each| {
            let lists = lists.iter().map(|list| list.iter().copied().map(Oid).collect());
            merged(lists.collect(), each).into_iter().map(|oid| oid.0).collect::<Vec<_>>()
        };
        assert_eq!(lists(&[&[0, 2, 4], &[1, 9]], 4), [0, 1, 2, 4, 9]);
        assert_eq!(lists(&[&[0, 2, 4], &[1, 9]], 3), [0, 1, 2, 4]);
        assert_eq!(lists(&[&[], &[]], 3), [] as [u64; 0]);
    }
}
