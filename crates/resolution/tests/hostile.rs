//! Hostile records: nothing panics or grows, and a resolved record can be read.

#![forbid(unsafe_code)]

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use zodium_pickle::{Limits, Value, decode_record, encode};
use zodium_resolution::{Outcome, resolve};

/// A bucket with these entries, as ZODB stores it.
fn bucket(class: &str, items: Vec<Value<'_>>, next: Option<u8>) -> Vec<u8> {
    let mut record = format!("\x03cBTrees.OOBTree\n{class}\n").into_bytes();
    record.insert(0, 0x80);
    record.push(b'.');
    let next = next.map(|oid| Value::Persistent(Box::new(Value::from(vec![oid; 8]))));
    let state = [Value::Tuple(items)].into_iter().chain(next);
    encode(&Value::tuple(state), &mut record);
    record
}

fn key() -> impl Strategy<Value = Value<'static>> {
    prop_oneof![
        Just(Value::None),
        any::<bool>().prop_map(Value::from),
        (-3..3_i64).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        vec(any::<u8>(), 15..20).prop_map(|b| Value::from_twos_complement(&b).into_owned()),
        "[ab]{0,2}".prop_map(Value::from),
        vec(0..3_u8, 0..2).prop_map(Value::from),
        vec((0..3_i64).prop_map(Value::from), 0..3).prop_map(Value::Tuple),
        vec((0..3_i64).prop_map(Value::from), 0..3).prop_map(Value::List),
        any::<u8>().prop_map(|oid| Value::Persistent(Box::new(Value::from(vec![oid; 8])))),
    ]
}

fn record() -> impl Strategy<Value = Vec<u8>> {
    let class = prop_oneof![Just("OOBucket"), Just("OOSet"), Just("OOBTree")];
    let next = proptest::option::weighted(0.3, 0..2_u8);
    (class, vec(key(), 0..12), next).prop_map(|(class, items, next)| bucket(class, items, next))
}

fn check(old: &[u8], committed: &[u8], new: &[u8]) {
    if let Outcome::Resolved(record) = resolve(old, committed, new) {
        let size = old.len() + committed.len() + new.len();
        assert!(record.len() <= 64 * size, "{} bytes of {size}", record.len());
        assert!(decode_record(&record, &Limits::OBJECTS).is_ok());
    }
}

proptest! {
    #[test]
    fn records_of_any_keys_do_no_harm(old in record(), committed in record(), new in record()) {
        check(&old, &committed, &new);
        check(&old, &old, &new);
        check(&old, &committed, &old);
    }

    #[test]
    fn damaged_records_do_no_harm(
        records in vec(record(), 3),
        damage in vec((0..3_usize, any::<Index>(), any::<u8>()), 1..6),
    ) {
        let mut records = records;
        for (which, index, byte) in damage {
            let record = &mut records[which];
            let index = index.index(record.len());
            record[index] = byte;
        }
        check(&records[0], &records[1], &records[2]);
        check(&records[0], &records[0], &records[1]);
    }

    #[test]
    fn an_untouched_side_gives_the_other(
        keys in proptest::collection::btree_set(0..1000_i64, 2..20),
        added in 1000..2000_i64,
    ) {
        let values = |keys: Vec<i64>| keys.into_iter().map(Value::from).collect::<Vec<_>>();
        let old: Vec<_> = keys.into_iter().collect();
        let mut more = old.clone();
        more.push(added);
        let old = bucket("OOSet", values(old), None);
        let more = bucket("OOSet", values(more), None);
        let resolved = |committed: &[u8], new: &[u8]| match resolve(&old, committed, new) {
            Outcome::Resolved(record) => decode_record(&record, &Limits::OBJECTS)
                .map(|(class, state)| (class.into_owned(), state.into_owned())),
            other => panic!("{other:?}"),
        };
        let expected = decode_record(&more, &Limits::OBJECTS);
        prop_assert_eq!(&resolved(&old, &more), &expected);
        prop_assert_eq!(&resolved(&more, &old), &expected);
    }
}

/// A record of a set, with this pickle as its state.
fn set_of(state: &[u8]) -> Vec<u8> {
    [b"\x80\x03cBTrees.OOBTree\nOOSet\nq\0.\x80\x03", state, b"."].concat()
}

#[test]
fn text_mentioned_again_and_again_does_not_make_a_record_grow() {
    let text = vec![b'a'; 60_000];
    let mut state = [b"(X", &60_000_u32.to_le_bytes()[..], &text, b"q\x01"].concat();
    state.extend(b"h\x01\x85".repeat(20_000));
    state.extend(b"t\x85");
    let record = set_of(&state);
    assert!(matches!(resolve(&record, &record, &record), Outcome::Unresolvable(_)));
}

#[test]
fn more_values_than_memory_is_meant_for_are_left_to_the_client() {
    let set = |count: u32| {
        let items: Vec<u8> =
            (0..count).flat_map(|n| [&b"J"[..], &n.to_le_bytes()].concat()).collect();
        set_of(&[b"(", &items[..], b"t\x85"].concat())
    };
    let outcome = |count| resolve(&set(count), &set(count), &set(count + 1));
    assert!(matches!(outcome(1000), Outcome::Resolved(_)));
    let Outcome::Unresolvable(reason) = outcome(1 << 20) else { panic!("it is resolved") };
    assert!(!reason.is_certain(), "the application's classes may do it");
}

#[test]
fn what_only_python_knows_is_left_to_it() {
    let shared = set_of(b"(K\x01]q\x01\x86h\x01t\x85");
    let python2 = set_of(b"U\x01a\x85\x85");
    let deep = set_of(&[b"N".to_vec(), b"\x85".repeat(5000)].concat());
    for record in [shared, python2, deep, set_of(b"N\x85"), set_of(b"")] {
        assert!(matches!(resolve(&record, &record, &record), Outcome::Unresolvable(_)));
    }
    let other = b"\x80\x03capp\nOOBucket\nq\0.\x80\x03N.";
    assert_eq!(resolve(other, other, other), Outcome::NotOurs);
    assert_eq!(resolve(b"", b"", b""), Outcome::NotOurs);
}
