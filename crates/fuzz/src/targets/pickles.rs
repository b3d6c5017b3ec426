//! Pickles as data: single pickles, and records with two.

use std::collections::BTreeSet;

use zodium_pickle::{
    Limits, Reference, Value, class_of_record, decode, decode_record, encode, references_of_record,
};

use super::values::{each_value, has_nan};
use super::{Target, linear};

/// Memory of a million values.
const VALUES_BYTES_MAX: usize = 192 << 20;

pub(super) const VALUES: Target = Target {
    name: "pickles",
    seeds,
    check: check_value,
    memory_bytes_max: |length| VALUES_BYTES_MAX + linear(length),
};

pub(super) const RECORDS: Target = Target {
    name: "records",
    seeds,
    check: check_record,
    memory_bytes_max: |length| VALUES_BYTES_MAX + linear(length),
};

/// Data records, and pickles of every protocol with various opcodes.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let seeds: [&[u8]; 14] = [
        b"\x80\x03cpersistent.mapping\nPersistentMapping\nq\x01.\x80\x03}q\x02X\x04\0\0\0dataq\x03}\
          q\x04X\x04\0\0\0treeq\x05C\x08\0\0\0\0\0\0\0\x01q\x06cBTrees.OOBTree\nOOBTree\nq\x07\x86q\
          \x08Qss.",
        b"\x80\x03cBTrees.OOBTree\nOOBTree\nq\0.\x80\x03((((X\x01\0\0\0aK\x01X\x01\0\0\0bK\x02\
          tttt.",
        b"\x80\x03cBTrees.Length\nLength\nq\0.\x80\x03K\x05.",
        b"\x80\x03(cm\nC\nC\x02abtq\0.\x80\x03N.",
        b"(U\x01mU\x01CtNt.(dU\x01ap1\nU\x08\0\0\0\0\0\0\0\x05p2\nPabc\n.",
        b"(lp0\nI1\naL2L\naF1.5\naS'x'\naVy\na.",
        b"(dp0\nS'a'\nI01\nsS'b'\n(I00\ntp1\ns.",
        b"\x80\x02]q\0(K\x01M\x01\x02J\xff\xff\xff\xff\x8a\x02\x01\x02G\x3f\xf8\0\0\0\0\0\0\x88\x89\
          e.",
        b"\x80\x04\x95\x1f\0\0\0\0\0\0\0\x8c\x01m\x94\x8c\x01C\x94\x93\x94)\x81\x94}\x94\x8c\x01a\
          \x94K\x01sb.",
        b"\x80\x04\x8f\x94(K\x01K\x02\x90.",
        b"\x80\x03cos\nsystem\nX\x02\0\0\0id\x85R.",
        b"\x80\x02](U\x01wU\x08\0\0\0\0\0\0\0\x05\x85eQ.",
        b"\x80\x02](U\x01m(U\x02dbU\x08\0\0\0\0\0\0\0\x05cm\nC\nteQ.",
        b"\x80\x03cm\nC\n)\x81q\0}q\x01X\x01\0\0\0ah\0sb.",
    ];
    seeds.iter().map(|seed| seed.to_vec()).collect()
}

/// A decoded pickle can be encoded, and decodes to the same again.
fn check_value(input: &[u8]) {
    let _ = decode(input, &Limits::PLAIN);
    let Ok((value, length)) = decode(input, &Limits::OBJECTS) else { return };
    assert!(length <= input.len());
    // Truncating what follows changes nothing.
    assert!(decode(&input[..length], &Limits::OBJECTS).is_ok());
    if has_nan(&value) {
        return;
    }
    let mut written = Vec::new();
    encode(&value, &mut written);
    if let Ok((again, length)) = decode(&written, &Limits { nodes: 1 << 22, ..Limits::OBJECTS }) {
        assert_eq!((again, length), (value, written.len()));
    }
}

/// A pack must not miss a reference that a full decoder of the record would find.
fn check_record(input: &[u8]) {
    let mut scanned = BTreeSet::new();
    let references = references_of_record(input, &mut |reference| {
        if let Reference::Strong(oid) = reference {
            scanned.insert(oid);
        }
    });
    let class = class_of_record(input);
    let Ok((metadata, state)) = decode_record(input, &Limits::OBJECTS) else { return };
    if let (Some(class), Value::Global(global)) = (class, &metadata) {
        assert_eq!((&*class.module, &*class.name), (global.module(), global.name()));
    }
    if references.is_err() {
        return;
    }
    for value in [&metadata, &state] {
        each_value(value, &mut |value| {
            let Value::Persistent(id) = value else { return };
            let oid = match &**id {
                Value::Tuple(parts) => parts.first().and_then(Value::as_oid),
                id => id.as_oid(),
            };
            assert!(oid.is_none_or(|oid| scanned.contains(&oid)), "missed: {oid:?} of {id:?}");
        });
    }
}
