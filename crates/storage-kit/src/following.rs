//! Storages that others write to. A kind of storage that can be opened so calls these claims in
//! tests of its own, with what writes it.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use zodium_storage::{Committed, Follow, Follower, Storage};
use zodium_types::{Oid, Tid};

use crate::Tester;
use crate::tester::data_of;

/// Longest wait for what a follower is told.
const PATIENCE: Duration = Duration::from_secs(60);

/// Passes on what a storage tells.
struct Teller(Sender<Committed>);

impl Follower for Teller {
    fn committed(&self, commits: Vec<Committed>) {
        // A claim that has failed listens no more.
        commits.into_iter().for_each(|commit| drop(self.0.send(commit)));
    }
}

fn following(reader: &dyn Storage) -> &dyn Follow {
    reader.following().expect("it is a storage that others write to")
}

fn follow(reader: &dyn Storage, since: Tid) -> Receiver<Committed> {
    let (told, heard) = channel();
    following(reader).follow(since, Arc::new(Teller(told))).unwrap();
    heard
}

fn committed(tid: Tid, oids: &[u64]) -> Committed {
    Committed { tid, oids: oids.iter().copied().map(Oid).collect() }
}

/// A follower is told of each commit behind the one that it names, once and in order. Reads of the
/// storage see a commit by then.
pub fn follower_is_told_of_each_commit_once(writer: &Tester, reader: &dyn Storage) {
    let first = writer.store(1, "first");
    let second = writer.store(2, "second");
    following(reader).catch_up().unwrap();
    let heard = follow(reader, first);
    let next = || heard.recv_timeout(PATIENCE).unwrap();
    assert_eq!(next(), committed(second, &[2]));
    for n in 0..5 {
        let tid = writer.commit(vec![data_of(1, &n.to_string()), data_of(3, "x")]);
        let mut told = next();
        told.oids.sort();
        assert_eq!(told, committed(tid, &[1, 3]));
        assert_eq!(reader.current_serial(Oid(1)).unwrap(), Some(tid));
        assert_eq!(reader.last_tid(), tid);
    }
    let deleted = writer.delete(3);
    assert_eq!(next(), committed(deleted, &[3]));
    assert_eq!(reader.serial_of_living(Oid(3)).unwrap(), None);
    assert!(heard.try_recv().is_err());
}

/// A follower was told of all commits that end before a call to catch up.
pub fn follower_that_catches_up_was_told_of_all(writer: &Tester, reader: &dyn Storage) {
    let heard = follow(reader, Tid::ZERO);
    let tids: Vec<Tid> = (0..20).map(|n| writer.store(n % 3, "x")).collect();
    following(reader).catch_up().unwrap();
    let told: Vec<Tid> = heard.try_iter().map(|commit| commit.tid).collect();
    assert_eq!(told, tids);
}

/// Each follower begins where it says, whatever others were told.
pub fn followers_begin_where_they_say(writer: &Tester, reader: &dyn Storage) {
    let before = reader.last_tid();
    let tids: Vec<Tid> = (0..4).map(|n| writer.store(n, "x")).collect();
    following(reader).catch_up().unwrap();
    let starts = [before, tids[1], tids[3]];
    let heard = starts.map(|since| (since, follow(reader, since)));
    let last = writer.store(9, "last");
    following(reader).catch_up().unwrap();
    for (since, heard) in heard {
        let told: Vec<Tid> = heard.try_iter().map(|commit| commit.tid).collect();
        let later = tids.iter().chain([&last]).copied().filter(|tid| *tid > since);
        assert_eq!(told, later.collect::<Vec<_>>(), "since {since}");
    }
}
