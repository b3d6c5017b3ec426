//! Random transactions, compared with maps after each.

use std::collections::BTreeMap;

use rand::rngs::SmallRng;
use rand::{Rng, RngExt, SeedableRng};
use zodium_storage::{NewBody, NewRecord};
use zodium_types::{Oid, Tid};

use crate::Tester;
use crate::packs::pack;
use crate::tester::data_of;

const OIDS: u64 = 12;

/// Revisions by object and tid; `None` is a deletion.
type Map = BTreeMap<u64, BTreeMap<Tid, Option<String>>>;

fn one_record(
    tester: &Tester,
    random: &mut impl Rng,
    map: &Map,
    oid: u64,
) -> (NewRecord, Option<String>) {
    let revisions = map.get(&oid);
    match random.random_range(0..10) {
        0 if revisions.is_some() => (NewRecord { oid: Oid(oid), body: NewBody::Deleted }, None),
        1 | 2 if let Some((tid, data)) = revisions.and_then(|all| all.first_key_value()) => {
            // A pack may have dropped it.
            match tester.storage.record(Oid(oid), *tid).unwrap() {
                Some(_) => {
                    let body = NewBody::SameAs(*tid);
                    (NewRecord { oid: Oid(oid), body }, data.clone())
                }
                None => (data_of(oid, "instead"), Some("instead".to_owned())),
            }
        }
        _ => {
            let data = format!("{oid} {}", random.random_range(0..1000));
            (data_of(oid, &data), Some(data))
        }
    }
}

fn one_transaction(tester: &Tester, random: &mut impl Rng, map: &mut Map) -> Tid {
    let mut records = Vec::new();
    let mut written = Vec::new();
    for oid in 0..OIDS {
        if random.random_ratio(1, 4) {
            let (record, data) = one_record(tester, random, map, oid);
            records.push(record);
            written.push((oid, data));
        }
    }
    let tid = tester.commit(records);
    for (oid, data) in written {
        map.entry(oid).or_default().insert(tid, data);
    }
    tid
}

/// Compares every revision that is visible at `from` and later.
fn compare(tester: &Tester, map: &Map, from: Tid) {
    for (oid, revisions) in map {
        let mut tids: Vec<Tid> = revisions.keys().map(|tid| tid.next()).collect();
        tids.push(Tid::MAX);
        tids.retain(|tid| *tid > from);
        for before in tids {
            let found = revisions.range(..before).next_back();
            let expected = found.and_then(|(tid, data)| {
                let end = revisions.range(tid.next()..).next().map(|(end, _)| *end);
                Some((data.clone()?, *tid, end))
            });
            assert_eq!(tester.load(*oid, before), expected, "object {oid} before {before}");
        }
    }
}

pub fn random_transactions_are_read_as_a_map_says(tester: &Tester) {
    let (mut random, mut map) = (SmallRng::seed_from_u64(1), Map::new());
    for _ in 0..200 {
        one_transaction(tester, &mut random, &mut map);
    }
    compare(tester, &map, Tid::ZERO);
    for (oid, revisions) in &map {
        let history = tester.storage.history(Oid(*oid), usize::MAX).unwrap();
        let tids: Vec<Tid> = history.iter().map(|entry| entry.transaction.tid).collect();
        assert_eq!(tids, revisions.keys().rev().copied().collect::<Vec<_>>());
    }
    let records: usize = map.values().map(BTreeMap::len).sum();
    let found = tester.transactions(None, None);
    assert_eq!(found.iter().map(|(_, records)| records.len()).sum::<usize>(), records);
}

pub fn random_packs_keep_what_is_seen(tester: &Tester) {
    let (mut random, mut map) = (SmallRng::seed_from_u64(2), Map::new());
    let (mut tids, mut packed) = (Vec::new(), Tid::ZERO);
    for step in 0..200 {
        tids.push(one_transaction(tester, &mut random, &mut map));
        if step % 20 == 19 {
            packed = packed.max(tids[random.random_range(0..tids.len())]);
            pack(tester, packed, false);
            compare(tester, &map, packed);
        }
    }
    compare(tester, &map, packed);
}
