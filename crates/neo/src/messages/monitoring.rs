//! What admins tell operators and each other of the health of clusters.

use crate::values::{Address, Extra};
use crate::wire::record;

record! {
    /// Asks for the health of a cluster and its backups. ctl to A.
    pub struct AskMonitorInformation {}

    /// The health of a cluster and its backups.
    pub struct AnswerMonitorInformation<'a> {
        /// Names of clusters with a warning; `None` for the one asked.
        warnings: Vec<Option<&'a str>>,
        /// Names of clusters with a problem; `None` for the one asked.
        problems: Vec<Option<&'a str>>,
        /// A text for people.
        summary: &'a str,
    }

    /// The health of a backup cluster. A to A.
    pub struct NotifyMonitorInformation<'a> {
        /// What changed: `cluster_state`, `down` (a number of nodes), `pt_summary` (by cell state,
        /// a number of cells).
        information: Extra<'a>,
    }

    /// Where the admin of the upstream cluster listens. M to A.
    pub struct NotifyUpstreamAdmin {
        /// Its address.
        address: Address,
    }
}
