//! RDB files of Redis and Valkey.

use zodium_keyspace::Value;
use zodium_rdb::{Input, RdbReader, read_value, write_value};

use super::Target;

pub(super) const FILES: Target = Target {
    name: "rdb-files",
    seeds: || {
        let whole: &[u8] = include_bytes!("../../../rdb/tests/samples/dump.rdb");
        // A stream with a group, and a sorted set, each alone in a file without a sum.
        let file = |body: &[u8]| [b"REDIS0009", body, b"\xff\0\0\0\0\0\0\0\0"].concat();
        vec![
            whole.to_vec(),
            file(b"\x00\x01k\x01v"),
            file(b"\x03\x01k\x01\x01m\x031.5"),
            file(b"\x0b\x01k\x0a\x02\0\0\0\x01\0\0\0\x05\0"),
            file(b"\x0a\x01k\x0d\x0d\0\0\0\x0a\0\0\0\x01\0\0\xf2\xff"),
            file(b"\xfc\0\0\0\0\0\0\0\x01\x12\x01k\x01\x01\x01e"),
            file(b"\x00\x01k\xc3\x06\x0c\x01ab\xe0\x01\x01"),
        ]
    },
    check,
    // A byte of a compressed string can stand for 88, and an element of one byte has a place of
    // its own.
    memory_bytes_max: |length| (1 << 20) + 1500 * length,
};

/// What is read is written and read again.
fn check(input: &[u8]) {
    let Ok(mut reader) = RdbReader::new(input) else { return };
    while let Ok(Some(item)) = reader.next_item() {
        let mut bytes = Vec::new();
        write_value(&mut bytes, item.value.as_ref());
        assert!(!bytes.is_empty(), "nothing is written");
        let kind = bytes.remove(0);
        let mut rest = &bytes[..];
        let again = read_value(kind, &mut Input::new(&mut rest));
        assert!(again.is_ok_and(|again| are_equal(&again, &item.value)));
        assert!(rest.is_empty());
    }
}

fn are_equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::String(one), Value::String(other)) => one == other,
        (Value::List(one), Value::List(other)) => one.iter().eq(other.iter()),
        (Value::Hash(one), Value::Hash(other)) => {
            one.len() == other.len()
                && one.iter().all(|(field, value)| other.get(field) == Some(value))
        }
        (Value::Set(one), Value::Set(other)) => {
            one.len() == other.len() && one.iter().all(|member| other.contains(member))
        }
        (Value::SortedSet(one), Value::SortedSet(other)) => one.upwards(0).eq(other.upwards(0)),
        (Value::Stream(one), Value::Stream(other)) => one == other,
        _ => false,
    }
}
