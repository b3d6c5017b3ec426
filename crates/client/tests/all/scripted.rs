//! A client against a scripted server: messages in between those of a real server, and messages
//! that a real one seldom sends.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::peer::{
    ALL, ENCODING, PATIENCE, Peer, SILENCE, play, play_waiting, play_with, wait_until,
};
use zodium_client::{ClientError, Options, Watcher};
use zodium_pickle::Value;
use zodium_types::{Oid, Tid};
use zodium_zeo::codec::{ChunkItem, Message, decode_message, put_chunk_item};

#[test]
fn commits_that_come_while_a_client_is_let_in_are_told() {
    let script = |listener: &UnixListener| {
        let mut peer = Peer::accept(listener);
        peer.admit(Tid(10), |peer| {
            peer.invalidate(Tid(11), &[Oid(1)]);
            peer.invalidate(Tid(12), &[Oid(2), Oid(3)]);
        });
        let sync = peer.expect("ping");
        peer.reply(&sync, Value::None);
    };
    play(script, |client, log| {
        client.sync().unwrap();
        let told = [(Tid(11), vec![Oid(1)]), (Tid(12), vec![Oid(2), Oid(3)])];
        assert_eq!(*log.0.lock(), told);
        assert_eq!(client.last_tid(), Tid(12));
    });
}

#[test]
fn a_server_that_only_answers_pings_stays_connected() {
    let script = |listener: &UnixListener| {
        let mut peer = Peer::admitted(listener, Tid(10));
        // Far longer than the client waits for a silent server.
        for _ in 0..12 {
            let ping = peer.expect("ping");
            peer.reply(&ping, Value::None);
        }
    };
    let options = |options| Options { silence_max: 3 * SILENCE, ..options };
    play_with(options, script, |client, _| assert!(client.is_connected()));
}

#[test]
fn a_server_that_greets_and_does_not_let_a_client_in_is_given_up() {
    let script = |listener: &UnixListener| {
        let mut peer = Peer::accept(listener);
        peer.expect("register");
        peer.expect_end();
        Peer::accept(listener).admit(Tid(10), |_| ());
    };
    let options = |options| Options { silence_max: 5 * SILENCE, ..options };
    play_with(options, script, |client, _| assert_eq!(client.last_tid(), Tid(10)));
}

#[test]
fn what_was_missed_is_told_once_also_when_it_comes_as_news() {
    let script = |listener: &UnixListener| {
        let peer = Peer::admitted(listener, Tid(10));
        drop(peer);
        let mut peer = Peer::accept(listener);
        peer.admit(Tid(11), |peer| {
            let missed = peer.expect("getInvalidations");
            peer.invalidate(Tid(12), &[Oid(2)]);
            let oids = Value::list([Oid(1).into(), Oid(2).into()]);
            peer.reply(&missed, Value::tuple([Tid(12).into(), oids]));
            peer.invalidate(Tid(13), &[Oid(3)]);
        });
        let sync = peer.expect("ping");
        peer.reply(&sync, Value::None);
    };
    play(script, |client, log| {
        wait_until(|| client.last_tid() >= Tid(12));
        client.sync().unwrap();
        let told = [(Tid(12), vec![Oid(1), Oid(2)]), (Tid(13), vec![Oid(3)])];
        assert_eq!(*log.0.lock(), told);
        assert_eq!(client.last_tid(), Tid(13));
    });
}

#[test]
fn a_cache_is_dropped_when_the_server_cannot_tell_what_has_changed() {
    let script = |listener: &UnixListener| {
        let mut peer = Peer::admitted(listener, Tid(10));
        let load = peer.expect("loadBefore");
        peer.reply_load(&load, b"old", Tid(5));
        let sync = peer.expect("ping");
        peer.reply(&sync, Value::None);
        drop(peer);
        let mut peer = Peer::accept(listener);
        peer.admit(Tid(20), |peer| {
            let missed = peer.expect("getInvalidations");
            peer.reply(&missed, Value::None);
        });
        let load = peer.expect("loadBefore");
        peer.reply_load(&load, b"new", Tid(15));
    };
    play(script, |client, log| {
        let load = |before| client.load_before(Oid(1), before).unwrap().unwrap().data;
        assert_eq!(load(Tid(11)), b"old".as_slice());
        assert_eq!(client.load_cached(Oid(1), Tid(11)).unwrap().serial, Tid(5));
        client.sync().unwrap();
        wait_until(|| client.last_tid() == Tid(20));
        assert_eq!(*log.0.lock(), [(ALL, Vec::new())]);
        assert_eq!(client.load_cached(Oid(1), Tid(21)), None);
        assert_eq!(load(Tid(21)), b"new".as_slice());
    });
}

/// Fails at the first call of this name.
struct Failing {
    name: &'static str,
    fail: fn() -> Result<(), ClientError>,
    has_failed: AtomicBool,
}

impl Failing {
    fn at(name: &'static str, fail: fn() -> Result<(), ClientError>) -> Option<Arc<dyn Watcher>> {
        Some(Arc::new(Failing { name, fail, has_failed: AtomicBool::new(false) }))
    }

    fn call(&self, name: &str) -> Result<(), ClientError> {
        let fails = name == self.name && !self.has_failed.swap(true, Ordering::Relaxed);
        if fails { (self.fail)() } else { Ok(()) }
    }
}

fn panics() -> Result<(), ClientError> {
    panic!("for a test of panics")
}

fn refuses() -> Result<(), ClientError> {
    Err(ClientError::NotTold)
}

impl Watcher for Failing {
    fn invalidated(&self, _: Tid, _: &[Oid]) -> Result<(), ClientError> {
        self.call("invalidated")
    }

    fn all_invalidated(&self) -> Result<(), ClientError> {
        self.call("all_invalidated")
    }

    fn connected(&self, _: &Value<'_>) -> Result<(), ClientError> {
        self.call("connected")
    }

    fn disconnected(&self) {
        let _ = self.call("disconnected");
    }
}

/// Accepts a client that has missed a transaction, and its load of what that wrote.
fn admit_again(listener: &UnixListener) {
    let mut peer = Peer::accept(listener);
    peer.admit(Tid(11), |peer| {
        let missed = peer.expect("getInvalidations");
        peer.reply(&missed, Value::tuple([Tid(11).into(), Value::list([Oid(1).into()])]));
    });
    let load = peer.expect("loadBefore");
    peer.reply_load(&load, b"data", Tid(11));
}

/// Tells of a commit while the client loads, which ends the connection.
fn end_by_a_commit(listener: &UnixListener) {
    let mut peer = Peer::admitted(listener, Tid(10));
    peer.expect("loadBefore");
    // The thread that loads is the one that reads by now.
    thread::sleep(SILENCE);
    peer.invalidate(Tid(11), &[Oid(1)]);
    peer.expect_end();
    admit_again(listener);
}

/// What it was told of may be half handled, and is told again.
#[test]
fn a_watcher_that_panics_costs_the_connection_and_no_more() {
    let options = |options| Options { watcher: Failing::at("invalidated", panics), ..options };
    play_with(options, end_by_a_commit, |client, _| {
        let reading = Arc::clone(client);
        let panicked = thread::spawn(move || reading.load_before(Oid(1), Tid(11))).join();
        assert!(panicked.is_err());
        wait_until(|| client.last_tid() == Tid(11));
        assert_eq!(client.load_before(Oid(1), Tid(12)).unwrap().unwrap().serial, Tid(11));
    });
}

#[test]
fn what_a_watcher_has_not_taken_in_is_told_again_and_the_call_that_read_it_goes_on() {
    let options = |options| Options { watcher: Failing::at("invalidated", refuses), ..options };
    play_with(options, end_by_a_commit, |client, _| {
        assert_eq!(client.load_before(Oid(1), Tid(12)).unwrap().unwrap().serial, Tid(11));
        assert_eq!(client.last_tid(), Tid(11));
    });
}

#[test]
fn a_watcher_that_has_not_dropped_all_is_told_so_again() {
    let script = |listener: &UnixListener| {
        drop(Peer::admitted(listener, Tid(10)));
        let forget = |peer: &mut Peer| {
            let missed = peer.expect("getInvalidations");
            peer.reply(&missed, Value::None);
        };
        let mut peer = Peer::accept(listener);
        let register = peer.expect("register");
        peer.reply(&register, Tid(20).into());
        forget(&mut peer);
        peer.expect_end();
        Peer::accept(listener).admit(Tid(20), forget);
    };
    let options = |options| Options { watcher: Failing::at("all_invalidated", refuses), ..options };
    play_with(options, script, |client, _| wait_until(|| client.last_tid() == Tid(20)));
}

/// While the application waits for nothing, the thread that connects is the one that reads.
#[test]
fn a_watcher_that_fails_in_the_thread_that_connects_costs_the_connection_and_no_more() {
    let cases: [(_, fn() -> _); 5] = [
        ("invalidated", panics),
        ("invalidated", refuses),
        ("connected", panics),
        ("connected", refuses),
        ("disconnected", panics),
    ];
    for (name, fail) in cases {
        let script = |listener: &UnixListener| {
            let mut peer = Peer::admitted(listener, Tid(10));
            if name == "invalidated" {
                peer.invalidate(Tid(11), &[Oid(1)]);
                peer.expect_end();
            }
            drop(peer);
            admit_again(listener);
        };
        let options = |options| Options { watcher: Failing::at(name, fail), ..options };
        play_with(options, script, |client, _| {
            wait_until(|| client.last_tid() == Tid(11));
            assert_eq!(client.load_before(Oid(1), Tid(12)).unwrap().unwrap().serial, Tid(11));
        });
    }
}

#[test]
fn oids_of_a_lost_connection_are_not_used() {
    let oids = |numbers: &[u64]| Value::list(numbers.iter().map(|oid| Oid(*oid).into()));
    let script = move |listener: &UnixListener| {
        let mut peer = Peer::admitted(listener, Tid(10));
        let asked = peer.expect("new_oids");
        peer.reply(&asked, oids(&[1, 2, 3]));
        let sync = peer.expect("ping");
        peer.reply(&sync, Value::None);
        drop(peer);
        let mut peer = Peer::accept(listener);
        peer.admit(Tid(11), |peer| {
            let missed = peer.expect("getInvalidations");
            peer.reply(&missed, Value::tuple([Tid(11).into(), Value::list([])]));
        });
        let asked = peer.expect("new_oids");
        peer.reply(&asked, oids(&[7, 8]));
    };
    play(script, |client, _| {
        assert_eq!(client.new_oid().unwrap(), Oid(1));
        assert_eq!(client.new_oid().unwrap(), Oid(2));
        client.sync().unwrap();
        wait_until(|| client.last_tid() == Tid(11));
        assert_eq!(client.new_oid().unwrap(), Oid(7));
    });
}

#[test]
fn a_load_that_is_under_way_is_joined_and_not_sent_again() {
    let script = |listener: &UnixListener| {
        let mut peer = Peer::admitted(listener, Tid(10));
        let load = peer.expect("loadBefore");
        peer.expect_silence();
        peer.reply_load(&load, b"data", Tid(5));
        let sync = peer.expect("ping");
        peer.reply(&sync, Value::None);
    };
    play(script, |client, _| {
        let load = || client.load_before(Oid(1), Tid(11)).unwrap().unwrap().data;
        client.prefetch(&[Oid(1)], Tid(11));
        client.prefetch(&[Oid(1)], Tid(11));
        thread::scope(|scope| {
            let others: Vec<_> = (0..3).map(|_| scope.spawn(load)).collect();
            for other in others {
                assert_eq!(other.join().unwrap(), b"data".as_slice());
            }
        });
        client.sync().unwrap();
    });
}

#[test]
fn a_server_with_an_older_database_is_refused() {
    let script = |listener: &UnixListener| {
        let peer = Peer::admitted(listener, Tid(10));
        drop(peer);
        // For example a server with yesterday's backup.
        let mut peer = Peer::accept(listener);
        let register = peer.expect("register");
        peer.reply(&register, Tid(5).into());
        peer.expect_end();
    };
    play_waiting(Duration::from_secs(2), script, |client, log| {
        wait_until(|| !client.is_connected());
        let error = client.wait().unwrap_err().to_string();
        assert!(error.contains("another or an older database"), "{error}");
        assert_eq!(*log.0.lock(), []);
        assert_eq!(client.last_tid(), Tid(10));
    });
}

/// The server was put back to yesterday's backup, and another client has committed since; or it
/// is a replica that was late.
#[test]
fn objects_of_lost_transactions_are_dropped_and_those_of_late_ones_are_kept() {
    for is_lost in [true, false] {
        let script = |listener: &UnixListener| {
            let mut peer = Peer::admitted(listener, Tid(10));
            let load = peer.expect("loadBefore");
            peer.reply_load(&load, b"seen", Tid(9));
            drop(peer);
            let mut peer = Peer::accept(listener);
            let register = peer.expect("register");
            peer.reply(&register, Tid(5).into());
            peer.expect_end();
            let mut peer = Peer::accept(listener);
            peer.admit(Tid(20), |peer| {
                let missed = peer.expect("getInvalidations");
                peer.reply(&missed, Value::tuple([Tid(20).into(), Value::list([])]));
                let start = peer.expect("iterator_start");
                peer.reply(&start, 3.into());
                let next = peer.expect("iterator_next");
                let found = if is_lost { Value::None } else { Value::tuple([Tid(10).into()]) };
                peer.reply(&next, found);
                peer.expect("iterator_gc");
            });
        };
        play(script, |client, log| {
            client.load_before(Oid(1), Tid(11)).unwrap();
            wait_until(|| client.last_tid() == Tid(20));
            let told = if is_lost { (ALL, vec![]) } else { (Tid(20), vec![]) };
            assert_eq!(*log.0.lock(), [told]);
            assert_eq!(client.load_cached(Oid(1), Tid(21)).is_none(), is_lost);
        });
    }
}

#[test]
fn a_server_that_drops_its_clients_is_connected_to_once_a_second() {
    // Before the client begins, which does not wait for the thread of the script.
    let begin = Instant::now();
    let script = move |listener: &UnixListener| {
        for _ in 0..3 {
            drop(Peer::admitted(listener, Tid(10)));
        }
        assert!(begin.elapsed() >= Duration::from_millis(1900), "{:?}", begin.elapsed());
    };
    play(script, |_, _| ());
}

#[test]
fn a_server_that_greets_byte_by_byte_is_given_up() {
    let script = |listener: &UnixListener| {
        let (mut stream, _) = listener.accept().unwrap();
        for byte in [0, 0, 0, 2, b'M', b'5'] {
            thread::sleep(SILENCE);
            // The client has left meanwhile.
            let _ = stream.write_all(&[byte]);
        }
        assert_eq!(stream.read(&mut [0; 64]).unwrap(), 0, "the client has left");
        Peer::admitted(listener, Tid(10));
    };
    let options = |options| Options { silence_max: 4 * SILENCE, ..options };
    play_with(options, script, |client, _| assert_eq!(client.last_tid(), Tid(10)));
}

/// Objects of a transaction in a log, and their size.
#[derive(Clone, Copy)]
struct Logged {
    records: u64,
    bytes: usize,
}

impl Peer {
    /// Sends a log as a stock server does, until its end was read. Returns the bytes of records of
    /// further transactions that were requested before the first transaction was read.
    fn serve_log(&mut self, log: &[Logged]) -> usize {
        let mut started = 0;
        let mut sent = vec![0; log.len()];
        let mut bytes_ahead = 0;
        loop {
            let frame = self.frame(PATIENCE).expect("the client asks for no more");
            let Message { id, name, arguments, .. } = decode_message(ENCODING, &frame).unwrap();
            let arguments = arguments.unwrap_or_default();
            match &*name {
                "iterator_start" => self.reply(&id, 0.into()),
                "iterator_next" if started == log.len() => {
                    self.reply(&id, Value::None);
                    return bytes_ahead;
                }
                "iterator_next" => {
                    started += 1;
                    let (tid, empty) = (Tid(started as u64).into(), || Value::from(b""));
                    let head = [tid, " ".into(), empty(), empty(), Value::dict::<&str>([])];
                    self.reply(&id, Value::tuple(head));
                }
                // The id of the iterator over the records is the tid.
                "iterator_record_start" => {
                    self.reply(&id, arguments[1].as_tid().unwrap().0.into());
                }
                "iterator_record_next" => {
                    let tid = arguments[0].as_u64().unwrap();
                    let place = usize::try_from(tid).unwrap() - 1;
                    let Logged { records, bytes } = log[place];
                    if place > 0 && sent[0] < log[0].records {
                        bytes_ahead += bytes;
                    }
                    sent[place] += 1;
                    let data = vec![7; bytes];
                    let record =
                        [Oid(sent[place]).into(), Tid(tid).into(), data.into(), Value::None];
                    let is_over = sent[place] > records;
                    self.reply(&id, if is_over { Value::None } else { Value::tuple(record) });
                }
                other => panic!("{other}"),
            }
        }
    }
}

#[test]
fn a_long_transaction_is_read_on_when_those_behind_it_fill_the_memory() {
    const MIB: usize = 1 << 20;
    let mut log = vec![Logged { records: 3, bytes: MIB }; 13];
    log[0] = Logged { records: 200, bytes: 10 };
    let logged = log.clone();
    play(
        move |listener| {
            let mut server = Peer::accept(listener);
            server.admit(Tid(13), |_| ());
            let bytes_ahead = server.serve_log(&logged);
            // 16 MiB are full; before, each of the twelve transactions may have a request on its
            // way.
            assert!((16 * MIB..=28 * MIB).contains(&bytes_ahead), "{bytes_ahead}");
        },
        |client, _| {
            let mut reader = client.read_log(None, None).unwrap();
            for (number, Logged { records, bytes }) in (1..).zip(log) {
                assert_eq!(reader.next_transaction().unwrap().unwrap().tid, Tid(number));
                for oid in 1..=records {
                    let record = reader.next_record().unwrap().unwrap();
                    assert_eq!((record.oid, record.data.unwrap().len()), (Oid(oid), bytes));
                }
                assert_eq!(reader.next_record().unwrap(), None);
            }
            assert_eq!(reader.next_transaction().unwrap(), None);
        },
    );
}

/// Two records of one transaction, of which a stock server has forgotten the place after the first.
#[test]
fn a_transaction_that_was_cut_off_is_read_on_behind_what_was_returned() {
    let record = |oid| {
        let data = Value::from(b"data");
        Value::tuple([Oid(oid).into(), Tid(1).into(), data, Value::None])
    };
    let head = || {
        let empty = || Value::from(b"");
        Value::tuple([Tid(1).into(), " ".into(), empty(), empty(), Value::dict::<&str>([])])
    };
    let (returned, is_returned) = mpsc::channel();
    let script = move |listener: &UnixListener| {
        let mut server = Peer::accept(listener);
        server.admit(Tid(10), |_| ());
        let start = server.expect("iterator_start");
        server.reply(&start, 0.into());
        let first = server.expect("iterator_next");
        server.reply(&first, head());
        let records = server.expect("iterator_record_start");
        server.reply(&records, 1.into());
        // The client looks for further transactions meanwhile.
        let second = server.expect("iterator_next");
        let asked = server.expect("iterator_record_next");
        server.reply(&asked, record(1));
        is_returned.recv().unwrap();
        let asked = server.expect("iterator_record_next");
        server.reply(&second, Value::None);
        server.fail(&asked, "builtins.ValueError");
        for (name, answer) in [
            ("iterator_start", 2.into()),
            ("iterator_next", head()),
            ("iterator_record_start", 3.into()),
            ("iterator_record_next", record(1)),
            ("iterator_record_next", record(2)),
            ("iterator_record_next", Value::None),
        ] {
            let asked = server.expect(name);
            server.reply(&asked, answer);
        }
        server.expect("iterator_gc");
    };
    play(script, |client, _| {
        let mut reader = client.read_log(None, None).unwrap();
        assert_eq!(reader.next_transaction().unwrap().unwrap().tid, Tid(1));
        assert_eq!(reader.next_record().unwrap().unwrap().oid, Oid(1));
        returned.send(()).unwrap();
        assert_eq!(reader.next_record().unwrap().unwrap().oid, Oid(2));
        assert_eq!(reader.next_record().unwrap(), None);
        assert_eq!(reader.next_transaction().unwrap(), None);
    });
}

/// A log that is read in chunks: a second one is requested when the first has come, and one more
/// with each further one, up to eight.
#[test]
fn chunks_are_requested_further_ahead_the_more_are_read() {
    const CHUNKS: u64 = 12;
    let script = |listener: &UnixListener| {
        let mut server = Peer::accept(listener);
        server.admit_with(info_with_chunks(), Tid(CHUNKS), |_| ());
        let start = server.expect("iterator_start");
        server.reply(&start, 0.into());
        // The first answer is small, and each further one twice as large, up to a limit.
        let mut sizes = [32, 64, 128].into_iter().chain(std::iter::repeat(256));
        let ask = |server: &mut Peer, size: u64| {
            let (id, arguments) = server.asked("zodium_iterator_read");
            assert_eq!(arguments[1].as_u64(), Some(size << 10));
            id
        };
        let mut size = sizes.next().unwrap();
        let mut asked = VecDeque::from([ask(&mut server, size)]);
        server.expect_silence();
        for number in 1..=CHUNKS {
            let mut chunk = Vec::new();
            let head = ChunkItem::Transaction {
                tid: Tid(number),
                status: b' ',
                user: b"",
                description: b"",
                extension: b"",
            };
            put_chunk_item(&mut chunk, &head).unwrap();
            if number == CHUNKS {
                put_chunk_item(&mut chunk, &ChunkItem::End).unwrap();
            }
            server.reply(&asked.pop_front().unwrap(), chunk.into());
            size = sizes.next().unwrap();
            let ahead = usize::try_from((number + 1).min(8)).unwrap();
            while asked.len() < ahead {
                asked.push_back(ask(&mut server, size));
            }
            if number < CHUNKS {
                server.expect_silence();
            }
        }
        server.expect("iterator_gc");
    };
    play(script, |client, _| {
        let mut reader = client.read_log(None, None).unwrap();
        for number in 1..=CHUNKS {
            assert_eq!(reader.next_transaction().unwrap().unwrap().tid, Tid(number));
        }
        assert_eq!(reader.next_transaction().unwrap(), None);
    });
}

/// Answers of Zodium's own methods.
fn chunk(items: &[ChunkItem<'_>]) -> Value<'static> {
    let mut chunk = Vec::new();
    items.iter().for_each(|item| put_chunk_item(&mut chunk, item).unwrap());
    chunk.into()
}

fn info_with_chunks() -> Value<'static> {
    let methods = ["zodium_iterator_read", "zodium_objects_read"].map(Value::from);
    Value::dict([("zodium_methods", Value::list(methods))])
}

/// Of the objects of one answer only those are asked for again that a commit has made old, or
/// that are not next in order.
#[test]
fn objects_that_were_read_ahead_are_asked_for_once() {
    let script = |listener: &UnixListener| {
        let mut server = Peer::accept(listener);
        server.admit_with(info_with_chunks(), Tid(10), |_| ());
        let answer = |server: &mut Peer, from: Option<u64>, kib: u64, oids: &[u64]| {
            let (id, arguments) = server.asked("zodium_objects_read");
            assert_eq!(arguments[0].as_oid(), from.map(Oid));
            assert_eq!(arguments[1].as_u64(), Some(kib << 10));
            let object =
                |oid: &u64| ChunkItem::Object { oid: Oid(*oid), serial: Tid(5), data: b"x" };
            let mut items: Vec<_> = oids.iter().map(object).collect();
            items.push(match oids.last() {
                Some(9) | None => ChunkItem::End,
                Some(last) => ChunkItem::Following(Oid(last + 1)),
            });
            server.reply(&id, chunk(&items));
        };
        answer(&mut server, None, 4, &[1, 2, 3]);
        // All of them were used.
        answer(&mut server, Some(4), 8, &[4, 5, 6]);
        // Another one than the next is asked for.
        answer(&mut server, Some(2), 4, &[2, 3]);
        server.invalidate(Tid(11), &[Oid(3)]);
        let ping = server.expect("ping");
        server.reply(&ping, Value::None);
        answer(&mut server, Some(3), 4, &[3, 9]);
        // An answer without an object is no answer.
        answer(&mut server, Some(20), 8, &[]);
        let ping = server.expect("ping");
        server.reply(&ping, Value::None);
    };
    play(script, |client, _| {
        let next = |from: Option<u64>| {
            let found = client.next_object(from.map(Oid)).unwrap();
            assert_eq!((found.serial, &found.data[..]), (Tid(5), &b"x"[..]));
            (found.oid.0, found.following.map(|oid| oid.0))
        };
        assert_eq!(next(None), (1, Some(2)));
        assert_eq!(next(Some(2)), (2, Some(3)));
        assert_eq!(next(Some(3)), (3, Some(4)));
        assert_eq!(next(Some(4)), (4, Some(5)));
        assert_eq!(next(Some(2)), (2, Some(3)));
        client.sync().unwrap();
        assert_eq!(next(Some(3)), (3, Some(9)));
        assert_eq!(next(Some(9)), (9, None));
        let refused = client.next_object(Some(Oid(20))).unwrap_err();
        assert!(matches!(refused, ClientError::Unexpected { .. }), "{refused:?}");
        client.sync().unwrap();
    });
}

#[test]
fn a_server_that_has_said_nothing_for_too_long_is_left_and_that_is_said() {
    let script = |listener: &UnixListener| {
        let mut peer = Peer::admitted(listener, Tid(10));
        peer.expect("slow");
        peer.expect("ping");
        peer.expect_end();
    };
    let silence_max = Duration::from_millis(1500);
    let options = |options| Options { silence_max, ..options };
    play_with(options, script, |client, _| {
        let left = client.call("slow", &Value::tuple([])).unwrap_err();
        assert!(matches!(left, ClientError::Disconnected(_)), "{left:?}");
        let said = left.to_string();
        assert!(said.contains("the server has said nothing for 1.5 seconds"), "{said}");
    });
}

/// A silent one is left after a part of the time that it takes to read the request.
#[test]
fn a_server_that_takes_a_long_request_lives_although_it_says_nothing() {
    const BYTES: usize = 4 << 20;
    let script = |listener: &UnixListener| {
        let mut peer = Peer::admitted(listener, Tid(10));
        peer.read_slowly(BYTES);
        let frame = peer.frame(PATIENCE).unwrap();
        assert_eq!(decode_message(ENCODING, &frame).unwrap().name, "long");
    };
    let options = |options| Options { silence_max: 3 * SILENCE, ..options };
    play_with(options, script, |client, _| {
        client.cast("long", &Value::tuple([vec![7; BYTES].into()])).unwrap();
    });
}

#[test]
fn a_server_that_does_not_answer_a_registration_in_time_is_said_so() {
    let script = |listener: &UnixListener| {
        for _ in 0..2 {
            let mut peer = Peer::accept(listener);
            peer.expect("register");
            peer.expect_end();
        }
    };
    let options = |options| Options {
        silence_max: 3 * SILENCE,
        wait: false,
        wait_timeout: 10 * SILENCE,
        ..options
    };
    play_with(options, script, |client, _| {
        let error = client.wait().unwrap_err().to_string();
        assert!(error.contains("no answer in time"), "{error}");
    });
}
