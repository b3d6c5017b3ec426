//! Undos of data that were changed since: the server merges them, or the client does, or they fail.

use std::sync::Arc;

use crate::support::{CONFIG, Outcome, Session, start_with, text, transaction};
use bytes::Bytes;
use zodium_disk::{MemoryDisk, SystemClock};
use zodium_engine::commit::ConflictKind;
use zodium_engine::{Config, Merge, Resolver, VoteError};
use zodium_storage::Access;
use zodium_types::{Memory, Oid, Tid};

/// Merges texts by joining them.
#[derive(Debug)]
struct Join;

impl Resolver for Join {
    fn resolve(&self, _: &[u8], committed: &[u8], new: &[u8], _: Access) -> Merge {
        Merge::Resolved([committed, new].concat())
    }
}

fn session(config: &Config) -> Session {
    let clock = Arc::new(SystemClock::new());
    Session::new(&start_with(MemoryDisk::volatile(), clock, config))
}

/// A record of a class, with a state of its own.
fn record(class: &str, state: &str) -> String {
    format!("cshop\n{class}\n.U\x01{state}.")
}

/// A session where clients can merge counters, with revisions of object 1 in their order.
fn with_revisions(classes: &[&str], class: &str, states: &[&str]) -> (Session, Vec<Tid>) {
    let resolvable_classes = classes.iter().map(|class| (*class).to_owned()).collect();
    let mut session = session(&Config { resolvable_classes, ..CONFIG });
    let store = |state: &&str| session.store(&[(1, &record(class, state))]);
    let tids = states.iter().map(store).collect();
    (session, tids)
}

fn undo(session: &mut Session, tids: &[Tid]) -> Result<Outcome, VoteError> {
    let mut transaction = transaction();
    tids.iter().for_each(|tid| transaction.undo(*tid));
    session.try_vote(&mut transaction)
}

#[test]
fn undos_that_the_server_merges_are_counted_each() {
    let mut session = session(&Config { resolver: Some(Arc::new(Join)), ..CONFIG });
    session.store(&[(1, "a"), (2, "x"), (3, "s")]);
    let undone = session.store(&[(1, "b"), (2, "y"), (3, "t")]);
    session.store(&[(1, "c"), (2, "z")]);
    let Outcome::Voted(number, voted) = undo(&mut session, &[undone]).unwrap() else {
        panic!("the server merges them");
    };
    assert_eq!(voted.resolved(), 2, "the third has not changed since");
    session.finish(number, voted).unwrap();
    let texts = [1, 2, 3].map(|oid| text(&session.storage, oid).unwrap());
    assert_eq!(texts, ["ca", "zx", "s"]);
}

#[test]
fn undos_without_room_for_the_data_to_merge_fail() {
    let state = "s".repeat(60_000);
    let texts: Vec<_> = ["a", "b", "c"].map(|end| record("Counter", &(state.clone() + end))).into();
    let resolvable_classes = vec!["shop.Counter".to_owned()];
    for resolver in [None, Some(Arc::new(Join) as _)] {
        let merges = resolver.is_some();
        let resolvable_classes = resolvable_classes.clone();
        let mut session = session(&Config { resolver, resolvable_classes, ..CONFIG });
        let tids = texts.iter().map(|text| session.store(&[1, 2, 3].map(|oid| (oid, &text[..]))));
        let tids: Vec<_> = tids.collect();
        let memory = Memory::new(if merges { 2 << 20 } else { 1 << 20 });
        let mut transaction = transaction();
        transaction.count_conflicts(&memory);
        transaction.undo(tids[1]);
        let refused = session.try_vote(&mut transaction).err();
        assert!(
            matches!(refused, Some(VoteError::UndoConflict { oids }) if oids.len() == 1),
            "merged by the server: {merges}"
        );
        assert_eq!(memory.held_bytes(), 0);
    }
}

#[test]
fn an_undo_that_the_client_can_merge_is_a_conflict_with_the_data_from_before() {
    for classes in [&["shop.Stock", "shop.Counter"][..], &["*"]] {
        let (mut session, tids) = with_revisions(classes, "Counter", &["a", "b", "c"]);
        let mut transaction = transaction();
        transaction.undo(tids[1]);
        let Outcome::Conflicts(number, found) = session.try_vote(&mut transaction).unwrap() else {
            panic!("it was changed since");
        };
        let [found] = &found[..] else { panic!("{found:?}") };
        let conflict = found.conflict;
        assert_eq!((conflict.kind, conflict.oid), (ConflictKind::Undo, Oid(1)));
        assert_eq!((conflict.committed, conflict.sent), (tids[2], tids[1]));
        assert!(found.is_resolvable());
        assert_eq!(found.data, record("Counter", "a"));
        // The client stores its merge over the current revision, and votes again.
        let merged = record("Counter", "m");
        transaction.store(Oid(1), tids[2], Bytes::from(merged.clone()));
        assert!(session.storage.vote_again(number, &transaction).unwrap());
        let Outcome::Voted(number, voted) = session.check(number, &transaction).unwrap() else {
            panic!("nothing was changed meanwhile");
        };
        session.finish(number, voted).unwrap();
        assert_eq!(text(&session.storage, 1), Some(merged));
    }
}

#[test]
fn several_undos_of_one_object_are_one_conflict_if_they_undo_a_run_of_its_revisions() {
    let (mut session, tids) =
        with_revisions(&["shop.Counter"], "Counter", &["a", "b", "c", "d", "e"]);
    for undone in [[2, 1], [1, 2]] {
        let undone = undone.map(|place: usize| tids[place]);
        let Outcome::Conflicts(number, found) = undo(&mut session, &undone).unwrap() else {
            panic!("it was changed since");
        };
        let [found] = &found[..] else { panic!("{found:?}") };
        assert_eq!((found.conflict.committed, found.conflict.sent), (tids[4], tids[2]));
        assert_eq!(found.data, record("Counter", "a"));
        session.storage.abort(number, None);
    }
    // What is between the two stays, so no data are those before both.
    let refused = undo(&mut session, &[tids[3], tids[1]]).err().unwrap();
    assert!(matches!(refused, VoteError::UndoConflict { oids } if oids == [Oid(1)]));
}

#[test]
fn an_undo_that_no_client_can_merge_fails_at_once() {
    let is_refused = |session: &mut Session, tid| match undo(session, &[tid]).err() {
        Some(VoteError::UndoConflict { oids }) => assert_eq!(oids, [Oid(1)]),
        other => panic!("{other:?}"),
    };
    for (case, classes, undone, states) in [
        ("no class is known", &[][..], 1, &["a", "b", "c"][..]),
        ("other classes are known", &["shop.Stock", "shop"][..], 1, &["a", "b", "c"][..]),
        ("there are no data before", &["shop.Counter"][..], 0, &["a", "b"][..]),
    ] {
        println!("{case}");
        let (mut session, tids) = with_revisions(classes, "Counter", states);
        is_refused(&mut session, tids[undone]);
    }
    println!("the object was deleted since");
    let (mut session, tids) = with_revisions(&["shop.Counter"], "Counter", &["a", "b"]);
    let mut deletion = transaction();
    deletion.delete(Oid(1), tids[1]);
    session.commit(deletion);
    is_refused(&mut session, tids[1]);
}
