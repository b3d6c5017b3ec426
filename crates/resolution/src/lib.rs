//! Conflict resolution of BTrees' buckets, sets and Length, without Python.
//!
//! [`resolve`] takes the three data records of a conflict, and returns the one that
//! `ZODB.ConflictResolution` would make of them. Two cases are left to the client, which has the
//! classes: classes of the application, and comparisons whose result is not certain from the
//! pickles alone.
//!
//! [`read_node`] and [`compare_keys`] are for checks of whole trees.
//!
//! Invariants: the state that Python loads from a resolved record equals that of Python's own
//! resolution; nothing is imported or executed; memory is linear in the records.
//!
//! Sources: `ZODB/ConflictResolution.py` (loading, references, writing), `BTrees/MergeTemplate.c`
//! and `BucketTemplate.c` (merging), `BTrees/Length.py`.

#![forbid(unsafe_code)]

mod bucket;
mod class;
mod column;
mod compare;
mod entry;
mod length;
mod merge;
mod node;
mod outcome;
mod tree;
mod weight;
mod writer;

use zodium_pickle::{Limits, Objects, Value, class_of_record, decode_record};

use class::{Class, Shape};
pub use node::{Leaf, Node, compare_keys, read_node};
pub use outcome::{Outcome, Reason};

/// Most nested containers; far more than anything in a bucket has.
const NESTING_MAX: usize = 100;
/// Most values of a state. Each takes 70 bytes while it is decoded, and may take only one in the
/// record: without a limit three records could take seventy times the memory of a message.
const VALUES_MAX: usize = 1 << 20;
/// How many times more text a state may mention than its pickle holds, since all of it is compared.
const GROWTH_MAX: usize = 32;

/// Resolves a conflict: `new` was made from `old`, and `committed` came first.
///
/// Each is a data record: the pickles of its class and of its state.
pub fn resolve(old: &[u8], committed: &[u8], new: &[u8]) -> Outcome {
    let name = class_of_record(new);
    let Some(class) = name.and_then(|name| Class::from_name(&name.module, &name.name)) else {
        return Outcome::NotOurs;
    };
    match resolve_states(&class, old, committed, new) {
        Ok(record) => Outcome::Resolved(record),
        Err(reason) => Outcome::Unresolvable(reason),
    }
}

fn resolve_states(
    class: &Class,
    old: &[u8],
    committed: &[u8],
    new: &[u8],
) -> Result<Vec<u8>, Reason> {
    let size = old.len().max(committed.len()).max(new.len());
    let (metadata, new) = read(class, new)?;
    let (_, old) = read(class, old)?;
    let (_, committed) = read(class, committed)?;
    let state = match class {
        Class::Length => length::resolve(&old, &committed, &new)?,
        Class::Node(family, shape) => {
            let leaf = family.leaf(*shape);
            match shape {
                Shape::Bucket | Shape::Set => bucket::resolve(leaf, old, committed, new)?,
                Shape::Tree | Shape::TreeSet => tree::resolve(leaf, old, committed, new)?,
            }
        }
    };
    Ok(writer::record(&metadata, &state, size))
}

/// Decodes class and state of a record of this class.
fn read<'a>(class: &Class, record: &'a [u8]) -> Result<(Value<'a>, Value<'a>), Reason> {
    // A value takes at least a byte of the pickle, unless it is fetched from the memo.
    let nodes = record.len().min(VALUES_MAX);
    let limits = Limits { nesting: NESTING_MAX, nodes, objects: Objects::Allowed };
    let (metadata, state) = decode_record(record, &limits)?;
    match Class::from_metadata(&metadata) {
        Some(found) if found == *class => {}
        _ => return Err(Reason::OtherClass),
    }
    match weight::weight(&state) > record.len().saturating_mul(GROWTH_MAX) {
        true => Err(Reason::Uncertain("it mentions long text again and again")),
        false => Ok((metadata, state)),
    }
}
