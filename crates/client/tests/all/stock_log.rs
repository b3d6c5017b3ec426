//! Reads the log of a stock server: batches of records, and records that it cannot read.

use std::os::unix::net::UnixListener;

use crate::common::peer::{Peer, failure, play, reply};
use crate::common::stock_log::{Logged, head, record, serve_log, serve_log_from};
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
            assert_eq!(serve_log(&mut peer, &log), 1);
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
