//! Counters of a run: what the clients of the cluster have done.

use std::fmt;

use zodium_neo_storage::Counts;

use crate::counts::counters;

counters! {
    /// What the clients of a cluster have done.
    pub struct ClusterCounts {
        /// Reads that were compared with the history.
        pub reads,
        /// Acknowledged commits.
        pub commits,
        /// Commits that a storage wrote at their lock only.
        pub held,
        /// Loads that storages answered from memory.
        pub remembered,
        /// Transactions that were given up.
        pub aborts,
        /// Conflicts that clients resolved.
        pub resolved,
        /// Locks that clients gave back for an older transaction.
        pub relocks,
        /// Commits without a storage that had failed.
        pub incomplete,
        /// Commits whose outcome the client asked for after it had lost the master.
        pub outcomes,
        /// Transactions that were committed after a crash.
        pub validated,
        /// Cells that were replicated.
        pub replicated,
        /// Packs that were ordered.
        pub packs,
    }
}

impl ClusterCounts {
    /// Adds what a storage says of its process, at its end.
    pub(super) fn add_process(&mut self, counts: &Counts) {
        self.held += counts.held_commits;
        self.remembered += counts.remembered_loads;
    }
}

impl fmt::Display for ClusterCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ClusterCounts { reads, commits, held, aborts, resolved, relocks, .. } = self;
        let ClusterCounts { incomplete, outcomes, validated, replicated, packs, .. } = self;
        let remembered = self.remembered;
        write!(
            f,
            "{reads} reads checked, {commits} commits acknowledged ({incomplete} without a failed \
             storage), {held} written at their lock only, {aborts} given up, {resolved} conflicts \
             resolved, {relocks} locks given back, {outcomes} outcomes asked for, {validated} \
             validated after a crash, {replicated} cells replicated, {packs} packs, {remembered} \
             loads answered from memory"
        )
    }
}
