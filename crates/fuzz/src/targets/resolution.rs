//! Conflicts between hostile records.

use zodium_pickle::{Limits, decode_record};
use zodium_resolution::{Outcome, resolve};

use super::{Target, linear};

/// Separates the three records of an input.
const SEPARATOR: &[u8] = b"|||";

pub(super) const RESOLUTION: Target = Target {
    name: "resolution",
    seeds,
    check,
    memory_bytes_max: |length| (16 << 20) + 64 * linear(length),
};

fn seeds() -> Vec<Vec<u8>> {
    let bucket = |items: &str| {
        let mut record = b"\x80\x03cBTrees.OOBTree\nOOBucket\nq\0.\x80\x03((".to_vec();
        for item in items.bytes() {
            record.extend_from_slice(&[b'X', 1, 0, 0, 0, item]);
        }
        record.extend_from_slice(b"tt.");
        record
    };
    let length = |number: u8| {
        [&b"\x80\x03cBTrees.Length\nLength\nq\0.\x80\x03K"[..], &[number, b'.']].concat()
    };
    let set = |members: &[u8]| {
        let mut record = b"\x80\x03cBTrees.IIBTree\nIITreeSet\nq\0.\x80\x03((((".to_vec();
        members.iter().for_each(|member| record.extend_from_slice(&[b'K', *member]));
        record.extend_from_slice(b"tttt.");
        record
    };
    let cases = [
        [bucket("a1c3"), bucket("a1b2c3"), bucket("a1c3d4")],
        [bucket("a1"), bucket(""), bucket("a2")],
        [length(5), length(7), length(4)],
        [set(&[1, 5]), set(&[1, 3, 5]), set(&[5, 9])],
    ];
    cases.iter().map(|case| case.join(SEPARATOR)).collect()
}

/// A resolved record can be read, and is not much longer than its inputs.
fn check(input: &[u8]) {
    let mut records = split(input);
    let mut next = || records.next().unwrap_or_default();
    let (old, committed, new) = (next(), next(), next());
    if let Outcome::Resolved(record) = resolve(old, committed, new) {
        assert!(record.len() <= 64 * (input.len() + 1), "{} bytes", record.len());
        assert!(decode_record(&record, &Limits::OBJECTS).is_ok(), "{record:?}");
    }
}

fn split(mut input: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        if input.is_empty() {
            return None;
        }
        let found = input.windows(SEPARATOR.len()).position(|window| window == SEPARATOR);
        let (record, rest) = match found {
            Some(at) => (&input[..at], &input[at + SEPARATOR.len()..]),
            None => (input, &[][..]),
        };
        input = rest;
        Some(record)
    })
}
