//! The conflict resolution of this server: our own for BTrees' classes, then Python if the
//! operator has configured one.

use std::path::PathBuf;
use std::sync::Arc;

use tracing::{debug, warn};
use zodium_configuration::ServerOptions;
use zodium_engine::{Merge, Resolver};
use zodium_resolution::{Outcome, resolve};
use zodium_resolver::{Limits, PythonResolver};
use zodium_storage::Access;

/// The conflict resolver of one storage.
#[derive(Debug)]
pub(crate) struct ServerResolver {
    python: Option<PythonResolver>,
}

impl ServerResolver {
    /// Creates the configured resolver; `None` leaves all conflicts to the clients.
    pub(crate) fn for_storage(server: &ServerOptions) -> Option<Arc<dyn Resolver>> {
        if server.client_conflict_resolution {
            return None;
        }
        let python = |path: &PathBuf| {
            let python = PythonResolver::new(path.clone(), Limits::default());
            if !python.is_there() {
                warn!(
                    python = %path.display(),
                    "there is no such program: conflicts of the application's classes are left to \
                     clients. Give `python-resolver` the path of a Python that has ZODB and them"
                );
            }
            python
        };
        let python = server.python_resolver.as_ref().map(python);
        Some(Arc::new(ServerResolver { python }))
    }
}

impl Resolver for ServerResolver {
    fn resolve(&self, old: &[u8], committed: &[u8], new: &[u8], access: Access) -> Merge {
        match resolve(old, committed, new) {
            Outcome::Resolved(record) => return Merge::Resolved(record),
            Outcome::Unresolvable(reason) if self.python.is_none() || reason.is_certain() => {
                debug!(%reason, "a conflict is left to the client");
                return Merge::Unresolved;
            }
            Outcome::Unresolvable(_) | Outcome::NotOurs => {}
        }
        match (&self.python, access) {
            (None, _) => Merge::Unresolved,
            (Some(_), Access::NonBlocking) => Merge::WouldBlock,
            (Some(python), Access::Blocking) => {
                python.resolve(old, committed, new).map_or(Merge::Unresolved, Merge::Resolved)
            }
        }
    }
}
