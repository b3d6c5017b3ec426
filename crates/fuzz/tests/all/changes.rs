//! Random changes of known inputs, in ways that decoders are sensitive to.
//!
//! They stand in for libFuzzer where tests run on stable Rust, and know nothing of coverage.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// Largest input; larger ones only take longer.
const INPUT_BYTES_MAX: usize = 64 << 10;
/// Most changes of one input.
const CHANGES_MAX: usize = 6;
/// Numbers at limits, for places that may hold a length.
const LIMITS: [u64; 11] = [
    0,
    1,
    0x7f,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    1 << 32,
    i64::MAX as u64,
    u64::MAX,
];

/// One change, at a place of the input.
#[derive(Clone, Debug)]
enum Change {
    Flip(u8),
    Number(Vec<u8>),
    Insert(Vec<u8>),
    Remove(usize),
    Repeat { length: usize, times: usize },
    Truncate,
}

/// One of the known inputs, changed.
pub(super) fn inputs(known: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let part = (select(known.clone()), any::<Index>(), 1..128_usize);
    let part = part.prop_map(|(known, at, length)| part_of(&known, at, length).to_vec());
    let changes = vec((any::<Index>(), change(part)), 0..=CHANGES_MAX);
    (select(known), changes).prop_map(|(mut input, changes)| {
        changes.iter().for_each(|(at, change)| apply(change, *at, &mut input));
        input.truncate(INPUT_BYTES_MAX);
        input
    })
}

fn change(part: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Change> {
    let number = (select(&LIMITS), select(&[1, 2, 4, 8]), any::<bool>());
    let number = number.prop_map(|(number, width, is_little)| {
        let mut bytes = number.to_be_bytes()[8 - width..].to_vec();
        if is_little {
            bytes.reverse();
        }
        Change::Number(bytes)
    });
    // Enough to be beyond any limit of nesting.
    let times = prop_oneof![8 => 1..4_usize, 1 => Just(300), 1 => Just(10_000)];
    prop_oneof![
        4 => any::<u8>().prop_map(Change::Flip),
        2 => number,
        1 => any::<u8>().prop_map(|byte| Change::Insert(vec![byte])),
        2 => part.prop_map(Change::Insert),
        1 => (1..128_usize).prop_map(Change::Remove),
        1 => (1..128_usize, times).prop_map(|(length, times)| Change::Repeat { length, times }),
        1 => Just(Change::Truncate),
    ]
}

/// At most `length` bytes; none of an empty input.
fn part_of(input: &[u8], at: Index, length: usize) -> &[u8] {
    if input.is_empty() {
        return input;
    }
    let rest = &input[at.index(input.len())..];
    &rest[..length.min(rest.len())]
}

fn apply(change: &Change, at: Index, input: &mut Vec<u8>) {
    let place = at.index(input.len() + 1);
    let rest = input.len() - place;
    match change {
        Change::Flip(bits) => input[place..].iter_mut().take(1).for_each(|byte| *byte ^= bits),
        Change::Number(bytes) => {
            let width = bytes.len().min(rest);
            input[place..place + width].copy_from_slice(&bytes[..width]);
        }
        Change::Insert(bytes) => drop(input.splice(place..place, bytes.iter().copied())),
        Change::Remove(length) => drop(input.drain(place..place + rest.min(*length))),
        Change::Repeat { length, times } => {
            let part = &input[place..place + rest.min(*length)];
            let room = INPUT_BYTES_MAX.saturating_sub(input.len()) / part.len().max(1);
            let repeated = part.repeat(room.min(*times));
            drop(input.splice(place..place, repeated));
        }
        Change::Truncate => input.truncate(place),
    }
}
