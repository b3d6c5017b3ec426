//! A commit whose reply does not come, and how its outcome is found out.

use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;

use crate::common::peer::{Peer, SILENCE, play, play_with, wait_until};
use crate::common::switch::Switch;
use bytes::Bytes;
use zodium_client::{
    Client, ClientError, Interrupt, Options, Outcome, TransactionOptions, Unfinished,
};
use zodium_pickle::Value;
use zodium_types::{Oid, Tid};

const KEY_ERROR: &str = "ZODB.POSException.POSKeyError";

/// What a test's transaction writes upon: an object of this serial, and a new one.
const BASE: Tid = Tid(5);

/// Commits two objects; returns how the finish failed.
fn fail_to_finish(client: &Client) -> ClientError {
    let mut transaction = client.begin(&TransactionOptions::default()).unwrap();
    transaction.store(Oid(1), BASE, Bytes::from_static(b"one")).unwrap();
    transaction.store(Oid(2), Tid::ZERO, Bytes::from_static(b"two")).unwrap();
    transaction.vote().unwrap();
    transaction.finish(|tid| panic!("{tid} was not committed, as far as is known")).unwrap_err()
}

fn unfinished(error: ClientError) -> Arc<Unfinished> {
    let ClientError::OutcomeUnknown { transaction, .. } = error else { panic!("{error:?}") };
    transaction
}

/// Answers all of a commit but its end.
fn accept_stores(peer: &mut Peer) {
    for name in ["tpc_begin", "storea", "storea"] {
        peer.expect(name);
    }
    let vote = peer.expect("vote");
    peer.reply(&vote, Value::list([]));
}

/// What a server that came back answers to the request of this name.
enum Answer {
    /// With the serial of the revision, and that of the following one.
    Load(&'static [u8], u64, Option<u64>),
    Serial(&'static [u8]),
    /// There was no object before.
    Nothing,
    Missing(&'static str),
}

/// Answers that all is told.
fn pong(peer: &mut Peer) {
    let ping = peer.expect("ping");
    peer.reply(&ping, Value::None);
}

/// Accepts a client and its stores, and closes the connection at its finish.
fn lose_finish(listener: &UnixListener) {
    let mut peer = Peer::admitted(listener, Tid(10));
    accept_stores(&mut peer);
    peer.expect("tpc_finish");
}

#[test]
fn what_was_written_tells_the_outcome_of_a_commit_whose_connection_was_lost() {
    use Answer::{Load, Missing, Nothing, Serial};
    let committed = Outcome::Committed(Tid(11));
    let cases = [
        ("as it was sent", vec![Load(b"one", 11, None), Serial(b"two")], committed),
        ("nothing came", vec![Load(b"older", 5, None)], Outcome::NotCommitted),
        ("deleted since", vec![Missing("loadBefore"), Missing("loadBefore")], Outcome::Unknown),
        (
            "written over and packed since",
            vec![Load(b"later", 13, None), Nothing, Missing("loadBefore")],
            Outcome::Unknown,
        ),
        (
            "packed since, but another object tells it",
            vec![Load(b"later", 13, None), Nothing, Load(b"two", 11, None), Serial(b"one")],
            committed,
        ),
        (
            "written over since",
            vec![Load(b"later", 13, None), Load(b"one", 11, Some(13)), Serial(b"two")],
            committed,
        ),
        (
            "of another transaction, which wrote other data",
            vec![Load(b"one", 12, None), Serial(b"other"), Load(b"older", 5, Some(12))],
            Outcome::NotCommitted,
        ),
        (
            "of a server that was put back to before the base",
            vec![Load(b"older", 4, None), Missing("loadBefore")],
            Outcome::Unknown,
        ),
        (
            "of another transaction, which wrote one object",
            vec![Load(b"one", 12, None), Missing("loadSerial"), Load(b"older", 5, Some(12))],
            Outcome::NotCommitted,
        ),
    ];
    let check = |case: &str, answers: Vec<Answer>, outcome| {
        let script = |listener: &UnixListener| {
            lose_finish(listener);
            let mut peer = Peer::accept(listener);
            peer.admit(Tid(20), |peer| {
                let missed = peer.expect("getInvalidations");
                peer.reply(&missed, Value::None);
            });
            pong(&mut peer);
            for answer in answers {
                match answer {
                    Load(data, serial, end) => {
                        let load = peer.expect("loadBefore");
                        peer.reply_load_until(&load, data, Tid(serial), end.map(Tid));
                    }
                    Serial(data) => {
                        let load = peer.expect("loadSerial");
                        peer.reply(&load, data.into());
                    }
                    Nothing => {
                        let load = peer.expect("loadBefore");
                        peer.reply(&load, Value::None);
                    }
                    Missing(name) => {
                        let load = peer.expect(name);
                        peer.fail(&load, KEY_ERROR);
                    }
                }
            }
            peer.expect_silence();
        };
        play(script, |client, _| {
            let unfinished = unfinished(fail_to_finish(client));
            assert!(unfinished.ask().is_none());
            assert_eq!(client.outcome(&unfinished).unwrap(), outcome, "{case}");
        });
    };
    // Each waits for a second before it connects again.
    thread::scope(|scope| {
        for (case, answers, outcome) in cases {
            scope.spawn(move || check(case, answers, outcome));
        }
    });
}

/// All that the transaction stored was new, so it is not there if nothing was committed.
#[test]
fn a_new_object_that_was_deleted_since_leaves_the_outcome_open() {
    for (is_deleted, outcome) in [(true, Outcome::Unknown), (false, Outcome::NotCommitted)] {
        let script = |listener: &UnixListener| {
            let mut peer = Peer::admitted(listener, Tid(10));
            for name in ["tpc_begin", "storea"] {
                peer.expect(name);
            }
            let vote = peer.expect("vote");
            peer.reply(&vote, Value::list([]));
            peer.expect("tpc_finish");
            drop(peer);
            let mut peer = Peer::admitted(listener, Tid(10));
            pong(&mut peer);
            let load = peer.expect("loadBefore");
            peer.fail(&load, KEY_ERROR);
            // Whether it has a history at all.
            let load = peer.expect("loadBefore");
            match is_deleted {
                true => peer.reply(&load, Value::None),
                false => peer.fail(&load, KEY_ERROR),
            }
        };
        play(script, |client, _| {
            let mut transaction = client.begin(&TransactionOptions::default()).unwrap();
            transaction.store(Oid(2), Tid::ZERO, Bytes::from_static(b"two")).unwrap();
            transaction.vote().unwrap();
            let unfinished = unfinished(transaction.finish(|_| ()).unwrap_err());
            assert_eq!(client.outcome(&unfinished).unwrap(), outcome);
        });
    }
}

#[test]
fn a_cache_of_before_the_commit_does_not_tell_its_outcome() {
    let (asked, is_asked) = mpsc::channel();
    let script = move |listener: &UnixListener| {
        let mut peer = Peer::admitted(listener, Tid(10));
        let load = peer.expect("loadBefore");
        peer.reply_load(&load, b"older", BASE);
        accept_stores(&mut peer);
        peer.expect("tpc_finish");
        drop(peer);
        // The client has no connection while the outcome is asked for.
        is_asked.recv().unwrap();
        std::thread::sleep(SILENCE);
        let mut peer = Peer::accept(listener);
        peer.admit(Tid(11), |peer| {
            let missed = peer.expect("getInvalidations");
            let oids = Value::list([Oid(1).into(), Oid(2).into()]);
            peer.reply(&missed, Value::tuple([Tid(11).into(), oids]));
        });
        pong(&mut peer);
        let load = peer.expect("loadBefore");
        peer.reply_load(&load, b"one", Tid(11));
        let load = peer.expect("loadSerial");
        peer.reply(&load, b"two".as_slice().into());
    };
    play(script, |client, _| {
        assert_eq!(client.load_current(Oid(1)).unwrap().serial, BASE);
        let unfinished = unfinished(fail_to_finish(client));
        asked.send(()).unwrap();
        assert_eq!(client.outcome(&unfinished).unwrap(), Outcome::Committed(Tid(11)));
    });
}

#[test]
fn a_server_that_fails_while_it_is_asked_leaves_the_outcome_open() {
    let script = |listener: &UnixListener| {
        lose_finish(listener);
        let mut peer = Peer::admitted(listener, Tid(10));
        pong(&mut peer);
        let load = peer.expect("loadBefore");
        peer.fail(&load, "builtins.OSError");
    };
    play(script, |client, _| {
        let unfinished = unfinished(fail_to_finish(client));
        let error = client.outcome(&unfinished).unwrap_err();
        assert!(error.is_exception("builtins.OSError"), "{error:?}");
    });
}

#[test]
fn a_finish_that_the_server_refuses_has_committed_nothing() {
    let script = |listener: &UnixListener| {
        let mut peer = Peer::admitted(listener, Tid(10));
        accept_stores(&mut peer);
        let finish = peer.expect("tpc_finish");
        peer.fail(&finish, "builtins.OSError");
    };
    play(script, |client, _| {
        let error = fail_to_finish(client);
        assert!(error.is_exception("builtins.OSError"), "{error:?}");
    });
}

/// The reply is awaited further when the outcome is asked for.
#[test]
fn a_finish_that_was_given_up_has_the_outcome_of_its_late_reply() {
    for (is_committed, expected) in
        [(true, Outcome::Committed(Tid(11))), (false, Outcome::NotCommitted)]
    {
        let (given_up, is_given_up) = mpsc::channel();
        let script = move |listener: &UnixListener| {
            let mut peer = Peer::admitted(listener, Tid(10));
            accept_stores(&mut peer);
            let finish = peer.expect("tpc_finish");
            is_given_up.recv().unwrap();
            match is_committed {
                true => peer.reply(&finish, Tid(11).into()),
                false => peer.fail(&finish, "builtins.OSError"),
            }
        };
        let switch = Arc::new(Switch::default());
        let interrupt = Some(Arc::clone(&switch) as Arc<dyn Interrupt>);
        let options = |options| Options { interrupt, ..options };
        play_with(options, script, |client, log| {
            let mut transaction = client.begin(&TransactionOptions::default()).unwrap();
            transaction.store(Oid(1), BASE, Bytes::from_static(b"one")).unwrap();
            transaction.store(Oid(2), Tid::ZERO, Bytes::from_static(b"two")).unwrap();
            transaction.vote().unwrap();
            switch.set(true);
            let error = transaction.finish(|_| panic!("the caller does not wait any more"));
            let unfinished = unfinished(error.unwrap_err());
            // While the reply is not here, a caller that must not wait is not answered.
            let early = client.outcome(&unfinished).unwrap_err();
            assert!(matches!(early, ClientError::Interrupted), "{early:?}");
            switch.set(false);
            given_up.send(()).unwrap();
            assert_eq!(client.outcome(&unfinished).unwrap(), expected);
            if is_committed {
                // Told as if it were another client's.
                wait_until(|| !log.0.lock().is_empty());
                let mut told = log.0.lock().clone();
                told[0].1.sort();
                assert_eq!(told, [(Tid(11), vec![Oid(1), Oid(2)])]);
            }
        });
    }
}

#[test]
fn an_outcome_that_is_known_elsewhere_is_asked_for_there() {
    let unfinished = Unfinished::elsewhere(|| Ok(Outcome::Committed(Tid(7))));
    assert_eq!(unfinished.ask().unwrap().unwrap(), Outcome::Committed(Tid(7)));
    let failing = Unfinished::elsewhere(|| Err(ClientError::Closed));
    assert!(matches!(failing.ask(), Some(Err(ClientError::Closed))));
}
