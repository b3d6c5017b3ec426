//! Converts the pickle machine's nodes to a tree of values.
//!
//! A node that is referred to twice becomes two values, so values are counted here. The conversion
//! recurses, no deeper than the limit allows.

use std::borrow::Cow;
use std::collections::HashSet;

use crate::node::{Node, NodeId, ObjectNode};
use crate::purpose::Purpose;
use crate::{Limits, Object, PickleError, Value};

/// An instance takes as much memory as so many other values.
const CYCLE_VALUES: usize = 4;

/// The state of a conversion.
pub(crate) struct Tree<'n, 'a> {
    nodes: &'n [Node<'a>],
    /// How many more values may be made.
    left: usize,
    limits: Limits,
    /// Containers made so far, if sharing is refused.
    made: Option<HashSet<u32>>,
    /// The containers that are being made, each within the one before, if one within itself is
    /// described.
    open: Option<Vec<NodeId>>,
    /// Nesting depth of persistent references; their ids may share values.
    references: usize,
    /// Whether a call that stands for bytes in protocols 0 to 2 becomes bytes.
    calls_make_bytes: bool,
}

impl<'n, 'a> Tree<'n, 'a> {
    pub(crate) fn new(nodes: &'n [Node<'a>], limits: Limits, purpose: Purpose) -> Tree<'n, 'a> {
        let made = (purpose == Purpose::Exact).then(HashSet::new);
        let open = (purpose == Purpose::Show).then(Vec::new);
        let calls_make_bytes = purpose == Purpose::Extension;
        Tree { nodes, left: limits.nodes, limits, made, open, references: 0, calls_make_bytes }
    }

    /// The value of a node inside of `depth` containers.
    pub(crate) fn value(&mut self, id: NodeId, depth: usize) -> Result<Value<'a>, PickleError> {
        self.spend(1)?;
        self.counted_value(id, depth)
    }

    /// As [`Tree::value`], for a node that was counted already.
    fn counted_value(&mut self, id: NodeId, depth: usize) -> Result<Value<'a>, PickleError> {
        let nodes = self.nodes;
        // Only `Machine::push` makes ids, so the node always exists.
        let Some(node) = nodes.get(id.0 as usize) else { return Ok(Value::None) };
        if depth > self.limits.nesting {
            return Err(PickleError::TooDeep { limit: self.limits.nesting });
        }
        if !matches!(node, Node::List(_) | Node::Dict(_) | Node::Object(_)) {
            return self.value_of(node, depth);
        }
        self.note_made(id)?;
        if let Some(open) = &mut self.open {
            if let Some(levels) = open.iter().rev().position(|container| *container == id) {
                self.spend(CYCLE_VALUES)?;
                return Ok(Value::Object(Box::new(Object::cycle(levels))));
            }
            open.push(id);
        }
        let value = self.value_of(node, depth);
        if let Some(open) = &mut self.open {
            open.pop();
        }
        value
    }

    fn value_of(&mut self, node: &'n Node<'a>, depth: usize) -> Result<Value<'a>, PickleError> {
        match node {
            Node::Leaf(leaf) => self.leaf(leaf),
            Node::List(ids) => self.values(ids, depth).map(Value::List),
            Node::Tuple(ids) => self.values(ids, depth).map(Value::Tuple),
            Node::Dict(ids) => self.entries(ids, depth).map(Value::Dict),
            Node::Object(object) => {
                let object = self.object(object, depth)?;
                if self.calls_make_bytes
                    && let Some(bytes) = bytes_made(&object)
                {
                    self.spend(bytes.len() / size_of::<Value<'_>>())?;
                    return Ok(Value::from(bytes));
                }
                Ok(Value::Object(Box::new(object)))
            }
            Node::Persistent(id) => {
                self.references += 1;
                let id = self.value(*id, depth + 1);
                self.references -= 1;
                id.map(|id| Value::Persistent(Box::new(id)))
            }
        }
    }

    fn note_made(&mut self, id: NodeId) -> Result<(), PickleError> {
        let Some(made) = &mut self.made else { return Ok(()) };
        match self.references > 0 || made.insert(id.0) {
            true => Ok(()),
            false => Err(PickleError::Inexact { what: "an object that two others share" }),
        }
    }

    fn leaf(&mut self, leaf: &Value<'a>) -> Result<Value<'a>, PickleError> {
        // A leaf that owns its bytes is copied for each reference to it.
        match leaf {
            Value::Bytes(Cow::Owned(bytes)) | Value::BigInt(Cow::Owned(bytes)) => {
                self.spend(bytes.len() / size_of::<Value<'_>>())?;
            }
            Value::Str(Cow::Owned(text)) => self.spend(text.len() / size_of::<Value<'_>>())?,
            _ => {}
        }
        Ok(leaf.clone())
    }

    fn spend(&mut self, count: usize) -> Result<(), PickleError> {
        match self.left.checked_sub(count) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(PickleError::TooManyNodes { limit: self.limits.nodes }),
        }
    }

    fn values(&mut self, ids: &[NodeId], depth: usize) -> Result<Vec<Value<'a>>, PickleError> {
        // All are counted before there is room for them: a list may contain itself first.
        self.spend(ids.len())?;
        let mut values = Vec::with_capacity(ids.len());
        for id in ids {
            values.push(self.counted_value(*id, depth + 1)?);
        }
        Ok(values)
    }

    fn entries(
        &mut self,
        ids: &[NodeId],
        depth: usize,
    ) -> Result<Vec<(Value<'a>, Value<'a>)>, PickleError> {
        self.spend(ids.len())?;
        let mut entries = Vec::with_capacity(ids.len() / 2);
        for entry in ids.chunks_exact(2) {
            if let [key, value] = entry {
                let key = self.counted_value(*key, depth + 1)?;
                entries.push((key, self.counted_value(*value, depth + 1)?));
            }
        }
        Ok(entries)
    }

    fn object(&mut self, object: &ObjectNode, depth: usize) -> Result<Object<'a>, PickleError> {
        Ok(Object {
            construction: object.construction,
            callable: self.value(object.callable, depth + 1)?,
            arguments: self.value(object.arguments, depth + 1)?,
            items: self.values(&object.items, depth)?,
            entries: self.entries(&object.entries, depth)?,
            state: match object.state {
                Some(state) => Some(self.value(state, depth + 1)?),
                None => None,
            },
        })
    }
}

/// The bytes that a call stands for: Python 3 writes one for bytes in protocols 0 to 2.
fn bytes_made(call: &Object<'_>) -> Option<Vec<u8>> {
    let callable = call.callable.as_global()?;
    match (callable.module(), callable.name(), call.arguments.as_sequence()?) {
        ("__builtin__" | "builtins", "bytes", []) => Some(Vec::new()),
        ("_codecs", "encode", [Value::Str(text), Value::Str(codec)]) if codec == "latin1" => {
            text.chars().map(|character| u8::try_from(character).ok()).collect()
        }
        _ => None,
    }
}
