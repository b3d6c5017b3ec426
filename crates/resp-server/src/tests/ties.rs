//! Keys that are tied to objects of storages, and commands that commit with these: while the server
//! runs, and after it was started again.

use std::sync::Arc;

use parking_lot::RwLock;
use zodium_disk::{Disk, MemoryDisk};
use zodium_tls::PeerIdentity;
use zodium_types::{Oid, Tid};

use super::log::{open_with, until};
use super::{Peer, with};
use crate::parked::take_effect_of_torn;
use crate::ties::free_cut;
use crate::{Commit, Loaded, Server, Storages};

/// A transaction: its storage, its tid, the objects that it wrote, and its token if it has one.
type Committed = (usize, u64, &'static [u64], &'static str);

/// Two storages with these transactions.
#[derive(Clone, Default)]
struct Two(Arc<RwLock<Vec<Committed>>>);

impl Two {
    fn of(commits: &[Committed]) -> Two {
        Two(Arc::new(RwLock::new(commits.to_vec())))
    }

    fn find<T>(&self, storage: usize, look: impl FnMut(&Committed) -> Option<T>) -> Vec<T> {
        let all = self.0.read();
        all.iter().filter(|commit| commit.0 == storage).filter_map(look).collect()
    }

    /// The server is told of a commit before clients are.
    fn commit(&self, server: &Server, commit: Committed, number: u64) {
        let oids: Vec<Oid> = commit.2.iter().copied().map(Oid).collect();
        server.committed(commit.0, &[Commit { tid: Tid(commit.1), oids: &oids, number }]);
        self.0.write().push(commit);
    }
}

impl Storages for Two {
    fn find(&self, name: &str) -> Option<usize> {
        ["main", "other"].iter().position(|other| *other == name)
    }

    fn name(&self, storage: usize) -> &str {
        ["main", "other"][storage]
    }

    fn admits(&self, _: usize, _: Option<&PeerIdentity>) -> bool {
        true
    }

    fn last_tid(&self, storage: usize) -> Tid {
        Tid(self.find(storage, |commit| Some(commit.1)).into_iter().max().unwrap_or(0))
    }

    fn may_have_changed(&self, _: usize, _: Tid, _: &[Oid]) -> bool {
        false
    }

    fn changed_at(&self, storage: usize, oid: Oid) -> Option<Tid> {
        let wrote = |commit: &Committed| commit.2.contains(&oid.0).then_some(commit.1);
        Some(Tid(self.find(storage, wrote).into_iter().max().unwrap_or(0)))
    }

    fn tokens_after(&self, storage: usize, since: Tid, visit: &mut dyn FnMut(Tid, &[u8])) {
        for (tid, token) in self.find(storage, |commit| Some((Tid(commit.1), commit.3))) {
            if tid > since && !token.is_empty() {
                visit(tid, token.as_bytes());
            }
        }
    }

    fn count(&self) -> usize {
        2
    }

    fn load(&self, _: usize, _: Oid, _: Tid, _: bool) -> Loaded {
        Loaded::Missing
    }
}

/// A disk with the log of a server.
struct Keys(Arc<dyn Disk>);

impl Keys {
    fn new() -> Keys {
        Keys(Arc::new(MemoryDisk::default()))
    }

    /// A server beside storages, which ends as by a kill: what its clients have parked stays.
    fn run(&self, storages: &Two, steps: impl AsyncFnOnce(&Server, &mut Peer)) {
        let server = open_with(&self.0, "no", storages.clone());
        with(Arc::clone(&server), |running| async move {
            steps(&server, &mut running.connect()).await;
            server.close_log().unwrap();
        });
    }

    /// What a server is answered that is started beside storages.
    fn expect(&self, storages: &Two, exchanges: &[(&str, &str)]) {
        self.run(storages, async |_, peer| peer.expect(exchanges).await);
    }
}

async fn park(peer: &mut Peer, commands: &str, token: &str) {
    peer.send(&format!("MULTI\r\n{commands}\r\nZEXEC {token}")).await;
    let expected = format!(":{}", commands.lines().count());
    until(async || peer.read().await.ends_with(&expected).then_some(())).await;
}

#[test]
fn a_later_commit_cuts_what_commands_have_tied_that_take_effect_at_the_start() {
    let (keys, storages) = (Keys::new(), Two::of(&[(0, 1, &[6, 7, 8, 9], "")]));
    keys.run(&storages, async |_, peer| {
        peer.expect(&[("SET count old TIE 8", "+OK"), ("SET late old TIE 8", "+OK")]).await;
        park(peer, "SET ended 1\r\nZTIE ended 7\r\nAPPEND count x", "one").await;
        park(peer, "APPEND late x\r\nSET stays 1\r\nZTIE stays 9", "two").await;
        park(peer, "SET last 1\r\nZTIE last 6", "three").await;
    });
    // The server had ended before the keys were changed.
    let storages = Two::of(&[
        (0, 1, &[6, 7, 8, 9], ""),
        (0, 2, &[7], "one"),
        (0, 3, &[7, 8], ""),
        (0, 4, &[9], "two"),
        (0, 5, &[], "three"),
        (0, 6, &[6], ""),
    ]);
    let expected =
        [("MGET ended count last", "*3 $-1 $-1 $-1"), ("MGET late stays", "*2 $1 x $1 1")];
    keys.expect(&storages, &expected);
    keys.expect(&storages, &expected);
}

#[test]
fn a_key_that_a_commit_ties_to_its_own_object_comes_back() {
    let (keys, storages) = (Keys::new(), Two::of(&[(0, 1, &[7], "")]));
    keys.run(&storages, async |server, peer| {
        park(peer, "SET tied 1\r\nZTIE tied 7", "one").await;
        assert_eq!(server.claim(0, 5, b"one"), Ok(true));
        storages.commit(server, (0, 2, &[7], "one"), 5);
        peer.expect(&[("GET tied", "$1 1")]).await;
    });
    keys.expect(&storages, &[("GET tied", "$1 1")]);
}

#[test]
fn a_key_that_is_tied_to_objects_of_two_storages_comes_back() {
    let keys = Keys::new();
    let old: &[Committed] = &[(0, 5, &[7], ""), (1, 3, &[8], "")];
    let tie = ("SET both v TIE other:8 7", "+OK");
    keys.expect(&Two::of(old), &[tie]);
    keys.expect(&Two::of(old), &[("GET both", "$1 v")]);
    for changed in [(0, 6, &[7][..], ""), (1, 4, &[8], "")] {
        keys.expect(&Two::of(old), &[tie]);
        keys.expect(&Two::of(&[old, &[changed]].concat()), &[("GET both", "$-1")]);
    }
}

#[test]
fn ties_to_an_older_copy_are_cut_and_those_to_a_packed_one_stay() {
    let keys = Keys::new();
    let old: &[Committed] = &[(0, 1, &[7, 8], "")];
    keys.expect(&Two::of(old), &[("SET before v TIE 8", "+OK")]);
    let lost = Two::of(&[old, &[(0, 5, &[7], "")]].concat());
    // A pack has removed transaction 4, which wrote another object.
    keys.expect(&lost, &[("SET last v TIE 7", "+OK"), ("SET packed v TIE 8 AT 4", "+OK")]);
    keys.expect(&lost, &[("MGET before last packed", "*3 $1 v $1 v $1 v")]);
    keys.expect(&Two::of(old), &[("MGET before last packed", "*3 $1 v $-1 $-1")]);
}

#[test]
fn a_commit_takes_keys_wherever_they_have_got_and_their_memory_is_freed() {
    for (moves, reads, key) in [
        ("PING", "GET first", "first"),
        ("COPY first copy", "GET copy", "copy"),
        ("RENAME first new", "GET new", "new"),
        ("RENAME first new\r\nRENAME new first", "GET first", "first"),
        ("MOVE first 3", "SELECT 3\r\nGET first", "first"),
        ("COPY first copy DB 3", "SELECT 3\r\nGET copy", "copy"),
        ("SWAPDB 0 3", "SELECT 3\r\nGET first", "first"),
    ] {
        let (keys, storages) = (Keys::new(), Two::of(&[(0, 1, &[7], "")]));
        keys.run(&storages, async |server, peer| {
            peer.expect(&[("SET first v TIE 7", "+OK")]).await;
            peer.ask(moves).await;
            peer.ask("HELLO 3\r\nCLIENT TRACKING ON").await;
            assert!(peer.ask(reads).await.ends_with("$1 v"), "{moves}");
            storages.commit(server, (0, 2, &[7], ""), 1);
            let told = format!(">2 $10 invalidate *1 ${} {key}", key.len());
            let answer = peer.read().await;
            assert!(answer.contains(&told), "{moves}: {answer}");
            free_cut(server, usize::MAX);
            let left: usize = (0..16).map(|number| server.keyspace.totals(number).keys).sum();
            assert_eq!(left, 0, "{moves}");
        });
    }
}

#[test]
fn a_key_that_is_tied_again_has_one_tie_to_the_same_objects() {
    let (keys, storages) = (Keys::new(), Two::of(&[(0, 1, &[7, 8], "")]));
    let ties = |server: &Server| {
        server.keyspace.lock(server.keyspace.stripe(b"key"), 1).ties(b"key").len()
    };
    keys.run(&storages, async |server, peer| {
        peer.expect(&[("SET key v TIE 7", "+OK"), ("ZTIE key 8 7", ":1")]).await;
        for tid in 2..20 {
            storages.commit(server, (0, tid, &[9], ""), 1);
            peer.expect(&[("ZTIE key 7", ":1"), ("ZTIE key 7 8 7", ":1")]).await;
        }
        assert_eq!(ties(server), 2);
    });
    keys.run(&storages, async |server, peer| {
        assert_eq!(ties(server), 2);
        storages.commit(server, (0, 20, &[8], ""), 1);
        peer.expect(&[("GET key", "$-1")]).await;
    });
}

#[test]
fn commands_take_effect_with_the_last_part_of_their_transaction() {
    let (keys, storages) = (Keys::new(), Two::of(&[(0, 1, &[7], ""), (1, 1, &[8], "")]));
    keys.run(&storages, async |server, peer| {
        park(peer, "SET both 1\r\nZTIE both 7 other:8", "one").await;
        assert_eq!(server.claim(0, 5, b"one"), Ok(true));
        assert_eq!(server.claim(1, 6, b"one"), Ok(true));
        storages.commit(server, (0, 2, &[7], "one"), 5);
        server.give_up(0, 5);
        peer.expect(&[("GET both", "$-1")]).await;
        storages.commit(server, (1, 3, &[8], "one"), 6);
        peer.expect(&[("GET both", "$1 1")]).await;
    });
    keys.expect(&storages, &[("GET both", "$1 1")]);
}

#[test]
fn commands_of_a_transaction_that_is_committed_in_part_take_effect() {
    let (keys, storages) = (Keys::new(), Two::of(&[(0, 1, &[7], ""), (1, 1, &[8], "")]));
    keys.run(&storages, async |server, peer| {
        for (number, token) in (5..).zip(["first", "late", "neither", "none"]) {
            park(peer, &format!("SET {token} 1\r\nZTIE {token} 7"), token).await;
            assert_eq!(server.claim(0, number, token.as_bytes()), Ok(true));
            assert_eq!(server.claim(1, number, token.as_bytes()), Ok(true));
        }
        // The second part may be given up before the first is known to be committed.
        server.give_up(1, 6);
        take_effect_of_torn(server);
        storages.commit(server, (0, 2, &[7], "first"), 5);
        storages.commit(server, (0, 3, &[7], "late"), 6);
        server.give_up(1, 5);
        server.give_up(0, 5);
        server.give_up(0, 7);
        server.give_up(1, 7);
        server.give_up(1, 8);
        server.give_up(0, 8);
        take_effect_of_torn(server);
        let answer = "*4 $1 1 $1 1 $-1 $-1";
        peer.expect(&[("MGET first late neither none", answer), ("ZSTATE none", "+none")]).await;
        assert!(server.claim(1, 9, b"first").is_err(), "it has taken effect");
    });
}

/// It is told of a commit once for each pattern that fits.
#[test]
fn a_subscriber_of_several_patterns_gets_a_commit_of_a_million_objects() {
    let (patterns, storages) = (["zodb:*", "zodb:m*", "*main", "z*n"], Two::default());
    Keys::new().run(&storages, async |server, peer| {
        peer.ask("SUBSCRIBE zodb:main").await;
        peer.ask(&format!("PSUBSCRIBE {}", patterns.join(" "))).await;
        let oids: Vec<Oid> = (1..=1_000_000).map(Oid).collect();
        server.committed(0, &[Commit { tid: Tid(1), oids: &oids, number: 1 }]);
        server.committed(0, &[Commit { tid: Tid(2), oids: &oids[..1], number: 2 }]);
        let told = peer.read().await;
        let ends = |payload: &str| told.matches(payload).count();
        assert_eq!(ends(" $17000016 0000000000000001 "), 1 + patterns.len());
        assert_eq!(ends(" $33 0000000000000002 0000000000000001"), 1 + patterns.len());
    });
}

#[test]
fn a_subscriber_gets_a_commit_of_a_million_objects() {
    let storages = Two::default();
    Keys::new().run(&storages, async |server, peer| {
        peer.ask("SUBSCRIBE zodb:main").await;
        let oids: Vec<Oid> = (1..=1_000_000).map(Oid).collect();
        for (tid, oids) in [(1, &oids[..]), (2, &oids[..1])] {
            server.committed(0, &[Commit { tid: Tid(tid), oids, number: tid }]);
        }
        let told = peer.read().await;
        let expected = "*3 $7 message $9 zodb:main $33 0000000000000002 0000000000000001";
        assert_eq!(told.len(), 37 + 17_000_016 + 1 + expected.len());
        assert!(told.starts_with("*3 $7 message $9 zodb:main $17000016 0000000000000001 0"));
        assert!(told.ends_with(expected));
    });
}
