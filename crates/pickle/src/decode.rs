//! The pickle machine: operations in, a [`Value`] out.
//!
//! It runs in two steps. The first fills a flat arena of nodes that refer to each other by
//! number, because a memoized list may be mentioned before it is filled; nothing recurses, so
//! no nesting can hurt. The second turns the root into a tree, recursing no deeper than the
//! limit allows and counting every copy that the memo causes.

use std::borrow::Cow;

use crate::memo::Memo;
use crate::operation::{Operation, Reader};
use crate::plain::decode_plain;
use crate::text::{parse_decimal, parse_float, unescape_unicode, unquote};
use crate::{Construction, Global, Object, PickleError, Value};

/// Deeper nesting is refused whatever [`Limits::nesting`] says: building a tree recurses.
const NESTING_MAX: usize = 1000;

/// What a pickle may demand.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Containers within containers; never more than 1000.
    pub nesting: usize,
    /// Values in all, each copy of a memoized one counted. A value takes some 60 bytes.
    pub nodes: usize,
    /// Classes, instances and persistent references.
    pub objects: Objects,
}

/// Which classes, instances and persistent references a pickle may mention.
#[derive(Clone, Copy, Debug)]
pub enum Objects {
    /// None at all.
    Refused,
    /// These `(module, name)`s and their instances, and no persistent references.
    Only(&'static [(&'static str, &'static str)]),
    /// Any, all as data.
    Allowed,
}

impl Limits {
    /// A million plain values.
    pub const PLAIN: Limits = Limits { nesting: 100, nodes: 1 << 20, objects: Objects::Refused };

    /// A million values of any kind.
    pub const OBJECTS: Limits = Limits { nesting: 200, nodes: 1 << 20, objects: Objects::Allowed };
}

/// Reads the pickle that `bytes` begin with; gives its value and its length in bytes.
///
/// Time and memory are bounded by the length of `bytes` and by `limits`, whatever lengths the
/// pickle declares.
pub fn decode<'a>(bytes: &'a [u8], limits: &Limits) -> Result<(Value<'a>, usize), PickleError> {
    if let Some(decoded) = decode_plain(bytes, limits) {
        return Ok(decoded);
    }
    decode_fully(bytes, limits)
}

/// Reads any pickle.
fn decode_fully<'a>(bytes: &'a [u8], limits: &Limits) -> Result<(Value<'a>, usize), PickleError> {
    let mut machine = Machine::new(bytes, limits);
    let value = machine.value()?;
    Ok((value, machine.reader.position()))
}

/// Reads a data record: the pickles of its class metadata and of its state.
///
/// They cannot be read apart, because the second may fetch what the first memoized.
pub fn decode_record<'a>(
    record: &'a [u8],
    limits: &Limits,
) -> Result<(Value<'a>, Value<'a>), PickleError> {
    let mut machine = Machine::new(record, limits);
    let metadata = machine.value()?;
    Ok((metadata, machine.value()?))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NodeId(u32);

enum Node<'a> {
    /// Anything without parts.
    Leaf(Value<'a>),
    List(Vec<NodeId>),
    Tuple(Vec<NodeId>),
    /// Keys and values in turn.
    Dict(Vec<NodeId>),
    Object(Box<ObjectNode>),
    Persistent(NodeId),
}

struct ObjectNode {
    construction: Construction,
    callable: NodeId,
    arguments: NodeId,
    items: Vec<NodeId>,
    /// Keys and values in turn.
    entries: Vec<NodeId>,
    state: Option<NodeId>,
}

struct Machine<'a> {
    reader: Reader<'a>,
    limits: Limits,
    nodes: Vec<Node<'a>>,
    stack: Vec<NodeId>,
    /// Heights of the stack at each open mark. What lies below the last one is out of reach.
    marks: Vec<usize>,
    memo: Memo<NodeId>,
}

impl<'a> Machine<'a> {
    fn new(bytes: &'a [u8], limits: &Limits) -> Machine<'a> {
        let nesting = limits.nesting.min(NESTING_MAX);
        Machine {
            reader: Reader::new(bytes),
            limits: Limits { nesting, ..*limits },
            nodes: Vec::with_capacity(16),
            stack: Vec::with_capacity(16),
            marks: Vec::with_capacity(4),
            memo: Memo::with_capacity(0),
        }
    }

    /// Reads one pickle, up to its STOP. The memo stays for the next.
    fn value(&mut self) -> Result<Value<'a>, PickleError> {
        let root = loop {
            match self.reader.next()? {
                Operation::Stop => break self.pop()?,
                operation => self.step(operation)?,
            }
        };
        self.stack.clear();
        self.marks.clear();
        let mut tree = Tree { nodes: &self.nodes, left: self.limits.nodes, limits: self.limits };
        tree.value(root, 0)
    }

    fn step(&mut self, operation: Operation<'a>) -> Result<(), PickleError> {
        match operation {
            Operation::Nothing | Operation::Stop => Ok(()),
            Operation::Mark => self.mark(),
            Operation::Put(number) => self.memoize(Some(number)),
            Operation::Memoize => self.memoize(None),
            Operation::Fetch(number) => match self.memo.fetch(number) {
                Some(id) => self.push_id(id),
                None => Err(self.reader.malformed("nothing is memoized under this number")),
            },
            Operation::Pop => self.discard(),
            Operation::PopMark => self.pop_to_mark().map(drop),
            Operation::Duplicate => self.top().and_then(|id| self.push_id(id)),
            Operation::EmptyTuple => self.push(Node::Tuple(Vec::new())),
            Operation::EmptyList => self.push(Node::List(Vec::new())),
            Operation::EmptyDict => self.push(Node::Dict(Vec::new())),
            Operation::Tuple(length) => {
                let items = self.pop_many(length)?;
                self.push(Node::Tuple(items))
            }
            Operation::TupleFromMark => self.pop_to_mark().and_then(|i| self.push(Node::Tuple(i))),
            Operation::ListFromMark => self.pop_to_mark().and_then(|i| self.push(Node::List(i))),
            Operation::DictFromMark => {
                let entries = self.pop_to_mark()?;
                self.check_pairs(&entries)?;
                self.push(Node::Dict(entries))
            }
            Operation::Append => {
                let item = self.pop()?;
                self.append(&[item])
            }
            Operation::Appends | Operation::AddItems => {
                let items = self.pop_to_mark()?;
                self.append(&items)
            }
            Operation::SetItem => {
                let entry = self.pop_many(2)?;
                self.set(&entry)
            }
            Operation::SetItems => {
                let entries = self.pop_to_mark()?;
                self.set(&entries)
            }
            _ => self.step_object_or_leaf(operation),
        }
    }

    fn step_object_or_leaf(&mut self, operation: Operation<'a>) -> Result<(), PickleError> {
        match operation {
            Operation::Global { module, name } => self.push_global(module, name),
            Operation::StackGlobal => self.stack_global(),
            Operation::Reduce => self.construct(Construction::Call),
            Operation::New => self.construct(Construction::New),
            Operation::Instance { module, name } => {
                self.push_global(module, name)?;
                let callable = self.pop()?;
                let arguments = self.pop_to_mark()?;
                self.push_instance(callable, arguments)
            }
            Operation::InstanceFromMark => {
                let mut arguments = self.pop_to_mark()?;
                if arguments.is_empty() {
                    return Err(self.reader.malformed("an instance needs a class"));
                }
                let callable = arguments.remove(0);
                self.push_instance(callable, arguments)
            }
            Operation::EmptySet => self.push_set("set", None),
            Operation::FrozenSetFromMark => {
                let items = self.pop_to_mark()?;
                self.push_set("frozenset", Some(items))
            }
            Operation::Build => self.build(),
            Operation::Persistent => self.push_persistent(),
            Operation::PersistentLine(line) => {
                self.push_leaf(Value::Bytes(Cow::Borrowed(line)))?;
                self.push_persistent()
            }
            Operation::Extension | Operation::NewWithKeywords => Err(self.reader.unsupported()),
            _ => {
                let leaf = self.leaf(operation)?;
                self.push_leaf(leaf)
            }
        }
    }

    fn leaf(&self, operation: Operation<'a>) -> Result<Value<'a>, PickleError> {
        let (leaf, complaint) = match operation {
            Operation::None => (Some(Value::None), ""),
            Operation::Bool(truth) => (Some(Value::Bool(truth)), ""),
            Operation::Int(number) => (Some(Value::Int(number.into())), ""),
            Operation::Long(bytes) => (Some(Value::from_twos_complement(bytes)), ""),
            Operation::Float(number) => (Some(Value::Float(number)), ""),
            Operation::Bytes(bytes) => (Some(Value::Bytes(Cow::Borrowed(bytes))), ""),
            Operation::Text(bytes) => {
                let text = std::str::from_utf8(bytes).ok();
                (text.map(|text| Value::Str(Cow::Borrowed(text))), "text is not UTF-8")
            }
            Operation::Decimal(digits) => (parse_decimal(digits), "no decimal integer"),
            Operation::FloatLine(text) => (parse_float(text).map(Value::Float), "no float"),
            Operation::QuotedBytes(literal) => {
                (unquote(literal).map(Value::Bytes), "no quoted string")
            }
            Operation::EscapedText(line) => {
                (unescape_unicode(line).map(Value::Str), "no escaped Unicode text")
            }
            _ => return Err(self.reader.unsupported()),
        };
        leaf.ok_or_else(|| self.reader.malformed(complaint))
    }

    fn push(&mut self, node: Node<'a>) -> Result<(), PickleError> {
        let id = NodeId(self.nodes.len() as u32);
        if self.nodes.len() >= self.limits.nodes.min(u32::MAX as usize) {
            return Err(PickleError::TooManyNodes { limit: self.limits.nodes });
        }
        self.nodes.push(node);
        self.push_id(id)
    }

    fn push_leaf(&mut self, leaf: Value<'a>) -> Result<(), PickleError> {
        self.push(Node::Leaf(leaf))
    }

    fn push_id(&mut self, id: NodeId) -> Result<(), PickleError> {
        if self.stack.len() >= self.limits.nodes {
            return Err(PickleError::TooManyNodes { limit: self.limits.nodes });
        }
        self.stack.push(id);
        Ok(())
    }

    /// A container being filled opens at most two marks, so that more of them than this are too
    /// deep a nesting.
    fn mark(&mut self) -> Result<(), PickleError> {
        if self.marks.len() > 2 * self.limits.nesting {
            return Err(PickleError::TooDeep { limit: self.limits.nesting });
        }
        self.marks.push(self.stack.len());
        Ok(())
    }

    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn underflow(&self) -> PickleError {
        self.reader.malformed("the stack has too few items")
    }

    fn top(&self) -> Result<NodeId, PickleError> {
        match self.stack.last() {
            Some(id) if self.stack.len() > self.floor() => Ok(*id),
            _ => Err(self.underflow()),
        }
    }

    fn pop(&mut self) -> Result<NodeId, PickleError> {
        let id = self.top()?;
        self.stack.pop();
        Ok(id)
    }

    fn pop_many(&mut self, count: usize) -> Result<Vec<NodeId>, PickleError> {
        match self.stack.len().checked_sub(count) {
            Some(start) if start >= self.floor() => Ok(self.stack.drain(start..).collect()),
            _ => Err(self.underflow()),
        }
    }

    fn pop_to_mark(&mut self) -> Result<Vec<NodeId>, PickleError> {
        match self.marks.pop() {
            Some(start) => Ok(self.stack.drain(start..).collect()),
            None => Err(self.reader.malformed("there is no mark")),
        }
    }

    /// POP takes a mark away if it is on top, else an item.
    fn discard(&mut self) -> Result<(), PickleError> {
        if self.marks.last() == Some(&self.stack.len()) {
            self.marks.pop();
            return Ok(());
        }
        self.pop().map(drop)
    }

    fn memoize(&mut self, number: Option<u32>) -> Result<(), PickleError> {
        let id = self.top()?;
        match number {
            Some(number) => self.memo.put(number, id),
            None => self.memo.push(id),
        }
        Ok(())
    }

    fn top_node(&mut self) -> Result<Option<&mut Node<'a>>, PickleError> {
        let id = self.top()?;
        Ok(self.nodes.get_mut(id.0 as usize))
    }

    fn append(&mut self, items: &[NodeId]) -> Result<(), PickleError> {
        match self.top_node()? {
            Some(Node::List(list)) => list.extend_from_slice(items),
            Some(Node::Object(object)) => object.items.extend_from_slice(items),
            _ => return Err(self.reader.malformed("items are appended to what is no list")),
        }
        Ok(())
    }

    fn set(&mut self, entries: &[NodeId]) -> Result<(), PickleError> {
        self.check_pairs(entries)?;
        match self.top_node()? {
            Some(Node::Dict(dict)) => dict.extend_from_slice(entries),
            Some(Node::Object(object)) => object.entries.extend_from_slice(entries),
            _ => return Err(self.reader.malformed("entries are set in what is no dict")),
        }
        Ok(())
    }

    fn check_pairs(&self, entries: &[NodeId]) -> Result<(), PickleError> {
        match entries.len().is_multiple_of(2) {
            true => Ok(()),
            false => Err(self.reader.malformed("a dict has a key without a value")),
        }
    }

    fn push_global(&mut self, module: &'a [u8], name: &'a [u8]) -> Result<(), PickleError> {
        let texts = std::str::from_utf8(module).ok().zip(std::str::from_utf8(name).ok());
        let global = texts.and_then(|(module, name)| Global::new(module, name));
        let Some(global) = global else {
            return Err(self.reader.malformed("the name of a class is not text"));
        };
        self.check_allowed(&global)?;
        self.push_leaf(Value::Global(global))
    }

    fn check_allowed(&self, global: &Global<'_>) -> Result<(), PickleError> {
        let allowed = match self.limits.objects {
            Objects::Refused => false,
            Objects::Only(names) => names.contains(&(global.module(), global.name())),
            Objects::Allowed => true,
        };
        match allowed {
            true => Ok(()),
            false => Err(self.refused(global.to_string())),
        }
    }

    fn refused(&self, name: String) -> PickleError {
        PickleError::ObjectRefused { name, offset: self.reader.offset() }
    }

    fn stack_global(&mut self) -> Result<(), PickleError> {
        let name = self.pop()?;
        let module = self.pop()?;
        match (self.text(module), self.text(name)) {
            (Some(module), Some(name)) => self.push_global(module.as_bytes(), name.as_bytes()),
            _ => Err(self.reader.malformed("the name of a class is not text")),
        }
    }

    fn text(&self, id: NodeId) -> Option<&'a str> {
        match self.nodes.get(id.0 as usize) {
            Some(Node::Leaf(Value::Str(Cow::Borrowed(text)))) => Some(text),
            _ => None,
        }
    }

    fn construct(&mut self, construction: Construction) -> Result<(), PickleError> {
        let arguments = self.pop()?;
        let callable = self.pop()?;
        self.push_object(construction, callable, arguments)
    }

    fn push_instance(&mut self, class: NodeId, arguments: Vec<NodeId>) -> Result<(), PickleError> {
        self.push(Node::Tuple(arguments))?;
        let arguments = self.pop()?;
        self.push_object(Construction::Call, class, arguments)
    }

    fn push_object(
        &mut self,
        construction: Construction,
        callable: NodeId,
        arguments: NodeId,
    ) -> Result<(), PickleError> {
        self.push(Node::Object(Box::new(ObjectNode {
            construction,
            callable,
            arguments,
            items: Vec::new(),
            entries: Vec::new(),
            state: None,
        })))
    }

    /// Sets become what protocol 3 makes of them: a call of the class, here with or without a
    /// list of the items.
    fn push_set(
        &mut self,
        name: &'static str,
        items: Option<Vec<NodeId>>,
    ) -> Result<(), PickleError> {
        self.push_global(b"builtins", name.as_bytes())?;
        let class = self.pop()?;
        let mut arguments = Vec::new();
        if let Some(items) = items {
            self.push(Node::List(items))?;
            arguments.push(self.pop()?);
        }
        self.push_instance(class, arguments)
    }

    fn build(&mut self) -> Result<(), PickleError> {
        let state = self.pop()?;
        match self.top_node()? {
            Some(Node::Object(object)) if object.state.is_none() => object.state = Some(state),
            _ => return Err(self.reader.malformed("state is given to what is no new instance")),
        }
        Ok(())
    }

    fn push_persistent(&mut self) -> Result<(), PickleError> {
        if !matches!(self.limits.objects, Objects::Allowed) {
            return Err(self.refused("a persistent reference".to_owned()));
        }
        let id = self.pop()?;
        self.push(Node::Persistent(id))
    }
}

/// Turns nodes into values.
struct Tree<'n, 'a> {
    nodes: &'n [Node<'a>],
    left: usize,
    limits: Limits,
}

impl<'a> Tree<'_, 'a> {
    fn value(&mut self, id: NodeId, depth: usize) -> Result<Value<'a>, PickleError> {
        self.spend(1)?;
        let nodes = self.nodes;
        // Ids are made by `Machine::push` only, so that the node is always there.
        let Some(node) = nodes.get(id.0 as usize) else { return Ok(Value::None) };
        if depth > self.limits.nesting {
            return Err(PickleError::TooDeep { limit: self.limits.nesting });
        }
        match node {
            Node::Leaf(leaf) => self.leaf(leaf),
            Node::List(ids) => self.values(ids, depth).map(Value::List),
            Node::Tuple(ids) => self.values(ids, depth).map(Value::Tuple),
            Node::Dict(ids) => self.entries(ids, depth).map(Value::Dict),
            Node::Object(object) => {
                self.object(object, depth).map(|object| Value::Object(Box::new(object)))
            }
            Node::Persistent(id) => {
                self.value(*id, depth + 1).map(|id| Value::Persistent(Box::new(id)))
            }
        }
    }

    fn leaf(&mut self, leaf: &Value<'a>) -> Result<Value<'a>, PickleError> {
        // A leaf that owns its bytes is copied with each mention of it.
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
        let mut values = Vec::with_capacity(ids.len().min(self.left));
        for id in ids {
            values.push(self.value(*id, depth + 1)?);
        }
        Ok(values)
    }

    fn entries(
        &mut self,
        ids: &[NodeId],
        depth: usize,
    ) -> Result<Vec<(Value<'a>, Value<'a>)>, PickleError> {
        let mut entries = Vec::with_capacity((ids.len() / 2).min(self.left));
        for entry in ids.chunks_exact(2) {
            if let [key, value] = entry {
                entries.push((self.value(*key, depth + 1)?, self.value(*value, depth + 1)?));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_bytes;

    fn plain(pickle: &[u8]) -> Result<Value<'_>, PickleError> {
        decode(pickle, &Limits::PLAIN).map(|(value, _)| value)
    }

    fn object(pickle: &[u8]) -> Object<'_> {
        match decode(pickle, &Limits::OBJECTS) {
            Ok((Value::Object(object), length)) if length == pickle.len() => *object,
            other => panic!("{other:?}"),
        }
    }

    fn sample() -> Value<'static> {
        let shared = Value::list([1.into(), 2.into()]);
        Value::dict([
            ("n", Value::None),
            ("t", true.into()),
            ("f", (-2.5).into()),
            (
                "i",
                Value::list([
                    0.into(),
                    255.into(),
                    65_535.into(),
                    (-1).into(),
                    (1_i64 << 31).into(),
                    u64::MAX.into(),
                ]),
            ),
            ("s", "h\u{e9}\u{20ac}\u{1f600}\n\\".into()),
            (
                "tup",
                Value::tuple([
                    1.into(),
                    Value::tuple([]),
                    Value::tuple([2.into(), 3.into()]),
                    Value::tuple(["a".into()]),
                ]),
            ),
            ("l", Value::list([shared.clone(), shared])),
            ("d", Value::Dict(Vec::new())),
        ])
    }

    // `pickle.dumps(sample, protocol)` of CPython 3.11; the two items of "l" are one list.
    #[test]
    fn every_protocol_of_cpython_gives_the_same_value() {
        let goldens = [
            "286470300a566e0a70310a4e7356740a70320a4930310a7356660a70330a462d322e350a7356690a70340a28\
             6c70350a49300a61493235350a614936353533350a61492d310a614c323134373438333634384c0a614c3138\
             3434363734343037333730393535313631354c0a617356730a70360a5668e95c75323061635c553030303166\
             3630305c75303030615c75303035630a70370a73567475700a70380a2849310a28742849320a49330a747039\
             0a2856610a7031300a747031310a747031320a73566c0a7031330a286c7031340a286c7031350a49310a6149\
             320a61616731350a617356640a7031360a28647031370a732e",
            "7d71002858010000006e71014e58010000007471024930310a580100000066710347c0040000000000005801\
             0000006971045d7105284b004bff4dffff4affffffff4c323134373438333634384c0a4c3138343436373434\
             3037333730393535313631354c0a655801000000737106580c00000068c3a9e282acf09f98800a5c71075803\
             0000007475707108284b0129284b024b0374710928580100000061710a74710b74710c58010000006c710d5d\
             710e285d710f284b014b0265680f6558010000006471107d7111752e",
            "80037d71002858010000006e71014e580100000074710288580100000066710347c004000000000000580100\
             00006971045d7105284b004bff4dffff4affffffff8a0500000080008a09ffffffffffffffff006558010000\
             00737106580c00000068c3a9e282acf09f98800a5c710758030000007475707108284b01294b024b03867109\
             580100000061710a85710b74710c58010000006c710d5d710e285d710f284b014b0265680f65580100000064\
             71107d7111752e",
            "80049585000000000000007d94288c016e944e8c017494888c01669447c0040000000000008c0169945d9428\
             4b004bff4dffff4affffffff8a0500000080008a09ffffffffffffffff00658c0173948c0c68c3a9e282acf0\
             9f98800a5c948c0374757094284b01294b024b0386948c016194859474948c016c945d94285d94284b014b02\
             65680f658c0164947d94752e",
        ];
        for golden in goldens {
            let pickle = test_bytes(golden);
            assert_eq!(decode(&pickle, &Limits::PLAIN), Ok((sample(), pickle.len())));
        }
    }

    proptest::proptest! {
        // The codes are those that the short cut takes, so that whole pickles come up often.
        #[test]
        fn the_short_cut_gives_what_the_full_machine_gives(
            codes in proptest::collection::vec(
                proptest::sample::select(&b"((((NNNN]]}))ttttaessu\x85\x86\x87K\x01C\0\x88"[..]),
                0..25,
            ),
            nesting in 1..8_usize,
            nodes in 1..12_usize,
        ) {
            let pickle = [&codes[..], b"."].concat();
            let limits = Limits { nesting, nodes, ..Limits::PLAIN };
            if let Some(decoded) = decode_plain(&pickle, &limits) {
                proptest::prop_assert_eq!(decode_fully(&pickle, &limits), Ok(decoded));
            }
        }
    }

    #[test]
    fn bytes_are_bytes_in_every_form() {
        for pickle in [
            &b"\x80\x03C\x02ab."[..],
            b"\x80\x03B\x02\0\0\0ab.",
            b"U\x02ab.",
            b"T\x02\0\0\0ab.",
            b"S'ab'\np0\n.",
            b"S'\\x61b'\n.",
            b"\x8e\x02\0\0\0\0\0\0\0ab.",
        ] {
            assert_eq!(plain(pickle), Ok(Value::from(b"ab")), "{pickle:?}");
        }
    }

    #[test]
    fn bytes_and_text_borrow_from_the_pickle() {
        let pickle = b"\x80\x03C\x02abX\x02\0\0\0cd\x86.";
        match plain(pickle) {
            Ok(Value::Tuple(items)) => assert!(matches!(
                items[..],
                [Value::Bytes(Cow::Borrowed(b"ab")), Value::Str(Cow::Borrowed("cd"))]
            )),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_follows_the_pickle_is_not_read() {
        assert_eq!(decode(b"K\x01.rest", &Limits::PLAIN), Ok((1.into(), 3)));
    }

    #[test]
    fn stack_juggling_is_followed() {
        for (pickle, value) in [
            (&b"K\x01K\x020."[..], Value::from(1)),
            (b"K\x01(K\x02K\x031.", 1.into()),
            (b"K\x01(0.", 1.into()),
            (b"K\x012\x86.", Value::tuple([1.into(), 1.into()])),
            (b"(K\x01K\x02l.", Value::list([1.into(), 2.into()])),
            (b"(X\x01\0\0\0aK\x02d.", Value::dict([("a", 2.into())])),
        ] {
            assert_eq!(plain(pickle), Ok(value));
        }
    }

    #[test]
    fn every_prefix_of_a_pickle_is_an_error() {
        let pickle = b"\x80\x03}q\0(X\x01\0\0\0aq\x01K\x01X\x01\0\0\0bq\x02]q\x03(h\x01Neu.";
        assert!(plain(pickle).is_ok());
        for length in 0..pickle.len() {
            let result = plain(&pickle[..length]);
            assert!(matches!(result, Err(PickleError::Truncated { .. })), "{length}: {result:?}");
        }
    }

    #[test]
    fn operations_without_their_operands_are_errors() {
        for pickle in [
            &b"."[..],
            b"0.",
            b"1.",
            b"2.",
            b"a.",
            b"Na.",
            b"NNa.",
            b"e.",
            b"(e.",
            b"N(Ne.",
            b"t.",
            b"\x85.",
            b"N\x86.",
            b"(.",
            b"N(.",
            b"s.",
            b"}Ns.",
            b"NNNs.",
            b"}(Nu.",
            b"(Nd.",
            b"u.",
            b"h\0.",
            b"Nq",
            b"q\0.",
            b"(q\0.",
            b"\x94.",
            b"R.",
            b"NR.",
            b"b.",
            b"NNb.",
            b"\x81.",
            b"Q.",
            b"(o.",
            b"o.",
            b"im\nn\n.",
            b"\x93.",
            b"NN\x93.",
            b"\x90.",
            b"N(\x90.",
            b"\x91.",
            b"\xff.",
            b"\x80\x05N.",
            b"\x82\x01.",
            b"p-1\n.",
            b"Ix\n.",
            b"Fx\n.",
            b"Sx\n.",
            b"X\x01\0\0\0\xff.",
            b"c\xff\nn\n.",
            b"",
        ] {
            let result = decode(pickle, &Limits::OBJECTS);
            assert!(result.is_err(), "{pickle:?}: {result:?}");
        }
    }

    #[test]
    fn deep_nesting_is_refused_whichever_way_it_is_made() {
        let depth = 10_000;
        let many = |bytes: &[u8]| bytes.repeat(depth);
        for pickle in [
            [many(b"("), many(b"t"), b".".to_vec()].concat(),
            [b")".to_vec(), many(b"\x85"), b".".to_vec()].concat(),
            [many(b"]"), b"a".repeat(depth - 1), b".".to_vec()].concat(),
            [b"]".to_vec(), many(b"q\0]h\0a"), b".".to_vec()].concat(),
            [many(b"}N"), b"N".to_vec(), many(b"s"), b".".to_vec()].concat(),
        ] {
            for nesting in [100, 1000, usize::MAX] {
                let limits = Limits { nesting, ..Limits::OBJECTS };
                let limit = nesting.min(NESTING_MAX);
                assert_eq!(decode(&pickle, &limits), Err(PickleError::TooDeep { limit }));
            }
        }
    }

    #[test]
    fn nesting_up_to_the_limit_is_read() {
        let nested = |depth| [b"N".to_vec(), b"\x85".repeat(depth), b".".to_vec()].concat();
        let limits = Limits { nesting: 50, ..Limits::PLAIN };
        assert!(decode(&nested(50), &limits).is_ok());
        assert_eq!(decode(&nested(51), &limits), Err(PickleError::TooDeep { limit: 50 }));
    }

    #[test]
    fn a_value_that_contains_itself_is_refused() {
        for pickle in [&b"\x80\x03]q\0h\0a."[..], b"\x80\x03]q\0h\0\x85q\x01a0h\x01."] {
            assert_eq!(plain(pickle), Err(PickleError::TooDeep { limit: 100 }));
        }
    }

    #[test]
    fn a_memo_bomb_is_refused_by_the_number_of_copies() {
        // Each list holds the one before twice: 2^60 lists in 500 bytes.
        let mut pickle = b"]q\0".to_vec();
        for number in 0..60_u8 {
            pickle.extend([b']', b'q', number + 1, b'(', b'h', number, b'h', number, b'e']);
        }
        pickle.push(b'.');
        assert_eq!(plain(&pickle), Err(PickleError::TooManyNodes { limit: 1 << 20 }));
    }

    #[test]
    fn a_memo_bomb_of_one_long_string_is_refused() {
        let string = "\\n".repeat(1 << 20);
        let pickle = [format!("(S'{string}'\np0\n").into(), b"g0\n".repeat(10_000), b"t.".to_vec()];
        let result = plain(&pickle.concat()).map(drop);
        assert_eq!(result, Err(PickleError::TooManyNodes { limit: 1 << 20 }));
    }

    #[test]
    fn the_number_of_values_is_limited_exactly() {
        let limits = Limits { nodes: 11, ..Limits::PLAIN };
        let tuple = |n| [b"(".to_vec(), b"N".repeat(n), b"t.".to_vec()].concat();
        assert!(decode(&tuple(10), &limits).is_ok());
        assert_eq!(decode(&tuple(11), &limits), Err(PickleError::TooManyNodes { limit: 11 }));
    }

    #[test]
    fn plain_data_names_the_class_it_refuses() {
        let refused =
            |name: &str, offset| Err(PickleError::ObjectRefused { name: name.to_owned(), offset });
        assert_eq!(plain(b"\x80\x03cos\nsystem\nX\x02\0\0\0ls\x85R."), refused("os.system", 2));
        assert_eq!(plain(b"(ios\nsystem\n."), refused("os.system", 1));
        assert_eq!(plain(b"\x8c\x02os\x8c\x06system\x93."), refused("os.system", 12));
        assert_eq!(plain(b"C\x01aQ."), refused("a persistent reference", 3));
        assert_eq!(plain(b"Pabc\n."), refused("a persistent reference", 0));
        assert_eq!(plain(b"\x8f."), refused("builtins.set", 0));
    }

    #[test]
    fn only_the_named_classes_are_let_through() {
        let limits = Limits { objects: Objects::Only(&[("m", "Good")]), ..Limits::PLAIN };
        assert!(decode(b"cm\nGood\n)\x81}b.", &limits).is_ok());
        assert!(decode(b"(cm\nGood\no}b.", &limits).is_ok());
        assert!(decode(b"cm\nBad\n)\x81}b.", &limits).is_err());
        assert!(decode(b"C\x01aQ.", &limits).is_err());
    }

    #[test]
    fn instances_become_descriptions() {
        let pickle = b"\x80\x03cdatetime\ndate\nq\0C\x04\x07\xe8\x01\x02q\x01\x85q\x02Rq\x03.";
        let date = object(pickle);
        assert_eq!(date.class().map(ToString::to_string).as_deref(), Some("datetime.date"));
        assert_eq!(date.construction, Construction::Call);
        assert_eq!(date.arguments, Value::tuple([b"\x07\xe8\x01\x02".into()]));

        let deque = object(b"\x80\x03ccollections\ndeque\nq\0)Rq\x01(K\x01K\x02e.");
        assert_eq!(deque.items, [1.into(), 2.into()]);
        let dict = object(b"\x80\x02ccollections\nOrderedDict\nq\0)Rq\x01X\x01\0\0\0aq\x02K\x01s.");
        assert_eq!(dict.entries, [("a".into(), 1.into())]);
        let new = object(b"\x80\x02cm\nC\n)\x81}X\x01\0\0\0aK\x01sb.");
        assert_eq!(new.construction, Construction::New);
        assert_eq!(new.state, Some(Value::dict([("a", 1.into())])));
    }

    #[test]
    fn a_set_of_protocol_4_is_that_of_protocol_3() {
        let old = object(b"\x80\x03cbuiltins\nfrozenset\nq\0]q\x01K\x01a\x85q\x02Rq\x03.");
        assert_eq!(object(b"\x80\x04(K\x01\x91\x94."), old);
        assert_eq!(object(b"\x80\x04\x8f\x94(K\x01\x90.").items, [1.into()]);
    }

    #[test]
    fn the_state_of_a_record_may_fetch_what_its_metadata_memoized() {
        let record =
            b"\x80\x03cm\nC\nq\0.\x80\x03}q\x01X\x01\0\0\0aC\x08\0\0\0\0\0\0\0\x01h\0\x86Qs.";
        let (class, state) = decode_record(record, &Limits::OBJECTS).unwrap();
        let reference = Value::tuple([b"\0\0\0\0\0\0\0\x01".into(), class]);
        assert_eq!(state.entry("a"), Some(&Value::Persistent(Box::new(reference))));
    }
}
