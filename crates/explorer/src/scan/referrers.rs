//! The objects that refer to one, as of the last transaction of the scan.
//!
//! Key decision: of each object that referred to it only the last revision counts, so what is kept
//! are the referrers, and not all objects.

use std::collections::BTreeMap;

use zodium_pickle::{Reference, references_of_record};
use zodium_storage::{LogItem, Read};
use zodium_tools::ToolError;
use zodium_tools::classes::class_of;
use zodium_types::{Oid, Tid};

use super::Scan;
use crate::words;

/// Most referrers.
pub(crate) const REFERRERS_MAX: usize = 10_000;

/// The answer.
#[derive(Debug, Default)]
pub(crate) struct Referrers {
    pub(crate) found: BTreeMap<Oid, Referrer>,
    /// Whether there were more than fit at some time: some of these may be missing.
    pub(crate) is_cut: bool,
    /// Records whose references cannot be read.
    pub(crate) unreadable: u64,
}

/// An object that refers to the one in question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Referrer {
    pub(crate) class: String,
    /// The transaction that wrote it.
    pub(crate) tid: Tid,
    /// Whether all its references are weak ones.
    pub(crate) is_weak: bool,
}

/// Reads the log.
pub(super) fn run(scan: &Scan, storage: &dyn Read, target: Oid) -> Result<Referrers, ToolError> {
    let (mut referrers, mut current) = (Referrers::default(), Tid::ZERO);
    scan.walk(storage, &mut |item| {
        match item {
            LogItem::Transaction { tid, .. } => current = tid,
            LogItem::Record { oid, data, .. } => referrers.take(oid, data, current, target),
            LogItem::Skipped => {}
        }
        Ok(())
    })?;
    Ok(referrers)
}

impl Referrers {
    fn take(&mut self, oid: Oid, data: Option<&[u8]>, tid: Tid, target: Oid) {
        let (mut is_strong, mut is_weak) = (false, false);
        let read =
            references_of_record(data.unwrap_or_default(), &mut |reference| match reference {
                Reference::Strong(to) => is_strong |= to == target,
                Reference::Weak(to) => is_weak |= to == target,
                Reference::CrossDatabase { .. } => {}
            });
        // A deletion has no data, and no references.
        self.unreadable += u64::from(read.is_err() && data.is_some());
        if !is_strong && !is_weak {
            self.found.remove(&oid);
            return;
        }
        if self.found.len() >= REFERRERS_MAX && !self.found.contains_key(&oid) {
            self.is_cut = true;
            return;
        }
        let class = words::name(&class_of(data.unwrap_or_default()));
        self.found.insert(oid, Referrer { class, tid, is_weak: !is_strong });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_revision_of_a_referrer_counts() {
        let mut referrers = Referrers::default();
        let to = |oid: u8, weak: bool| match weak {
            false => [&b"cm\nC\n.C\x08\0\0\0\0\0\0\0"[..], &[oid], b"Q."].concat(),
            true => [&b"cm\nC\n.](U\x01wC\x08\0\0\0\0\0\0\0"[..], &[oid], b"\x85eQ."].concat(),
        };
        let target = Oid(5);
        referrers.take(Oid(1), Some(&to(5, false)), Tid(1), target);
        referrers.take(Oid(2), Some(&to(5, true)), Tid(1), target);
        referrers.take(Oid(3), Some(&to(5, false)), Tid(1), target);
        referrers.take(Oid(4), Some(&to(5, false)), Tid(1), target);
        referrers.take(Oid(3), Some(&to(6, false)), Tid(2), target);
        referrers.take(Oid(4), None, Tid(2), target);
        referrers.take(Oid(6), Some(b"no pickle"), Tid(2), target);
        let found: Vec<_> = referrers.found.iter().map(|(oid, to)| (oid.0, to.is_weak)).collect();
        assert_eq!((found, referrers.unreadable), (vec![(1, false), (2, true)], 1));
        assert_eq!(referrers.found[&Oid(1)].class, "m.C");
    }
}
