//! Counters of a run: what the clients of the cluster have done.

use std::fmt;

use zodium_neo_storage::Counts;

/// What the clients of a cluster have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClusterCounts {
    /// Reads that were compared with the history.
    pub reads: u64,
    /// Acknowledged commits.
    pub commits: u64,
    /// Commits that a storage wrote at their lock only.
    pub held: u64,
    /// Loads that storages answered from memory.
    pub remembered: u64,
    /// Transactions that were given up.
    pub aborts: u64,
    /// Conflicts that clients resolved.
    pub resolved: u64,
    /// Locks that clients gave back for an older transaction.
    pub relocks: u64,
    /// Commits without a storage that had failed.
    pub incomplete: u64,
    /// Commits whose outcome the client asked for after it had lost the master.
    pub outcomes: u64,
    /// Transactions that were committed after a crash.
    pub validated: u64,
    /// Cells that were replicated.
    pub replicated: u64,
    /// Packs that were ordered.
    pub packs: u64,
}

impl ClusterCounts {
    /// Adds what a storage says of its process, at its end.
    pub(super) fn add_process(&mut self, counts: &Counts) {
        self.held += counts.held_commits;
        self.remembered += counts.remembered_loads;
    }

    /// Adds the counters of another run.
    pub(crate) fn add(&mut self, other: &ClusterCounts) {
        self.reads += other.reads;
        self.commits += other.commits;
        self.held += other.held;
        self.remembered += other.remembered;
        self.aborts += other.aborts;
        self.resolved += other.resolved;
        self.relocks += other.relocks;
        self.incomplete += other.incomplete;
        self.outcomes += other.outcomes;
        self.validated += other.validated;
        self.replicated += other.replicated;
        self.packs += other.packs;
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
