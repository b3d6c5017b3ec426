//! Values of every type, made of random choices, for tests.

use std::sync::LazyLock;

use zodium_types::{Oid, Tid};

use crate::messages::OidList;
use crate::values::{
    CellState, Checksum, ClusterState, ErrorCode, NodeId, NodeState, NodeType, Partition, TableId,
    Value,
};
use crate::wire::Map;

/// A value made of choices.
pub(crate) trait Sample: Sized {
    fn sample(choices: &mut Choices<'_>) -> Self;
}

/// Random bytes, each a choice; zeros at the end. Fewer bytes make simpler values, so proptest can
/// shrink them.
pub(crate) struct Choices<'c>(&'c [u8]);

/// Data and texts borrow from here.
static POOL: LazyLock<Vec<u8>> =
    LazyLock::new(|| (0..70_000_u32).map(|at| (at * 31 % 251) as u8).collect());

static LONG_TEXT: LazyLock<String> = LazyLock::new(|| "d\u{e9}j\u{e0} vu ".repeat(60));

/// Lengths on both sides of msgpack's limits.
const LENGTHS: [usize; 12] = [0, 1, 4, 8, 20, 31, 32, 255, 256, 300, 65_535, 65_536];

impl<'c> Choices<'c> {
    pub(crate) fn new(bytes: &'c [u8]) -> Choices<'c> {
        Choices(bytes)
    }

    fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((byte, rest)) => {
                self.0 = rest;
                *byte
            }
            None => 0,
        }
    }

    fn below(&mut self, end: usize) -> usize {
        usize::from(self.byte()) % end
    }

    /// A number of up to 64 bits; small ones, and those at limits, are likely.
    fn number(&mut self) -> u64 {
        let bits = u32::from(self.byte()) % 65;
        let bytes: [u8; 8] = std::array::from_fn(|_| self.byte());
        let number = u64::from_be_bytes(bytes);
        match bits {
            0 => 0,
            _ => {
                let number = number >> (64 - bits);
                if self.byte() & 7 == 1 { (1 << (bits - 1)) - 1 } else { number }
            }
        }
    }

    /// The number of items of a list: seldom many.
    fn items(&mut self) -> usize {
        match self.byte() {
            255 => 70_000,
            254 => 300,
            byte => usize::from(byte) % 18,
        }
    }
}

macro_rules! numbers {
    ($($number:ident)*) => {
        $(
            impl Sample for $number {
                fn sample(choices: &mut Choices<'_>) -> $number {
                    choices.number() as $number
                }
            }
        )*
    };
}

numbers! { u8 u16 u32 u64 i64 }

macro_rules! wrappers {
    ($($wrapper:ident)*) => {
        $(
            impl Sample for $wrapper {
                fn sample(choices: &mut Choices<'_>) -> $wrapper {
                    $wrapper(Sample::sample(choices))
                }
            }
        )*
    };
}

wrappers! { Oid Tid Partition TableId OidList }

macro_rules! enumerations {
    ($($enumeration:ident)*) => {
        $(
            impl Sample for $enumeration {
                fn sample(choices: &mut Choices<'_>) -> $enumeration {
                    $enumeration::ALL[choices.below($enumeration::ALL.len())]
                }
            }
        )*
    };
}

enumerations! { CellState ClusterState ErrorCode NodeState NodeType }

impl Sample for bool {
    fn sample(choices: &mut Choices<'_>) -> bool {
        choices.byte() & 1 == 1
    }
}

impl Sample for f64 {
    fn sample(choices: &mut Choices<'_>) -> f64 {
        choices.number() as f64 / 1024.0
    }
}

impl Sample for Checksum {
    fn sample(choices: &mut Choices<'_>) -> Checksum {
        Checksum(std::array::from_fn(|_| choices.byte()))
    }
}

impl Sample for NodeId {
    fn sample(choices: &mut Choices<'_>) -> NodeId {
        let kind = NodeType::sample(choices);
        NodeId::of(kind, 1 + (choices.number() & 0xfff) as u32).unwrap()
    }
}

impl Sample for &[u8] {
    fn sample(choices: &mut Choices<'_>) -> Self {
        let length = LENGTHS[choices.below(LENGTHS.len())];
        &POOL[choices.below(256)..][..length]
    }
}

impl Sample for &str {
    fn sample(choices: &mut Choices<'_>) -> Self {
        ["", "test", "upstream", "127.0.0.1", "::1", "caf\u{e9}", &LONG_TEXT][choices.below(7)]
    }
}

impl Sample for String {
    fn sample(choices: &mut Choices<'_>) -> String {
        <&str>::sample(choices).to_owned()
    }
}

impl<T: Sample> Sample for Option<T> {
    fn sample(choices: &mut Choices<'_>) -> Option<T> {
        bool::sample(choices).then(|| T::sample(choices))
    }
}

impl<T: Sample> Sample for Vec<T> {
    fn sample(choices: &mut Choices<'_>) -> Vec<T> {
        (0..choices.items()).map(|_| T::sample(choices)).collect()
    }
}

/// Maps have no equal keys: Python would keep only one of them.
impl<K: Sample + PartialEq, V: Sample> Sample for Map<K, V> {
    fn sample(choices: &mut Choices<'_>) -> Map<K, V> {
        let mut entries: Vec<(K, V)> = Vec::new();
        for _ in 0..choices.items().min(300) {
            let key = K::sample(choices);
            if entries.iter().all(|(other, _)| *other != key) {
                entries.push((key, V::sample(choices)));
            }
        }
        Map(entries)
    }
}

impl Sample for Value<'_> {
    fn sample(choices: &mut Choices<'_>) -> Self {
        value(choices, 0)
    }
}

fn value<'a>(choices: &mut Choices<'_>, depth: usize) -> Value<'a> {
    let kinds = if depth < 3 { 8 } else { 6 };
    match choices.below(kinds) {
        0 => Value::Nil,
        1 => Value::Bool(bool::sample(choices)),
        2 => Value::Int(i64::sample(choices)),
        3 => Value::Float(f64::sample(choices)),
        4 => Value::Bytes(Sample::sample(choices)),
        5 => Value::Extension { kind: 0, payload: [b"\0", b"\x01"][choices.below(2)] },
        6 => Value::Array((0..choices.below(6)).map(|_| value(choices, depth + 1)).collect()),
        _ => {
            let entries = (0..choices.below(6) as i64).map(Value::Int);
            Value::Map(entries.map(|key| (key, value(choices, depth + 1))).collect())
        }
    }
}
