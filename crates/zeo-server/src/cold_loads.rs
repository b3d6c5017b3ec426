//! Loads that are not in memory, answered in batches.

use std::rc::Rc;
use std::sync::Arc;

use zodium_engine::Database;
use zodium_net::{Blocking, Together};
use zodium_storage::{Load, StorageError};
use zodium_types::{Oid, Tid};

/// Answers the loads of a worker's sessions together, if that pays for this storage.
pub(crate) type ColdLoads = Together<(Oid, Tid), Result<Load, StorageError>>;

/// The cold loads of a storage on a worker; `None` if each is a job of its own.
pub(crate) fn cold_loads(
    storage: &Arc<Database>,
    blocking: &Rc<dyn Blocking>,
) -> Option<Rc<ColdLoads>> {
    let most = storage.reader().loads_at_once();
    let storage = Arc::clone(storage);
    let answer = move |asked: Vec<_>| storage.reader().load_many_before(&asked);
    (most > 1).then(|| Rc::new(Together::new(Rc::clone(blocking), most, answer)))
}
