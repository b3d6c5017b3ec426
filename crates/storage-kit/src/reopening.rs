//! Reopening, by which a storage takes commits again. Nothing has failed here: what each failure
//! leaves behind is for the tests of each kind.

use zodium_storage::WriteState;
use zodium_types::Tid;

use crate::Tester;
use crate::tester::data_of;

pub fn empty_storage_is_reopened(tester: &Tester) {
    tester.storage.reopen().unwrap();
    assert_eq!(tester.storage.last_tid(), Tid::ZERO);
    tester.store(1, "first");
    assert_eq!(tester.current(1).as_deref(), Some("first"));
}

pub fn reopening_changes_nothing(tester: &Tester) {
    let first = tester.store(1, "first");
    let second = tester.store(1, "second");
    tester.store(2, "gone");
    let last = tester.delete(2);
    let before = tester.transactions(None, None);
    for _ in 0..2 {
        tester.storage.reopen().unwrap();
        assert_eq!(tester.storage.write_state(), WriteState::Writable);
        assert_eq!(tester.storage.last_tid(), last);
        assert_eq!(tester.load(1, second), Some(("first".to_owned(), first, Some(second))));
        assert_eq!(tester.load(1, Tid::MAX), Some(("second".to_owned(), second, None)));
        assert_eq!(tester.current(2), None);
        assert_eq!(tester.transactions(None, None), before);
    }
}

pub fn commits_go_on_after_a_reopening(tester: &Tester) {
    let first = tester.store(1, "first");
    tester.storage.reopen().unwrap();
    let second = tester.store(1, "second");
    tester.storage.reopen().unwrap();
    let third = tester.store(2, "third");
    let tids: Vec<Tid> = tester.transactions(None, None).into_iter().map(|(tid, _)| tid).collect();
    assert_eq!(tids, [first, second, third]);
}

pub fn prepared_before_a_reopening_is_committed_after_it(tester: &Tester) {
    tester.store(1, "first");
    let prepared = tester.prepare(vec![data_of(1, "prepared")]).unwrap();
    tester.storage.reopen().unwrap();
    assert_eq!(tester.current(1).as_deref(), Some("first"));
    tester.commit_batch(vec![prepared]);
    assert_eq!(tester.current(1).as_deref(), Some("prepared"));
}

pub fn aborted_after_a_reopening_leaves_nothing(tester: &Tester) {
    let first = tester.store(1, "first");
    let prepared = tester.prepare(vec![data_of(1, "prepared"), data_of(2, "new")]).unwrap();
    tester.storage.reopen().unwrap();
    tester.storage.abort(prepared);
    assert_eq!((tester.current(1).as_deref(), tester.current(2)), (Some("first"), None));
    assert_eq!(tester.storage.last_tid(), first);
    tester.store(1, "second");
    assert_eq!(tester.current(1).as_deref(), Some("second"));
}

pub fn oids_are_new_after_a_reopening(tester: &Tester) {
    let before = tester.storage.new_oids(3).unwrap();
    tester.storage.reopen().unwrap();
    let after = tester.storage.new_oids(3).unwrap();
    assert!(after.start() > before.end(), "{before:?} and {after:?}");
}
