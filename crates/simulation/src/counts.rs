//! Counters of a run: what its clients have done.

use std::fmt;

/// What the clients have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Revisions read and found correct.
    pub reads: u64,
    /// Of these, reads answered from a client's cache.
    pub cached_reads: u64,
    /// Views in which an invariant of the workload was checked.
    pub views: u64,
    /// Acknowledged commits.
    pub commits: u64,
    /// Conflicts that clients resolved.
    pub resolved: u64,
    /// Refused votes.
    pub refused: u64,
    /// Invalidations that arrived as expected.
    pub invalidations: u64,
    /// Commits whose outcome their client does not know.
    pub unknown: u64,
}

impl Counts {
    /// Adds the counters of another run.
    pub(crate) fn add(&mut self, other: &Counts) {
        self.reads += other.reads;
        self.cached_reads += other.cached_reads;
        self.views += other.views;
        self.commits += other.commits;
        self.resolved += other.resolved;
        self.refused += other.refused;
        self.invalidations += other.invalidations;
        self.unknown += other.unknown;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { reads, cached_reads, views, commits, resolved, .. } = self;
        let Counts { refused, invalidations, unknown, .. } = self;
        write!(
            f,
            "{reads} reads checked ({cached_reads} of caches) in {views} views, {commits} commits \
             acknowledged, {unknown} of unknown outcome, {refused} votes refused, {resolved} \
             conflicts resolved, {invalidations} invalidations"
        )
    }
}
