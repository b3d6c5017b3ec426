//! Transactions that write something other than new data: undos, copies of transactions with their
//! own tids, deletions.

use crate::support::{
    Outcome, Session, assert_idle, load, start, text, transaction, transaction_with,
};
use bytes::Bytes;
use zodium_disk::MemoryDisk;
use zodium_engine::commit::{CommitError, ConflictKind};
use zodium_engine::{Check, Transaction, VoteError, VoteStart};
use zodium_storage::{Access, StorageError};
use zodium_types::{MetadataTooLong, Oid, Tid, TransactionMetadata, TransactionStatus};

#[test]
fn undo_brings_back_what_was_before_and_can_be_undone_itself() {
    with_session(|session| {
        let created = session.store(&[(1, "one"), (2, "two")]);
        let changed = session.store(&[(1, "changed")]);
        let undone = undo(session, &[changed]).unwrap();
        assert_eq!(texts(session), ["one", "two"]);
        assert_eq!(points_to(session, undone), [Some(created)]);
        let redone = undo(session, &[undone]).unwrap();
        assert_eq!(texts(session), ["changed", "two"]);
        assert_eq!(points_to(session, redone), [Some(changed)]);
        undo(session, &[redone]).unwrap();
        undo(session, &[created]).unwrap();
        assert_eq!(texts(session), ["gone", "gone"]);
    });
}

#[test]
fn what_reads_old_records_is_checked_by_no_thread_that_must_not_wait() {
    with_session(|session| {
        let tid = session.store(&[(1, "one")]);
        let mut undo = transaction();
        undo.undo(tid);
        let mut copy = transaction();
        copy.restore(Oid(2), Tid::ZERO, Some(Bytes::from_static(b"two")), None);
        for mut transaction in [undo, copy] {
            session.storage.find_undone(&mut transaction).unwrap();
            let number = session.lock(&transaction).unwrap();
            let checked = session.storage.check(number, &transaction, Access::NonBlocking);
            assert!(matches!(checked, Ok(Check::WouldBlock)), "{checked:?}");
            session.storage.abort(number, None);
        }
    });
}

#[test]
fn several_undos_in_one_transaction_write_one_record_for_each_object() {
    with_session(|session| {
        let first = session.store(&[(1, "one"), (2, "two")]);
        let second = session.store(&[(1, "one again")]);
        let third = session.store(&[(1, "one at last"), (2, "two at last")]);
        let undone = undo(session, &[third, second]).unwrap();
        assert_eq!(texts(session), ["one", "two"]);
        assert_eq!(points_to(session, undone), [Some(first), Some(first)]);
    });
}

#[test]
fn undone_objects_are_named_to_the_client() {
    with_session(|session| {
        session.store(&[(1, "one"), (2, "two")]);
        let tid = session.store(&[(1, "changed"), (2, "changed")]);
        let mut transaction = transaction();
        transaction.undo(tid);
        let Ok(Outcome::Voted(number, voted)) = session.try_vote(&mut transaction) else {
            panic!("it can be undone")
        };
        assert_eq!(voted.changed(), [Oid(1), Oid(2)]);
        session.finish(number, voted).unwrap();
        let told = session.seen.last().unwrap();
        assert_eq!(told.oids, [Oid(1), Oid(2)]);
    });
}

#[test]
fn what_was_changed_since_cannot_be_undone() {
    with_session(|session| {
        let tid = session.store(&[(1, "one"), (2, "two"), (3, "three")]);
        session.store(&[(1, "changed"), (3, "changed")]);
        match undo(session, &[tid]) {
            Err(VoteError::UndoConflict { oids }) => assert_eq!(oids, [Oid(1), Oid(3)]),
            other => panic!("{other:?}"),
        }
        // The same data are as good as the same record.
        session.store(&[(1, "one"), (3, "three")]);
        undo(session, &[tid]).unwrap();
        assert_eq!(texts(session), ["gone", "gone"]);
    });
}

#[test]
fn unknown_transaction_cannot_be_undone() {
    with_session(|session| {
        let tid = session.store(&[(1, "one")]);
        for unknown in [Tid::ZERO, Tid(tid.0 - 1), tid.next(), Tid::MAX] {
            let refused = undo(session, &[unknown]);
            let reason = matches!(
                refused,
                Err(VoteError::Storage(StorageError::NotUndoable { tid, .. })) if tid == unknown
            );
            assert!(reason, "{refused:?}");
        }
    });
}

/// It is looked up before the locks are held; what counts is the state when they are.
#[test]
fn undo_that_waited_is_checked_against_what_was_written_meanwhile() {
    with_session(|session| {
        session.store(&[(1, "one")]);
        let tid = session.store(&[(1, "changed")]);
        let mut newer = transaction();
        newer.store(Oid(1), tid, Bytes::from_static(b"newer"));
        let (number, voted) = session.vote(newer);

        let mut undo = transaction();
        undo.undo(tid);
        session.storage.find_undone(&mut undo).unwrap();
        let (waiting, start) = session.begin(&undo).unwrap();
        assert_eq!(start, VoteStart::Waiting);
        session.finish(number, voted).unwrap();
        session.wait_granted(waiting);
        let refused = session.check(waiting, &undo);
        assert!(matches!(refused, Err(VoteError::UndoConflict { .. })));
        assert_eq!(texts(session)[0], "newer");
    });
}

#[test]
fn copy_keeps_its_tid_and_points_back_where_the_source_has_the_same_data() {
    with_session(|session| {
        let source = session.store(&[(1, "one"), (2, "two"), (3, "three")]);
        session.store(&[(1, "changed")]);
        let tid = Tid(session.storage.last_tid().0 + 1000);
        let mut copy = transaction_with(Some(tid));
        let data = |text: &'static str| Some(Bytes::from_static(text.as_bytes()));
        copy.restore(Oid(1), tid, data("one"), Some(source));
        copy.restore(Oid(2), tid, data("other data"), Some(source));
        copy.restore(Oid(3), tid, None, Some(source));
        copy.restore(Oid(4), tid, data("four"), Some(Tid(source.0 - 1)));
        copy.restore(Oid(5), tid, data("five"), None);
        assert_eq!(session.commit(copy), tid);
        assert_eq!(points_to(session, tid), [Some(source), None, None, None, None]);
        assert_eq!(texts(session), ["one", "other data"]);
        assert_eq!(text(&session.storage, 3), None);
        assert_eq!(text(&session.storage, 4).as_deref(), Some("four"));
        assert_eq!(load(&session.storage, 5, Tid::MAX).unwrap().1, tid);
        assert_eq!(session.storage.last_tid(), tid);
    });
}

#[test]
fn own_tid_must_be_newer_than_all_others() {
    with_session(|session| {
        let last = session.store(&[(1, "one")]);
        for tid in [Tid::ZERO, Tid(last.0 - 1), last] {
            match session.try_vote(&mut copy_of(1, tid)).err() {
                Some(VoteError::Commit(CommitError::TidNotNewer { tid: found, last: than })) => {
                    assert_eq!((found, than), (tid, last));
                }
                other => panic!("{other:?}"),
            }
        }
        let refused = session.try_vote(&mut copy_of(1, Tid::MAX)).err();
        assert!(matches!(refused, Some(VoteError::TidAhead { tid: Tid::MAX, .. })));

        // One of the far future: those that follow are later still.
        let future = Tid(last.0 + (1 << 52));
        assert_eq!(session.commit(copy_of(1, future)), future);
        assert_eq!(session.store(&[(1, "next")]), future.next());
    });
}

/// So many tids are a minute.
const MINUTE: u64 = 1 << 32;

#[test]
fn a_tid_ahead_of_the_clock_by_more_than_minutes_is_taken_of_copies_only_and_never_by_millennia() {
    with_session(|session| {
        let last = session.store(&[(1, "one")]);
        let with_store = |tid| {
            let mut transaction = transaction_with(Some(tid));
            transaction.store(Oid(2), Tid::ZERO, Bytes::from_static(b"stored"));
            transaction
        };
        let far = Tid(last.0 + 12 * MINUTE);
        for mut transaction in [with_store(far), transaction_with(Some(far)), copy_of(2, Tid::MAX)]
        {
            let refused = session.try_vote(&mut transaction).err();
            assert!(matches!(refused, Some(VoteError::TidAhead { .. })), "{refused:?}");
        }
        // Others are not held up.
        assert!(session.store(&[(3, "three")]) < far);
        let near = Tid(last.0 + 8 * MINUTE);
        assert_eq!(session.commit(with_store(near)), near);
        let decades = Tid(last.0 + 90 * 365 * 24 * 60 * MINUTE);
        assert_eq!(session.commit(copy_of(2, decades)), decades);
    });
}

#[test]
fn no_object_has_an_oid_that_leaves_none_for_others() {
    with_session(|session| {
        session.store(&[(1, "one")]);
        let last = i64::MAX as u64;
        for oid in [last, (1 << 62) + 1, last - (1 << 61), u64::MAX] {
            let mut store = transaction();
            store.store(Oid(oid), Tid::ZERO, Bytes::from_static(b"stored"));
            let refused = session.try_vote(&mut store).err();
            assert!(matches!(refused, Some(VoteError::OidTooLarge { .. })), "{oid}: {refused:?}");
        }
        let tid = |session: &Session| session.storage.last_tid().next();
        let mut copy = copy_of(last, tid(session));
        let refused = session.try_vote(&mut copy).err();
        assert!(matches!(refused, Some(VoteError::OidTooLarge { .. })), "{refused:?}");
        assert_eq!(session.storage.new_oids(1), Some(2..=2));
        // As DemoStorage draws them, and as a copy of such a database may have them.
        session.store(&[(1 << 62, "chosen")]);
        session.store(&[((1 << 62) + (1 << 32), "near one that is there")]);
        let copied = last - (1 << 61);
        session.commit(copy_of(copied, tid(session)));
        session.store(&[(copied + 100, "near the copy")]);
        assert_eq!(session.storage.new_oids(1), Some(copied + 101..=copied + 101));
    });
}

#[test]
fn no_other_tid_is_given_between_the_vote_and_the_finish_of_a_copy() {
    with_session(|session| {
        session.store(&[(1, "one")]);
        let tid = Tid(session.storage.last_tid().0 + (1 << 40));
        let (number, voted) = session.vote(copy_of(1, tid));
        // Another object, but the same clock.
        let mut other = transaction();
        other.store(Oid(2), Tid::ZERO, Bytes::from_static(b"two"));
        let (waiting, start) = session.begin(&other).unwrap();
        assert_eq!(start, VoteStart::Waiting);
        assert_eq!(session.finish(number, voted).unwrap(), tid);
        session.wait_granted(waiting);
        let Ok(Outcome::Voted(number, voted)) = session.check(waiting, &other) else {
            panic!("nothing is in the way")
        };
        assert!(session.finish(number, voted).unwrap() > tid);
    });
}

#[test]
fn status_of_a_copy_is_kept() {
    let disk = MemoryDisk::new();
    let storage = start(disk.clone());
    let mut session = Session::new(&storage);
    session.store(&[(1, "one")]);
    let tids: Vec<_> = (1..=2).map(|n| Tid(storage.last_tid().0 + n)).collect();
    let statuses = [TransactionStatus::Undone, TransactionStatus::Packed];
    for (&tid, status) in tids.iter().zip(statuses) {
        let metadata = TransactionMetadata::default();
        let mut copy = Transaction::new(metadata, Some(tid), status).unwrap();
        copy.restore(Oid(1), tid, Some(Bytes::from_static(b"copied")), None);
        session.commit(copy);
        // What was undone before it was copied does not count.
        let counts = status == TransactionStatus::Packed;
        assert_eq!(texts(&session)[0], if counts { "copied" } else { "one" });
    }
    assert!(matches!(undo(&mut session, &tids), Err(VoteError::Storage(_))));
    storage.close().unwrap();
    let reopened = start(disk.after_power_cut());
    assert_eq!(text(&reopened, 1).as_deref(), Some("copied"));
    assert_eq!(load(&reopened, 1, tids[1]).unwrap().0, "one");
    reopened.close().unwrap();
}

#[test]
fn deleted_object_is_gone_and_can_be_created_again() {
    with_session(|session| {
        let created = session.store(&[(1, "one")]);
        let delete = |session: &mut Session, serial| {
            let mut transaction = transaction();
            transaction.delete(Oid(1), serial);
            session.try_vote(&mut transaction)
        };
        match delete(session, Tid(5)) {
            Ok(Outcome::Conflicts(_, found)) => {
                assert_eq!(found[0].conflict.kind, ConflictKind::Delete);
                assert_eq!(found[0].conflict.committed, created);
            }
            _ => panic!("the serial is not current"),
        }
        let Ok(Outcome::Voted(number, voted)) = delete(session, created) else {
            panic!("the serial is current")
        };
        let deleted = session.finish(number, voted).unwrap();
        assert_eq!(texts(session)[0], "gone");
        assert_eq!(load(&session.storage, 1, deleted).unwrap().1, created);
        session.store(&[(1, "again")]);
        assert_eq!(texts(session)[0], "again");
    });
}

#[test]
fn metadata_are_written_and_must_fit() {
    with_session(|session| {
        let longest = vec![b'x'; 65_535];
        let metadata = TransactionMetadata {
            user: longest.clone(),
            description: longest.clone(),
            extension: longest,
        };
        let mut new = Transaction::new(metadata.clone(), None, TransactionStatus::Normal).unwrap();
        new.store(Oid(1), Tid::ZERO, Bytes::from_static(b"one"));
        session.commit(new);
        let mut transactions = session.storage.reader().iterate(None, None).unwrap();
        assert_eq!(transactions.step().unwrap().unwrap().metadata, metadata);

        let too_long = TransactionMetadata { user: vec![b'x'; 65_536], ..Default::default() };
        let refused = Transaction::new(too_long, None, TransactionStatus::Normal).unwrap_err();
        assert_eq!(refused, MetadataTooLong { field: "user", length: 65_536 });
    });
}

/// In the file a record without data points back to another, or is a deletion.
#[test]
fn data_without_a_byte_are_refused() {
    with_session(|session| {
        session.store(&[(1, "one")]);
        let mut stored = transaction();
        stored.store(Oid(2), Tid::ZERO, Bytes::new());
        let mut restored = transaction();
        restored.restore(Oid(2), Tid::ZERO, Some(Bytes::new()), None);
        for mut empty in [stored, restored] {
            let refused = session.try_vote(&mut empty).err();
            assert!(matches!(refused, Some(VoteError::EmptyData { oid: Oid(2) })), "{refused:?}");
        }
        assert_eq!(texts(session), ["one", "gone"]);
    });
}

/// Afterwards nothing is locked, and the file as a power cut leaves it gives the same data.
fn with_session(test: impl FnOnce(&mut Session)) {
    let disk = MemoryDisk::new();
    let storage = start(disk.clone());
    let mut session = Session::new(&storage);
    test(&mut session);
    storage.close().unwrap();
    assert_idle(&storage);
    let reopened = start(disk.after_power_cut());
    for oid in 0..10 {
        assert_eq!(load(&reopened, oid, Tid::MAX), load(&storage, oid, Tid::MAX));
    }
    reopened.close().unwrap();
}

fn undo(session: &mut Session, tids: &[Tid]) -> Result<Tid, VoteError> {
    let mut transaction = transaction();
    tids.iter().for_each(|tid| transaction.undo(*tid));
    match session.try_vote(&mut transaction)? {
        Outcome::Voted(number, voted) => Ok(session.finish(number, voted).unwrap()),
        Outcome::Conflicts(_, found) => panic!("{found:?}"),
    }
}

fn copy_of(oid: u64, tid: Tid) -> Transaction {
    let mut copy = transaction_with(Some(tid));
    copy.restore(Oid(oid), tid, Some(Bytes::from_static(b"copied")), None);
    copy
}

/// The data of objects 1 and 2.
fn texts(session: &Session) -> [String; 2] {
    [1, 2].map(|oid| text(&session.storage, oid).unwrap_or_else(|| "gone".to_owned()))
}

/// For each record of a transaction the one that it points back to.
fn points_to(session: &Session, tid: Tid) -> Vec<Option<Tid>> {
    let mut transactions = session.storage.reader().iterate(Some(tid), Some(tid)).unwrap();
    transactions.step().unwrap().expect("the transaction is there");
    let mut records = transactions.records().unwrap();
    let mut found = Vec::new();
    while let Some(record) = records.step().unwrap() {
        found.push(record.data_tid);
    }
    found
}
