//! Reads the log of a stock server: batches of records, and records that it cannot read.

use std::os::unix::net::UnixListener;

use crate::common::peer::{Peer, failure, play, reply};
use crate::common::stock_log::{FIRST_RECORDS, Logged, head, record, serve_log, serve_log_from};
use zodium_client::LogReader;
use zodium_pickle::Value;
use zodium_types::{Oid, Tid};
use zodium_zeo::codec::MessageId;

/// From so many records of a transaction on, two are requested at once.
const ONE_BY_ONE: u64 = 8;

/// The oids of at most `count` records that have arrived.
fn batch(reader: &mut LogReader, count: usize) -> Vec<u64> {
    reader.next_records(count).unwrap().iter().map(|record| record.oid.0).collect()
}

/// Sends the first records of a transaction, each once it is requested. Then the client has
/// requested two more, and the next transaction.
fn serve_until_two_are_asked(listener: &UnixListener) -> (Peer, [MessageId; 3]) {
    let mut peer = Peer::admitted(listener, Tid(10));
    let start = peer.expect("iterator_start");
    peer.reply(&start, 0.into());
    let first = peer.expect("iterator_next");
    peer.reply(&first, head(Tid(1), Value::dict::<&str>([])));
    let records = peer.expect("iterator_record_start");
    peer.reply(&records, 1.into());
    let following = peer.expect("iterator_next");
    for oid in 1..=ONE_BY_ONE {
        let asked = peer.expect("iterator_record_next");
        peer.reply(&asked, record(Oid(oid), Tid(1)));
    }
    let two = [(); 2].map(|()| peer.expect("iterator_record_next"));
    let [one, other] = two;
    (peer, [following, one, other])
}

#[test]
fn records_that_have_arrived_come_together_and_none_is_waited_for() {
    play(
        |listener| {
            let (mut peer, [following, one, other]) = serve_until_two_are_asked(listener);
            let records = [9, 10].map(|oid| record(Oid(oid), Tid(1)));
            peer.send(&[reply(&one, &records[0]), reply(&other, &records[1])].concat());
            // The client has got its batch before it pings.
            let more = [(); 2].map(|()| peer.expect("iterator_record_next"));
            let ping = peer.expect("ping");
            peer.reply(&ping, Value::None);
            more.iter().for_each(|asked| peer.reply(asked, Value::None));
            peer.reply(&following, Value::None);
        },
        |client, _| {
            let mut reader = client.read_log(None, None).unwrap();
            assert_eq!(reader.position(), None);
            reader.next_transaction().unwrap().unwrap();
            assert_eq!(reader.position(), Some((Tid(1), 0)));
            for oid in 1..=ONE_BY_ONE {
                assert_eq!(batch(&mut reader, 100), [oid]);
            }
            assert_eq!(batch(&mut reader, 100), [9, 10]);
            assert_eq!(reader.position(), Some((Tid(1), 10)));
            client.sync().unwrap();
            assert!(batch(&mut reader, 100).is_empty());
            assert_eq!(reader.next_transaction().unwrap(), None);
        },
    );
}

#[test]
fn records_before_an_error_are_given_and_then_the_error() {
    play(
        |listener| {
            let (mut peer, [following, one, other]) = serve_until_two_are_asked(listener);
            let last = [reply(&one, &record(Oid(9), Tid(1))), reply(&other, &Value::None)];
            peer.send(&[last.concat(), failure(&following, "builtins.OSError").to_vec()].concat());
            peer.expect("iterator_gc");
        },
        |client, _| {
            let mut reader = client.read_log(None, None).unwrap();
            reader.next_transaction().unwrap().unwrap();
            for oid in 1..=ONE_BY_ONE {
                assert_eq!(batch(&mut reader, 100), [oid]);
            }
            assert_eq!(batch(&mut reader, 100), [9]);
            for _ in 0..2 {
                let error = reader.next_records(100).unwrap_err();
                assert!(error.is_exception("builtins.OSError"), "{error:?}");
            }
        },
    );
}

#[test]
fn a_record_that_cannot_be_read_costs_its_transaction_and_no_other() {
    let log = || {
        [2, 5, 3].map(|records| Logged {
            records,
            damaged: (records == 5).then_some(3),
            ..Logged::default()
        })
    };
    // Up to the end of the log, up to the damaged transaction, and with tids of a broken clock.
    for (first, stop) in [(1, None), (1, Some(Tid(2))), (1 << 63, None)] {
        play(
            |listener| {
                let mut peer = Peer::admitted(listener, Tid(first + 2));
                serve_log_from(&mut peer, first, &log());
            },
            |client, _| {
                let mut reader = client.read_log(None, stop).unwrap();
                let mut seen = Vec::new();
                let error = loop {
                    let head = match reader.next_transaction() {
                        Ok(Some(head)) => head,
                        Ok(None) => break None,
                        Err(error) => break Some(error),
                    };
                    loop {
                        match reader.next_record() {
                            Ok(Some(record)) => seen.push((head.tid.0 - first + 1, record.oid.0)),
                            Ok(None) => break,
                            Err(error) => {
                                assert!(error.is_exception("builtins.OSError"), "{error:?}");
                                assert_eq!(head.tid, Tid(first + 1));
                                break;
                            }
                        }
                    }
                };
                let all = [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (3, 2), (3, 3)];
                match stop {
                    None => assert_eq!((&seen[..], error.is_none()), (&all[..], true)),
                    // There is nothing to go on with.
                    Some(_) => assert_eq!((&seen[..], error.is_some()), (&all[..4], true)),
                }
                client.sync().unwrap();
            },
        );
    }
}

/// The server has reached its end before the damage shows, so the transaction is read once more.
#[test]
fn a_record_that_cannot_be_read_is_an_error_also_when_its_transaction_is_read_again() {
    play(
        |listener| {
            // Further transactions may follow, as far as the client knows.
            let mut peer = Peer::admitted(listener, Tid(10));
            serve_log(&mut peer, &[Logged { records: 5, damaged: Some(3), ..Logged::default() }]);
        },
        |client, _| {
            let mut reader = client.read_log(None, None).unwrap();
            assert_eq!(reader.next_transaction().unwrap().unwrap().tid, Tid(1));
            for oid in [1, 2] {
                assert_eq!(reader.next_record().unwrap().unwrap().oid, Oid(oid));
            }
            let error = reader.next_record().unwrap_err();
            assert!(error.is_exception("builtins.OSError"), "{error:?}");
            assert_eq!(reader.next_transaction().unwrap(), None);
            client.sync().unwrap();
        },
    );
}

#[test]
fn a_log_whose_transactions_are_read_in_part_is_begun_once() {
    const COUNT: u64 = 100;
    play(
        |listener| {
            let mut peer = Peer::admitted(listener, Tid(COUNT));
            let logged = || Logged { records: 2, ..Logged::default() };
            let log: Vec<_> = (0..COUNT).map(|_| logged()).collect();
            assert_eq!(serve_log(&mut peer, &log).begun, 1);
        },
        |client, _| {
            let mut reader = client.read_log(None, None).unwrap();
            for tid in 1..=COUNT {
                assert_eq!(reader.next_transaction().unwrap().unwrap().tid, Tid(tid));
                assert_eq!(reader.next_record().unwrap().unwrap().oid, Oid(1));
            }
            client.sync().unwrap();
        },
    );
}

#[test]
fn a_record_that_cannot_be_read_is_passed_over_with_its_transaction() {
    play(
        |listener| {
            let mut peer = Peer::admitted(listener, Tid(3));
            let damaged = Logged { records: 5, damaged: Some(3), ..Logged::default() };
            serve_log(&mut peer, &[Logged::default(), damaged, Logged::default()]);
        },
        |client, _| {
            let mut reader = client.read_log(None, None).unwrap();
            let mut next = || reader.next_transaction().map(|head| head.map(|head| head.tid));
            assert_eq!([next().unwrap(), next().unwrap()], [1, 2].map(|tid| Some(Tid(tid))));
            let error = next().unwrap_err();
            assert!(error.is_exception("builtins.OSError"), "{error:?}");
            assert_eq!([next().unwrap(), next().unwrap()], [Some(Tid(3)), None]);
            client.sync().unwrap();
        },
    );
}

/// A log of transactions with so many records each.
fn log_of(records: &[u64]) -> Vec<Logged> {
    records.iter().map(|records| Logged { records: *records, ..Logged::default() }).collect()
}

/// The oids of the next records of the transaction.
fn take(reader: &mut LogReader, count: usize) -> Vec<u64> {
    let next = || reader.next_record().unwrap().map(|record| record.oid.0);
    std::iter::from_fn(next).take(count).collect()
}

#[test]
fn sixty_four_transactions_are_read_at_a_time() {
    const RECORDS: u64 = 2000;
    let mut records = vec![1; 150];
    records[0] = RECORDS;
    play(
        |listener| {
            let mut peer = Peer::admitted(listener, Tid(150));
            let served = serve_log(&mut peer, &log_of(&records));
            assert_eq!((served.begun, served.ahead), (1, 64));
            // It was read to its end, so there is nothing left to be released.
            assert_eq!(served.released, [] as [Vec<u64>; 0]);
        },
        |client, _| {
            let mut reader = client.read_log(None, None).unwrap();
            for (tid, records) in (1..).zip(&records) {
                assert_eq!(reader.next_transaction().unwrap().unwrap().tid, Tid(tid));
                assert!(take(&mut reader, usize::MAX).into_iter().eq(1..=*records));
            }
            assert_eq!(reader.next_transaction().unwrap(), None);
            drop(reader);
            client.sync().unwrap();
        },
    );
}

/// While the first transaction was read, most of the second one has come.
#[test]
fn further_transactions_are_requested_while_there_is_something_to_return() {
    const AT_ONCE: usize = 16;
    const TIMES: usize = 10;
    let mut records = vec![1; 200];
    records[..2].fill(300);
    play(
        |listener| {
            let mut peer = Peer::admitted(listener, Tid(1000));
            let marked = serve_log(&mut peer, &log_of(&records)).marked;
            assert_eq!(marked.len(), TIMES);
            assert!(marked.is_sorted_by(|one, next| one < next), "{marked:?}");
        },
        |client, _| {
            let mut reader = client.read_log(None, None).unwrap();
            reader.next_transaction().unwrap().unwrap();
            assert_eq!(take(&mut reader, usize::MAX).len(), 300);
            reader.next_transaction().unwrap().unwrap();
            for _ in 0..TIMES {
                assert_eq!(take(&mut reader, AT_ONCE).len(), AT_ONCE);
                // Whatever was requested before is answered before this.
                client.call("mark", &Value::tuple([])).unwrap();
            }
            client.sync().unwrap();
        },
    );
}

/// A stock server keeps an iterator until it is released.
#[test]
fn a_reader_that_is_dropped_releases_the_iterators_that_have_not_ended() {
    let records = [30, 1, 500, 500];
    let of = |transaction: u64| FIRST_RECORDS + transaction - 1;
    // As far as the client knows further transactions may follow, or not. If so it has seen the
    // end of the log meanwhile.
    for (last, expected) in [(4, vec![0, of(1), of(3), of(4)]), (5, vec![of(1), of(3), of(4)])] {
        play(
            |listener| {
                let mut peer = Peer::admitted(listener, Tid(last));
                let mut released = serve_log(&mut peer, &log_of(&records)).released;
                released.iter_mut().for_each(|ids| ids.sort_unstable());
                assert_eq!(released, [expected]);
            },
            |client, _| {
                let mut reader = client.read_log(None, None).unwrap();
                reader.next_transaction().unwrap().unwrap();
                assert_eq!(take(&mut reader, 20).len(), 20);
                drop(reader);
                client.sync().unwrap();
            },
        );
    }
}

/// The id of the iterator over its records is still on its way.
#[test]
fn a_reader_that_is_dropped_early_waits_for_what_it_has_to_release() {
    play(
        |listener| {
            let mut peer = Peer::admitted(listener, Tid(10));
            let start = peer.expect("iterator_start");
            peer.reply(&start, 7.into());
            let first = peer.expect("iterator_next");
            peer.reply(&first, head(Tid(1), Value::dict::<&str>([])));
            let records = peer.expect("iterator_record_start");
            peer.expect("iterator_next");
            peer.expect_silence();
            peer.reply(&records, 8.into());
            let (_, arguments) = peer.asked("iterator_gc");
            assert_eq!(arguments[0].as_sequence().unwrap(), [8.into(), 7.into()]);
        },
        |client, _| {
            let mut reader = client.read_log(None, None).unwrap();
            assert_eq!(reader.number(), 7);
            reader.next_transaction().unwrap().unwrap();
        },
    );
}

#[test]
fn a_reader_whose_iterator_has_no_number_says_so() {
    play(
        |listener| {
            let mut peer = Peer::admitted(listener, Tid(10));
            let start = peer.expect("iterator_start");
            peer.reply(&start, "seven".into());
            let (_, arguments) = peer.asked("iterator_gc");
            assert_eq!(arguments[0].as_sequence().unwrap(), ["seven".into()]);
        },
        |client, _| assert_eq!(client.read_log(None, None).unwrap().number(), -1),
    );
}
