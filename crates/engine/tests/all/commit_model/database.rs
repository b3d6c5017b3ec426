//! The sequential model: what the objects look like after all published transactions, one after
//! the other, and the rules of ZODB said once more in the plainest way.

use zodium_engine::commit::{ObjectRead, ObjectWrite, WriteKind};
use zodium_types::{Oid, Tid};

/// Object numbers in use: 0 to 5. The first three exist from the beginning.
pub(crate) const OIDS: u64 = 6;

/// The tid of the objects that exist from the beginning.
pub(crate) const FIRST_TID: Tid = Tid(1000);

/// All revisions of all objects. A value counts how often the object was written, so a lost
/// update shows as a number that did not grow.
pub(crate) struct Database {
    objects: [Vec<Revision>; OIDS as usize],
    last: Tid,
}

#[derive(Clone, Copy)]
struct Revision {
    tid: Tid,
    value: u64,
}

impl Database {
    pub(crate) fn new() -> Database {
        let mut objects: [Vec<Revision>; OIDS as usize] = Default::default();
        for revisions in &mut objects[..3] {
            revisions.push(Revision { tid: FIRST_TID, value: 1 });
        }
        Database { objects, last: FIRST_TID }
    }

    /// The tid of the last transaction.
    pub(crate) fn last(&self) -> Tid {
        self.last
    }

    pub(crate) fn current(&self, oid: Oid) -> Option<Tid> {
        self.objects[oid.0 as usize].last().map(|revision| revision.tid)
    }

    /// How many revisions there are.
    pub(crate) fn revisions(&self, oid: Oid) -> usize {
        self.objects[oid.0 as usize].len()
    }

    /// The tid of the revision with this place in the history.
    pub(crate) fn serial(&self, oid: Oid, place: usize) -> Tid {
        self.objects[oid.0 as usize][place].tid
    }

    /// The value that a client writes after it has seen revision `serial`.
    pub(crate) fn value_after(&self, oid: Oid, serial: Tid) -> u64 {
        let seen = self.objects[oid.0 as usize].iter().find(|revision| revision.tid == serial);
        seen.map_or(1, |revision| revision.value + 1)
    }

    /// Whether the transaction is valid if run alone now.
    pub(crate) fn admits(&self, writes: &[ObjectWrite], reads: &[ObjectRead]) -> bool {
        let reads_fit = reads.iter().all(|read| self.current(read.oid) == Some(read.serial));
        reads_fit
            && last_writes(writes).all(|(_, write)| {
                let current = self.current(write.oid);
                match write.kind {
                    WriteKind::Store => current.is_none() || current == Some(write.serial),
                    WriteKind::Delete => current == Some(write.serial),
                    WriteKind::Restore => true,
                }
            })
    }

    /// Runs the transaction alone, now; `values` belong to `writes`.
    pub(crate) fn apply(
        &mut self,
        tid: Tid,
        writes: &[ObjectWrite],
        values: &[u64],
        reads: &[ObjectRead],
    ) {
        assert!(tid > self.last, "{tid} published after {}", self.last);
        assert!(self.admits(writes, reads), "{tid} is not valid where it is published");
        self.last = tid;
        for (index, write) in last_writes(writes) {
            let revisions = &mut self.objects[write.oid.0 as usize];
            let next = revisions.last().map_or(1, |revision| revision.value + 1);
            let value = if write.kind == WriteKind::Restore { next } else { values[index] };
            assert_eq!(value, next, "{tid} loses an update of {:?}", write.oid);
            revisions.push(Revision { tid, value });
        }
    }
}

fn last_writes(writes: &[ObjectWrite]) -> impl Iterator<Item = (usize, &ObjectWrite)> {
    writes
        .iter()
        .enumerate()
        .filter(|&(index, write)| writes[index + 1..].iter().all(|later| later.oid != write.oid))
}
