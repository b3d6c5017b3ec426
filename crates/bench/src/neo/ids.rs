//! Transaction ids, as a master gives them.

use zodium_types::{Oid, Tid};

/// Gives ids of transactions and of objects.
#[derive(Clone, Debug)]
pub(super) struct Ids {
    partitions: u64,
    last_tid: Tid,
    next_oid: Oid,
}

impl Ids {
    /// Gives ids after these.
    pub(super) fn new(partitions: u32, last_tid: Tid, next_oid: Oid) -> Ids {
        Ids { partitions: partitions.into(), last_tid, next_oid }
    }

    /// The temporary id of a new transaction.
    pub(super) fn begin(&mut self) -> Tid {
        self.last_tid = self.last_tid.next();
        self.last_tid
    }

    /// The id of a transaction that is voted: of the same partition as the temporary one.
    pub(super) fn finish(&mut self, ttid: Tid) -> Tid {
        let ahead = self.last_tid.0 - ttid.0;
        self.last_tid = Tid(ttid.0 + (ahead / self.partitions + 1) * self.partitions);
        self.last_tid
    }

    /// Ids of new objects, one after the other.
    pub(super) fn oids(&mut self, count: usize) -> impl Iterator<Item = Oid> + use<> {
        let first = self.next_oid.0;
        let end = first + count as u64;
        self.next_oid = Oid(end);
        (first..end).map(Oid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tids_grow_and_keep_their_partition() {
        let mut ids = Ids::new(12, Tid(1000), Oid(7));
        let ttids: Vec<Tid> = (0..40).map(|_| ids.begin()).collect();
        let mut last = *ttids.last().unwrap();
        for ttid in ttids {
            let tid = ids.finish(ttid);
            assert!(tid > last && tid.0 - last.0 <= 12 && tid.0 % 12 == ttid.0 % 12);
            last = tid;
        }
        assert_eq!(ids.oids(2).chain(ids.oids(1)).collect::<Vec<_>>(), [Oid(7), Oid(8), Oid(9)]);
    }
}
