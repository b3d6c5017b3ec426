//! Loads of what is in memory, and those of a storage that answers several cold ones at once.

use crate::must;
use crate::support::client::{Answer, Client};
use crate::support::counted::Loads;
use crate::support::server::{InProcess, Setup};
use zodium_pickle::Value;
use zodium_types::{Oid, Tid};
use zodium_zeo::codec::Encoding;

/// More than are looked up at once.
const OBJECTS: u64 = 20;

fn data(oid: u64) -> Vec<u8> {
    vec![oid as u8; 100 * oid as usize]
}

/// Commits the objects.
fn commit(client: &mut Client) -> Tid {
    must(client.begin(1));
    (1..=OBJECTS).for_each(|oid| must(client.store(1, Oid(oid), Tid::ZERO, &data(oid))));
    must(client.commit(1))
}

/// Loads all objects at once, which this transaction has written.
fn load_all(client: &mut Client, tid: Tid) {
    let asked: Vec<_> = (1..=OBJECTS).map(|oid| client.load(Oid(oid), Tid::MAX)).collect();
    must(client.send());
    for (oid, id) in (1..).zip(asked) {
        let revision = [data(oid).into(), tid.into(), Value::None];
        assert!(must(client.answer(&id)) == Answer::Value(Value::tuple(revision)), "object {oid}");
    }
}

#[test]
fn current_revisions_in_memory_are_not_looked_up_one_by_one() {
    for encoding in [Encoding::Pickle, Encoding::Msgpack] {
        let loads = Loads::new(1);
        let setup = Setup { loads: Some(loads.clone()), ..Setup::default() };
        let server = must(InProcess::start_with(encoding, setup));
        let mut client = must(Client::register(server.socket()));
        let tid = commit(&mut client);
        for _ in 0..3 {
            load_all(&mut client, tid);
        }
        assert_eq!(loads.alone(), 0);
        // Before that transaction there was no object.
        let older = client.load(Oid(1), tid);
        must(client.send());
        assert_eq!(must(client.answer(&older)), Answer::Value(Value::None));
        assert_eq!(loads.alone(), 1);
        must(server.close());
    }
}

#[test]
fn cold_loads_are_answered_together_by_a_storage_that_takes_several() {
    let server = must(InProcess::start(Encoding::Msgpack, None));
    let tid = commit(&mut must(Client::register(server.socket())));
    let data = server.data();
    must(server.close());
    for (at_once_max, together) in [(1, 0), (2, OBJECTS), (8, OBJECTS)] {
        let loads = Loads::new(at_once_max);
        let setup = Setup { loads: Some(loads.clone()), ..Setup::default() };
        let setup = Setup { data: Some(data.clone()), cold_every: 1, ..setup };
        let server = must(InProcess::start_with(Encoding::Msgpack, setup));
        load_all(&mut must(Client::register(server.socket())), tid);
        assert_eq!(loads.together() as u64, together, "{at_once_max} at once");
        must(server.close());
    }
}
