//! Counters of a run: what its clients have done.

use std::fmt;

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
