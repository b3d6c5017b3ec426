//! Commits: stores at all cells, conflicts, deadlocks, aborts.

use zodium_storage::{NewBody, SharedConflict, SharedWrite, Write};
use zodium_types::{Oid, Tid, TransactionMetadata};

use crate::model::{Model, storage};
use crate::support::{PATIENCE, commit, current, follow, open, shared, vote, write};

#[test]
fn objects_are_stored_at_all_cells_and_commits_come_in_one_order() {
    let model = Model::start(2);
    let neo = open(&model);
    let commits = follow(&neo);
    let own = commit(&neo, &[write(1, Tid::ZERO, "a"), write(2, Tid::ZERO, "b")]).unwrap();
    assert_eq!(own.oids, [Oid(1), Oid(2)]);
    let stored = model.state.lock().stored.clone();
    assert_eq!(stored.keys().map(|(_, node)| *node).collect::<Vec<_>>(), [storage(1), storage(2)]);
    assert!(stored.values().all(|objects| objects.len() == 2));
    let other = model.commit(&[(1, "c")]);
    assert_eq!(commits.recv_timeout(PATIENCE).unwrap().tid, other);
    assert!(own.tid < other && commits.try_recv().is_err(), "own commits are not told twice");
    assert_eq!(current(&neo, 1).as_deref(), Some("c"));
    let deletion = SharedWrite { oid: Oid(1), serial: other, body: NewBody::Deleted };
    assert_eq!(commit(&neo, &[deletion]).unwrap().oids, [Oid(1)]);
    assert_eq!(current(&neo, 1), None);
}

#[test]
fn conflicts_name_the_current_revision_and_can_be_resolved() {
    let model = Model::start(2);
    let old = model.commit(&[(1, "a"), (2, "a")]);
    let new = model.commit(&[(1, "b")]);
    let neo = open(&model);
    let mut open = shared(&neo).begin(&TransactionMetadata::default()).unwrap();
    let conflicts = open.store(&[write(1, old, "c"), write(2, old, "c")], &[(Oid(1), old)]);
    assert_eq!(conflicts.unwrap(), [SharedConflict { oid: Oid(1), committed: new }]);
    assert_eq!(open.store(&[write(1, new, "merged")], &[]).unwrap(), []);
    open.vote().unwrap();
}

#[test]
fn what_is_given_up_is_aborted_everywhere() {
    let model = Model::start(2);
    let neo = open(&model);
    let mut open = shared(&neo).begin(&TransactionMetadata::default()).unwrap();
    open.store(&[write(1, Tid::ZERO, "a")], &[]).unwrap();
    drop(open);
    // At both storages and at the master.
    model.wait(|state| state.aborts == 3);
    let prepared = vote(&neo, &[write(1, Tid::ZERO, "a")]).unwrap();
    neo.abort(prepared);
    model.wait(|state| state.aborts == 4);
}

#[test]
fn locks_that_an_older_transaction_needs_are_given_back() {
    let model = Model::start(1);
    let neo = open(&model);
    let objects = [write(1, Tid::ZERO, "a"), write(2, Tid::ZERO, "a")];
    model.state.lock().deadlock = Some(Oid(1));
    let prepared = vote(&neo, &objects).unwrap();
    assert_eq!(model.state.lock().relocks, 1);
    neo.abort(prepared);
    // The older one has changed the object meanwhile.
    let committed = Tid(77);
    model.state.lock().deadlock = Some(Oid(1));
    model.state.lock().relock_conflict = Some(committed);
    let conflicts = vote(&neo, &objects).err().unwrap();
    assert_eq!(conflicts, [SharedConflict { oid: Oid(1), committed }]);
}

#[test]
fn storage_that_is_lost_during_a_transaction_is_left_out() {
    let model = Model::start(2);
    let neo = open(&model);
    let mut open = shared(&neo).begin(&TransactionMetadata::default()).unwrap();
    open.store(&[write(1, Tid::ZERO, "a")], &[]).unwrap();
    model.state.lock().silent.insert(storage(2));
    assert_eq!(open.store(&[write(2, Tid::ZERO, "b")], &[]).unwrap(), []);
    // The master says that it can do without.
    open.vote().unwrap();
    model.state.lock().silent.insert(storage(1));
    let mut open = shared(&neo).begin(&TransactionMetadata::default()).unwrap();
    let error = match open.store(&[write(1, Tid::ZERO, "a")], &[]) {
        Ok(_) => open.vote().err().unwrap(),
        Err(error) => error,
    };
    assert!(error.to_string().contains("storage"), "{error}");
}
