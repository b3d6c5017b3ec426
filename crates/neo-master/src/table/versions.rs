//! Earlier versions of the table, with which a cluster could still be started.
//!
//! A master starts a cluster with the newest table that it finds, when all storages are there that
//! can be read by it. So a version is **closed** as soon as one of these storages has a later one:
//! it is never the newest again. As long as one is open, nothing may be committed. A start with it
//! would not know of the commit: with replicas that were outdated meanwhile, or without those that
//! became up to date.

use std::collections::{BTreeSet, VecDeque};

use zodium_neo::{NodeId, TableId};

/// The open versions before the current one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Versions {
    /// The storages with readable cells, by the current version.
    readable: BTreeSet<NodeId>,
    /// The last of those with the same storages stands for all of them.
    open: VecDeque<(TableId, BTreeSet<NodeId>)>,
}

impl Versions {
    /// Begins with a version that is known to be the newest one.
    pub(super) fn beginning_with(readable: BTreeSet<NodeId>) -> Versions {
        Versions { readable, open: VecDeque::new() }
    }

    /// There is a version after `old`, with these storages.
    pub(super) fn changed(&mut self, old: TableId, readable: BTreeSet<NodeId>) {
        let before = std::mem::replace(&mut self.readable, readable);
        match self.open.back_mut().filter(|(_, nodes)| *nodes == before) {
            Some((id, _)) => *id = old,
            None => self.open.push_back((old, before)),
        }
    }

    /// A storage has a version.
    pub(super) fn known(&mut self, node: NodeId, id: TableId) {
        self.open.retain(|(open, readable)| *open >= id || !readable.contains(&node));
    }

    /// Whether storages with these readable cells can close all versions, the current one too. A
    /// table whose storages cannot must not follow: a start with it waits for none that knows
    /// whether an earlier one is in use.
    pub(super) fn can_be_followed_by(&self, readable: &BTreeSet<NodeId>) -> bool {
        let open = self.open.iter().map(|(_, nodes)| nodes).chain([&self.readable]);
        // No cluster starts with a version that has no readable cell.
        open.filter(|nodes| !nodes.is_empty()).all(|nodes| !nodes.is_disjoint(readable))
    }

    /// Whether all versions before the current one are closed.
    pub(super) fn are_closed(&self) -> bool {
        self.open.is_empty()
    }

    /// Whether they can be, with storages that are there.
    pub(super) fn can_be_closed(&self, is_there: impl Fn(NodeId) -> bool) -> bool {
        self.open.iter().all(|(_, readable)| readable.iter().any(|node| is_there(*node)))
    }
}

#[cfg(test)]
mod tests {
    use zodium_neo::NodeType;

    use super::*;

    fn nodes(numbers: &[u32]) -> BTreeSet<NodeId> {
        numbers.iter().map(|number| NodeId::of(NodeType::Storage, *number).unwrap()).collect()
    }

    fn known(versions: &mut Versions, number: u32, id: u64) -> bool {
        versions.known(NodeId::of(NodeType::Storage, number).unwrap(), TableId(id));
        versions.are_closed()
    }

    #[test]
    fn a_version_is_closed_by_a_storage_of_it_that_has_a_later_one() {
        let mut versions = Versions::beginning_with(nodes(&[1]));
        assert!(versions.are_closed());
        versions.changed(TableId(4), nodes(&[1, 2]));
        assert!(!known(&mut versions, 2, 5), "the other one could start the cluster without it");
        assert!(!known(&mut versions, 1, 4));
        assert!(known(&mut versions, 1, 5));
    }

    #[test]
    fn versions_stay_open_when_their_storages_are_lost() {
        let mut versions = Versions::beginning_with(nodes(&[1]));
        versions.changed(TableId(4), nodes(&[1, 2]));
        versions.changed(TableId(5), nodes(&[1, 2]));
        versions.changed(TableId(6), nodes(&[2]));
        let second = nodes(&[2]);
        assert!(!versions.can_be_closed(|node| second.contains(&node)));
        assert!(versions.can_be_closed(|_| true));
        assert!(!known(&mut versions, 2, 7), "it closes what it can read, and not the first");
        assert!(known(&mut versions, 1, 5));
    }
}
