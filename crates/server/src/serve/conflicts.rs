//! What the engine calls to resolve a conflict.

use tracing::debug;
use zodium_resolution::{Outcome, resolve};

/// Resolves a conflict of a class that is known here; says in the log why it could not.
pub(crate) fn resolve_conflict(old: &[u8], committed: &[u8], new: &[u8]) -> Option<Vec<u8>> {
    match resolve(old, committed, new) {
        Outcome::Resolved(record) => Some(record),
        Outcome::Unresolvable(reason) => {
            debug!(%reason, "a conflict is left to the client");
            None
        }
        Outcome::NotOurs => None,
    }
}
