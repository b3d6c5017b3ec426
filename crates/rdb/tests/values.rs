//! What is written is read, also by what Valkey wrote; and damage is noticed.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::collection::{btree_map, btree_set, vec};
use proptest::prelude::*;
use zodium_keyspace::{
    Consumer, Group, Hash, Pending, Set, SortedSet, Stream, StreamId, Value, Word,
};
use zodium_rdb::{Input, Item, RdbError, RdbReader, read_value, write_value};

/// A file that Valkey's tests/e2e counterpart wrote: keys of all kinds in all encodings.
const SAMPLE: &[u8] = include_bytes!("samples/dump.rdb");

fn items(bytes: &[u8]) -> Result<Vec<Item>, RdbError> {
    let mut reader = RdbReader::new(bytes)?;
    std::iter::from_fn(|| reader.next_item().transpose()).collect()
}

/// A value as text that has all of it, in one order.
fn text(value: &Value) -> String {
    match value {
        Value::Hash(hash) => format!("{:?}", hash.iter().collect::<BTreeMap<_, _>>()),
        Value::Set(set) => {
            let mut members: Vec<_> = set.iter().collect();
            members.sort();
            format!("{members:?}")
        }
        Value::SortedSet(set) => format!("{:?}", set.upwards(0).collect::<Vec<_>>()),
        other => format!("{other:?}"),
    }
}

fn read(bytes: &[u8]) -> Result<Value, RdbError> {
    let (kind, mut rest) = bytes.split_first().ok_or(RdbError::Damaged("nothing"))?;
    let value = read_value(*kind, &mut Input::new(&mut rest))?;
    assert!(rest.is_empty(), "all is read");
    Ok(value)
}

#[test]
fn compressed_strings_have_no_more_bytes_than_are_allowed() {
    // Twice `ab`, and 10 bytes from 2 back.
    let string: &[u8] = b"\xc3\x06\x0c\x01ab\xe0\x01\x01";
    let bytes = [b"\x02", string, string].concat();
    let read = |bytes_max| {
        let mut rest = &bytes[..];
        read_value(1, &mut Input::new(&mut rest).decompressing(bytes_max)).map(|_| ())
    };
    assert!(read(24).is_ok());
    let refused = read(23).unwrap_err();
    assert_eq!(refused.to_string(), "damaged: compressed strings of too many bytes");
}

fn word() -> impl Strategy<Value = Word> {
    prop_oneof![vec(any::<u8>(), 0..70), vec(any::<u8>(), 16_380..16_390)]
        .prop_map(Vec::into_boxed_slice)
}

fn short() -> impl Strategy<Value = Word> {
    vec(any::<u8>(), 0..5).prop_map(Vec::into_boxed_slice)
}

fn stream() -> impl Strategy<Value = Stream> {
    let ids = btree_set((0..2000_u64, 0..3_u64), 0..250);
    (ids, vec(short(), 3), any::<bool>(), 0..5_usize).prop_map(|(ids, words, is_read, pending)| {
        let mut stream = Stream::default();
        for (ms, number) in ids {
            let fields = words.iter().cycle().take(2 * (ms % 3) as usize).cloned();
            stream.add(StreamId { ms, number }, fields.collect());
        }
        if let Some((first, _)) = stream.first() {
            stream.remove(first);
        }
        let mut group = Group { read: is_read.then_some(7), ..Group::default() };
        let ids: Vec<StreamId> = stream.range(..).map(|(id, _)| id).take(pending).collect();
        for (place, id) in ids.into_iter().enumerate() {
            let consumer: Word = format!("consumer{}", place % 2).into_bytes().into();
            let active_at = (place % 2 == 0).then_some(12);
            group.consumers.insert(consumer.clone(), Consumer { seen_at: 9, active_at });
            group.pending.put(id, Pending { consumer, delivered_at: 11, count: place as u64 });
            group.last = id;
        }
        stream.groups.insert(words[0].clone(), group);
        stream
    })
}

fn value() -> impl Strategy<Value = Value> {
    let score = any::<f64>().prop_filter("a score", |score| !score.is_nan());
    prop_oneof![
        word().prop_map(|word| Value::String(Bytes::from(word.into_vec()))),
        vec(word(), 1..40).prop_map(|words| Value::List(words.into_iter().collect())),
        btree_set(short(), 1..100)
            .prop_map(|words| { Value::Set(words.iter().map(|word| &**word).collect::<Set>()) }),
        btree_map(short(), word(), 1..40).prop_map(|pairs| {
            let mut hash = Hash::default();
            pairs.iter().for_each(|(field, value)| _ = hash.set(field, value));
            Value::Hash(hash)
        }),
        btree_map(short(), score, 1..40).prop_map(|pairs| {
            let mut set = SortedSet::default();
            pairs.iter().for_each(|(member, score)| _ = set.set(member, *score));
            Value::SortedSet(set)
        }),
        stream().prop_map(|stream| Value::Stream(Box::new(stream))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_written_is_read(value in value()) {
        let mut bytes = Vec::new();
        write_value(&mut bytes, value.as_ref());
        prop_assert_eq!(text(&read(&bytes).unwrap()), text(&value));
        for length in [0, 1, bytes.len() / 2, bytes.len() - 1] {
            prop_assert!(read(&bytes[..length]).is_err());
        }
    }
}

#[test]
fn what_valkey_wrote_is_read() {
    let items = items(SAMPLE).unwrap();
    let found: BTreeMap<(u64, &str), &Item> = items
        .iter()
        .map(|item| ((item.database, std::str::from_utf8(&item.key).unwrap()), item))
        .collect();
    let value = |name| &found[&(0, name)].value;
    let string = |name| match value(name) {
        Value::String(bytes) => bytes.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(string("string"), "value");
    assert_eq!(string("integer"), "-12345");
    assert_eq!(string("long"), "abcabcabc".repeat(100));
    assert_eq!(found[&(0, "expires")].expires_at, Some(4_102_444_800_000));
    assert!(matches!(&found[&(3, "other")].value, Value::String(bytes) if bytes == "database"));
    let length = |name| match value(name) {
        Value::List(list) => list.len(),
        Value::Set(set) => set.len(),
        Value::Hash(hash) => hash.len(),
        Value::SortedSet(set) => set.len(),
        Value::Stream(stream) => stream.len(),
        Value::String(bytes) => bytes.len(),
    };
    let lengths = [
        ("list", 6),
        ("long-list", 600),
        ("large-list", 2),
        ("integers", 4),
        ("set", 3),
        ("large-set", 200),
        ("hash", 2),
        ("large-hash", 600),
        ("zset", 3),
        ("large-zset", 200),
        ("stream", 148),
        ("emptied", 0),
    ];
    assert_eq!(lengths.map(|(name, _)| (name, length(name))), lengths);
    let Value::SortedSet(set) = value("zset") else { panic!() };
    assert_eq!((set.score(b"b"), set.score(b"c")), (Some(-2.5), Some(f64::INFINITY)));
    let Value::List(list) = value("long-list") else { panic!() };
    assert_eq!(list.get(599), Some(&b"element-599"[..]));
    check_stream(value("stream"));
}

fn check_stream(value: &Value) {
    let Value::Stream(stream) = value else { panic!() };
    assert_eq!((stream.added, stream.last), (150, StreamId { ms: 1150, number: 0 }));
    assert_eq!(stream.deleted_max, StreamId { ms: 1011, number: 1 });
    let fields = stream.get(StreamId { ms: 1002, number: 0 }).unwrap();
    let fields: Vec<&[u8]> = fields.iter().map(|word| &**word).collect();
    assert_eq!(fields, [&b"field"[..], b"2", b"other", b"v"]);
    assert_eq!(stream.get(StreamId { ms: 1003, number: 1 }).unwrap().len(), 2);
    let group = &stream.groups[&b"group"[..]];
    assert_eq!((group.pending.len(), group.consumers.len()), (4, 2));
    assert!(group.pending.range(..).all(|(_, pending)| &*pending.consumer == b"reader"));
    assert_eq!(stream.groups[&b"empty"[..]].last, stream.last);
}

#[test]
fn a_changed_byte_or_a_missing_end_is_noticed() {
    for place in (0..SAMPLE.len()).step_by(7) {
        let mut changed = SAMPLE.to_vec();
        changed[place] ^= 0x10;
        assert!(items(&changed).is_err(), "byte {place}");
        assert!(items(&SAMPLE[..place]).is_err(), "the first {place} bytes");
    }
}

#[test]
fn what_is_not_known_is_refused_by_name() {
    let file = |body: &[u8]| [b"REDIS0011".as_slice(), body, b"\xff\0\0\0\0\0\0\0\0"].concat();
    // The module `graphdata`, version 2, as the value of a key.
    let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let id = b"graphdata".iter().fold(0_u64, |id, letter| {
        id << 6 | letters.iter().position(|other| other == letter).unwrap() as u64
    });
    let id = (id << 10 | 2).to_be_bytes();
    let module = [&b"\x07\x03key\x81"[..], &id].concat();
    let text = |body: &[u8]| items(&file(body)).unwrap_err().to_string();
    assert!(text(&module).contains("the key 'key' has a value of the module graphdata"));
    assert!(text(b"\x16\x03key").contains("fields expire"));
    assert!(text(b"\x63\x03key").contains("kind 99"));
    assert!(items(b"REDIS9999").unwrap_err().to_string().contains("version 9999"));
    assert!(items(&file(b"")).unwrap().is_empty());
    assert!(items(b"something else").is_err());
}

#[test]
fn collections_without_elements_are_left_out_of_a_file() {
    let key = |kind: u8, name: &str, value: &[u8]| {
        [&[kind, name.len() as u8], name.as_bytes(), value].concat()
    };
    let time = [&b"\xfc"[..], &4_102_444_800_000_u64.to_le_bytes()].concat();
    let pack = b"\x07\x07\0\0\0\0\0\xff";
    let body = [
        time,
        key(1, "list", b"\0"),
        key(0, "kept", b"\x01v"),
        key(2, "set", b"\0"),
        key(16, "hash", pack),
        b"\xfe\x03".to_vec(),
        key(18, "quicklist", b"\0"),
        key(17, "zset", pack),
    ]
    .concat();
    let file = [&b"REDIS0011"[..], &body, b"\xff\0\0\0\0\0\0\0\0"].concat();
    let mut reader = RdbReader::new(&file[..]).unwrap();
    let kept = reader.next_item().unwrap().unwrap();
    assert_eq!((&kept.key[..], kept.expires_at), (&b"kept"[..], None));
    assert!(reader.next_item().unwrap().is_none());
    let empty = [(0, "list"), (0, "set"), (0, "hash"), (3, "quicklist"), (3, "zset")];
    let empty = empty.map(|(database, key)| (database, key.as_bytes().to_vec()));
    assert_eq!(reader.into_empty(), empty);
    assert!(read(b"\x01\0").is_err(), "a value on its own");
}

#[test]
fn damage_is_told_with_its_key_and_place() {
    let file = |body: &[u8]| [b"REDIS0011".as_slice(), body].concat();
    let stored_twice = file(b"\x00\x01a\x01v\x02\x03k\xff1\x02\x01m\x01m");
    for (bytes, expected) in [
        (
            &stored_twice[..],
            "a set has a member twice, in the value of the key 'k\\xff1', noticed at byte 24",
        ),
        (
            &stored_twice[..22],
            "it ends early, in the value of the key 'k\\xff1', noticed at byte 22",
        ),
        (&stored_twice[..14], "it ends early, noticed at byte 14"),
        (
            &file(b"\xff\x01\0\0\0\0\0\0\0")[..],
            "the sum at its end is another one, noticed at byte 18",
        ),
        (b"REDIS", "it ends early, noticed at byte"),
    ] {
        let error = items(bytes).unwrap_err().to_string();
        assert!(error.starts_with(&format!("damaged: {expected}")), "{error}, and not {expected}");
        assert!(error.contains("valkey-check-rdb"), "{error}");
    }
}
