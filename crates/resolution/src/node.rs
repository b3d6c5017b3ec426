//! The nodes of BTrees as their records describe them, for checks.

use std::cmp::Ordering;

use zodium_pickle::{Limits, Value, class_of_record, decode_record_to_show, is_whole_record};
use zodium_types::Oid;

use crate::Reason;
use crate::class::{Class, Shape};
use crate::column::Column;
use crate::compare::compare;

/// A node of a tree, or a bucket or set.
#[derive(Clone, Debug, PartialEq)]
pub enum Node<'a> {
    /// A tree without anything in it.
    Empty,
    /// A bucket or set.
    Leaf(Leaf<'a>),
    /// A tree with a single bucket, which is in its own record.
    Single(Leaf<'a>),
    /// A tree over other nodes.
    Inner {
        /// The children in order.
        children: Vec<Oid>,
        /// The smallest key that each child but the first may have.
        keys: Vec<Value<'a>>,
        /// The leaf with the smallest keys.
        first: Oid,
    },
    /// A whole record whose keys or values are no plain data: they contain themselves, say, or are
    /// text with bytes that are no text.
    Unread {
        /// Whether it is a bucket or set.
        is_leaf: bool,
    },
}

/// The content of a bucket or set.
#[derive(Clone, Debug, PartialEq)]
pub struct Leaf<'a> {
    /// The keys in order.
    pub keys: Vec<Value<'a>>,
    /// The leaf with the next larger keys.
    pub next: Option<Oid>,
}

/// Reads the record of a node of a BTree; `None` for records of other classes.
///
/// # Errors
/// Why no BTree has such a state.
pub fn read_node(record: &[u8]) -> Option<Result<Node<'_>, String>> {
    let name = class_of_record(record)?;
    let Class::Node(family, shape) = Class::from_name(&name.module, &name.name)? else {
        return None;
    };
    let leaf = family.leaf(shape);
    let nodes = Limits::OBJECTS.nodes.max(record.len());
    let state = match decode_record_to_show(record, &Limits { nodes, ..Limits::OBJECTS }) {
        Ok((_, state)) => state,
        Err(_) if is_whole_record(record) => {
            let is_leaf = matches!(shape, Shape::Bucket | Shape::Set);
            return Some(Ok(Node::Unread { is_leaf }));
        }
        Err(error) => return Some(Err(error.to_string())),
    };
    let node = match shape {
        Shape::Bucket | Shape::Set => leaf_of(leaf.keys, leaf.values, state).map(Node::Leaf),
        Shape::Tree | Shape::TreeSet => tree_of(leaf.keys, leaf.values, state),
    };
    Some(node.map_err(str::to_owned))
}

/// Compares two keys as BTrees does; `None` where only Python can tell.
pub fn compare_keys(one: &Value<'_>, other: &Value<'_>) -> Option<Ordering> {
    compare(one, other).ok()
}

fn leaf_of<'a>(
    keys: Column,
    values: Option<Column>,
    state: Value<'a>,
) -> Result<Leaf<'a>, &'static str> {
    let parts = match state {
        Value::None => return Ok(Leaf { keys: Vec::new(), next: None }),
        Value::Tuple(parts) if (1..=2).contains(&parts.len()) => parts,
        _ => return Err("the state of a bucket is no tuple of one or two parts"),
    };
    let mut parts = parts.into_iter();
    let Some(Value::Tuple(items)) = parts.next() else {
        return Err("the items of a bucket are no tuple");
    };
    let next = match parts.next() {
        None => None,
        Some(next) => Some(target(&next).ok_or("the next bucket is no reference")?),
    };
    if values.is_some() && !items.len().is_multiple_of(2) {
        return Err("a bucket has a key without a value");
    }
    let mut found = Vec::with_capacity(items.len());
    let mut items = items.into_iter();
    while let Some(key) = items.next() {
        found.push(keys.take(key).map_err(|_| "a key is not of the type of the tree")?);
        if let (Some(values), Some(value)) = (values, items.next())
            && let Err(Reason::Malformed(_)) = values.take(value)
        {
            return Err("a value is not of the type of the tree");
        }
    }
    Ok(Leaf { keys: found, next })
}

fn tree_of<'a>(
    keys: Column,
    values: Option<Column>,
    state: Value<'a>,
) -> Result<Node<'a>, &'static str> {
    let parts = match state {
        Value::None => return Ok(Node::Empty),
        Value::Tuple(parts) => parts,
        _ => return Err("the state of a tree is no tuple"),
    };
    let mut parts = parts.into_iter();
    let (Some(Value::Tuple(children)), first, None) = (parts.next(), parts.next(), parts.next())
    else {
        return Err("the state of a tree is no tuple of one or two parts");
    };
    let Some(first) = first else {
        let [bucket] = <[Value<'_>; 1]>::try_from(children)
            .map_err(|_| "a tree without a first bucket has not one child")?;
        return leaf_of(keys, values, bucket).map(Node::Single);
    };
    let first = target(&first).ok_or("the first bucket of a tree is no reference")?;
    if children.len().is_multiple_of(2) {
        return Err("a tree has not one child more than keys");
    }
    let (mut oids, mut separators) = (Vec::new(), Vec::new());
    for (position, item) in children.into_iter().enumerate() {
        match position.is_multiple_of(2) {
            true => oids.push(target(&item).ok_or("a child of a tree is no reference")?),
            false => separators
                .push(keys.take(item).map_err(|_| "a key is not of the type of the tree")?),
        }
    }
    Ok(Node::Inner { children: oids, keys: separators, first })
}

/// The object of this database that a reference leads to.
fn target(value: &Value<'_>) -> Option<Oid> {
    let Value::Persistent(id) = value else { return None };
    match &**id {
        Value::Tuple(parts) => parts.first()?.as_oid(),
        id => id.as_oid(),
    }
}
