//! What is kept of the nodes of all BTrees.

use std::cmp::Ordering;

use rustc_hash::FxHashMap;
use zodium_pickle::Value;
use zodium_resolution::{Leaf, Node, compare_keys, read_node};
use zodium_types::Oid;

use super::damage::BTreeDamage;
use crate::ToolError;
use crate::classes::class_of;
use crate::references::CurrentObjects;

/// Module of the classes of BTrees, as the names in a record begin.
const MODULE: &[u8] = b"BTrees.";
/// Bytes at the start of a record that hold the name of its class.
const NAME_BYTES: usize = 16;

/// A node, without the keys that only concern itself.
pub(super) enum Kept {
    Inner { children: Vec<Oid>, keys: Vec<Value<'static>>, first: Oid },
    Leaf { bounds: Option<(Value<'static>, Value<'static>)>, next: Option<Oid> },
    Unread { is_leaf: bool },
}

/// All nodes with references to others, and leaves; numbers of all.
#[derive(Default)]
pub(super) struct Nodes {
    pub(super) all: FxHashMap<Oid, Kept>,
    /// Trees, those without children included.
    pub(super) trees: u64,
    pub(super) leaves: u64,
    pub(super) keys: u64,
    /// Keys whose order only Python knows.
    pub(super) uncertain: u64,
    /// Nodes that are whole, but no plain data.
    pub(super) unread: u64,
    /// Whether one of them is a tree, whose children are unknown.
    pub(super) has_unread_tree: bool,
}

impl Nodes {
    /// Reads all current objects. `report` is told of damage within a node.
    pub(super) fn of(
        objects: &CurrentObjects<'_>,
        report: &mut dyn FnMut(BTreeDamage) -> Result<(), ToolError>,
    ) -> Result<Nodes, ToolError> {
        let mut nodes = Nodes::default();
        objects.each(&mut |object| {
            let start = &object.data[..object.data.len().min(NAME_BYTES)];
            if !start.windows(MODULE.len()).any(|window| window == MODULE) {
                return Ok(());
            }
            let damage = |what: String| {
                let class = class_of(object.data);
                BTreeDamage { oid: object.oid, class: Some(class), what }
            };
            match read_node(object.data) {
                None => Ok(()),
                Some(Err(what)) => report(damage(what)),
                Some(Ok(node)) => match nodes.add(object.oid, node) {
                    None => Ok(()),
                    Some(what) => report(damage(what)),
                },
            }
        })?;
        Ok(nodes)
    }

    /// Adds a node; what is wrong with it.
    fn add(&mut self, oid: Oid, node: Node<'_>) -> Option<String> {
        match node {
            Node::Empty => {
                self.trees += 1;
                None
            }
            Node::Single(leaf) => {
                self.trees += 1;
                let next = leaf.next.map(|_| "its only bucket has a next one".to_owned());
                self.check_order(&leaf.keys).or(next).or_else(|| empty(&leaf))
            }
            Node::Leaf(leaf) => {
                self.leaves += 1;
                let wrong = self.check_order(&leaf.keys);
                let ends = leaf.keys.first().cloned().zip(leaf.keys.last().cloned());
                let bounds = ends.map(|(first, last)| (first.into_owned(), last.into_owned()));
                self.all.insert(oid, Kept::Leaf { bounds, next: leaf.next });
                wrong
            }
            Node::Inner { children, keys, first } => {
                self.trees += 1;
                let wrong = self.check_order(&keys);
                let keys = keys.into_iter().map(Value::into_owned).collect();
                self.all.insert(oid, Kept::Inner { children, keys, first });
                wrong
            }
            Node::Unread { is_leaf } => {
                self.unread += 1;
                self.has_unread_tree |= !is_leaf;
                self.all.insert(oid, Kept::Unread { is_leaf });
                None
            }
        }
    }

    /// What is wrong with the order of keys.
    fn check_order(&mut self, keys: &[Value<'_>]) -> Option<String> {
        self.keys += keys.len() as u64;
        for (position, pair) in keys.windows(2).enumerate() {
            match compare_keys(&pair[0], &pair[1]) {
                Some(Ordering::Less) => {}
                Some(Ordering::Equal) => {
                    return Some(format!("keys {position} and {} are equal", position + 1));
                }
                Some(Ordering::Greater) => {
                    return Some(format!("key {} is smaller than the one before it", position + 1));
                }
                None => self.uncertain += 1,
            }
        }
        None
    }
}

/// The only bucket of a tree has keys.
fn empty(leaf: &Leaf<'_>) -> Option<String> {
    leaf.keys.is_empty().then(|| "its only bucket is empty".to_owned())
}
