//! Counters of a run: what its clients have done.

use std::fmt;

use crate::workload::Task;

/// Declares counters that add up.
macro_rules! counters {
    ($(#[$meta:meta])* pub struct $name:ident { $($(#[$help:meta])* pub $counter:ident,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$help])* pub $counter: u64,)+
        }

        impl $name {
            /// Adds the counters of another run.
            pub(crate) fn add(&mut self, other: &$name) {
                $(self.$counter += other.$counter;)+
            }

            /// All counters with their names.
            pub(crate) fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($counter), self.$counter)),+]
            }
        }
    };
}
pub(crate) use counters;

counters! {
    /// What the clients have done.
    pub struct Counts {
        /// Revisions read and found correct.
        pub reads,
        /// Of these, reads answered from a client's cache.
        pub cached_reads,
        /// Views in which an invariant of the workload was checked.
        pub views,
        /// Acknowledged commits.
        pub commits,
        /// Of these, transfers between accounts.
        pub transfers,
        /// Of these, rewirings of the ring.
        pub rewirings,
        /// Of these, increments of counters.
        pub increments,
        /// Of these, items appended to logs.
        pub appended,
        /// Of these, switches of pairs.
        pub switches,
        /// Conflicts that clients resolved.
        pub resolved,
        /// Refused votes.
        pub refused,
        /// Invalidations that arrived as expected.
        pub invalidations,
        /// Commits whose outcome their client does not know.
        pub unknown,
    }
}

impl Counts {
    /// Counts an acknowledged commit, by its task.
    pub(crate) fn add_commit(&mut self, task: Task) {
        self.commits += 1;
        match task {
            Task::Transfer { .. } => self.transfers += 1,
            Task::Rewire { .. } => self.rewirings += 1,
            Task::Count { .. } => self.increments += 1,
            Task::Append { .. } => self.appended += 1,
            Task::Switch { .. } => self.switches += 1,
            Task::ReadAccounts | Task::ReadRing | Task::ReadLogs | Task::ReadPairs => {}
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { reads, cached_reads, views, commits, resolved, .. } = self;
        let Counts { refused, invalidations, unknown, .. } = self;
        let Counts { transfers, rewirings, increments, appended, switches, .. } = self;
        write!(
            f,
            "{reads} reads checked ({cached_reads} of caches) in {views} views, {commits} commits \
             acknowledged ({transfers} transfers, {rewirings} rewirings, \
             {increments} increments, {appended} items, {switches} switches), {unknown} of \
             unknown outcome, {refused} votes refused, {resolved} \
             conflicts resolved, {invalidations} invalidations"
        )
    }
}
