//! The pickle machine: executes operations and returns a [`Value`].
//!
//! It fills a flat arena of nodes that refer to each other by number, because a memoized list may
//! be referred to before it is filled. Nothing here recurses, so deep nesting is harmless. At the
//! end the nodes are converted to a tree.

use std::borrow::Cow;

use crate::memo::Memo;
use crate::node::{Node, NodeId, ObjectNode};
use crate::operation::{Operation, Reader};
use crate::purpose::Purpose;
use crate::text::{
    has_surrogates, parse_decimal, parse_float, unescape_unicode, unescape_utf8, unquote,
};
use crate::tree::Tree;
use crate::{Construction, Global, Limits, Objects, PickleError, Value};

/// Upper bound of [`Limits::nesting`]: conversion to a tree recurses.
pub(crate) const NESTING_MAX: usize = 1000;

/// The state of the machine.
pub(crate) struct Machine<'a> {
    reader: Reader<'a>,
    limits: Limits,
    nodes: Vec<Node<'a>>,
    stack: Vec<NodeId>,
    /// Heights of the stack at each open mark. Items below the last mark cannot be popped.
    marks: Vec<usize>,
    memo: Memo<NodeId>,
    purpose: Purpose,
}

impl<'a> Machine<'a> {
    pub(crate) fn new(bytes: &'a [u8], limits: &Limits, purpose: Purpose) -> Machine<'a> {
        let nesting = limits.nesting.min(NESTING_MAX);
        Machine {
            reader: Reader::new(bytes),
            limits: Limits { nesting, ..*limits },
            nodes: Vec::with_capacity(16),
            stack: Vec::with_capacity(16),
            marks: Vec::with_capacity(4),
            memo: Memo::with_capacity(0),
            purpose,
        }
    }

    /// Decodes one pickle, up to its STOP. The memo is kept for the next one.
    pub(crate) fn value(&mut self) -> Result<Value<'a>, PickleError> {
        let root = loop {
            match self.reader.next()? {
                Operation::Stop => break self.pop()?,
                operation => self.step(operation)?,
            }
        };
        self.stack.clear();
        self.marks.clear();
        Tree::new(&self.nodes, self.limits, self.purpose).value(root, 0)
    }

    /// Number of bytes read so far.
    pub(crate) fn position(&self) -> usize {
        self.reader.position()
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
                if let Some(bytes) = self.surrogates_of(&operation) {
                    return self.push_surrogates(bytes);
                }
                let leaf = self.leaf(operation)?;
                match self.purpose == Purpose::Extension && self.reader.read_python2_text() {
                    true => self.push_leaf(ascii_as_text(leaf)),
                    false => self.push_leaf(leaf),
                }
            }
        }
    }

    fn leaf(&self, operation: Operation<'a>) -> Result<Value<'a>, PickleError> {
        if self.purpose == Purpose::Exact && self.reader.read_python2_text() {
            return Err(PickleError::Inexact { what: "str of Python 2" });
        }
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

    /// Opens a mark. A container being filled opens at most two marks, so too many marks mean too
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

    /// Executes POP: removes a mark if it is on top, else an item.
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

    /// Pushes a set as protocol 3 pickles it: a call of the class, with or without a list of the
    /// items.
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

    /// A text with surrogates that is to be shown, as UTF-8.
    fn surrogates_of(&self, operation: &Operation<'a>) -> Option<Cow<'a, [u8]>> {
        if self.purpose != Purpose::Show {
            return None;
        }
        let text = match operation {
            Operation::Text(bytes) => Cow::Borrowed(*bytes),
            Operation::EscapedText(line) => Cow::Owned(unescape_utf8(line)?),
            _ => return None,
        };
        has_surrogates(&text).then_some(text)
    }

    /// Pushes a text with surrogates, which no Rust text has, as the call that makes it in Python.
    fn push_surrogates(&mut self, bytes: Cow<'a, [u8]>) -> Result<(), PickleError> {
        self.push_global(b"codecs", b"decode")?;
        let function = self.pop()?;
        self.push_leaf(Value::Bytes(bytes))?;
        for argument in ["utf-8", "surrogatepass"] {
            self.push_leaf(Value::from(argument))?;
        }
        let arguments = self.pop_many(3)?;
        self.push_instance(function, arguments)
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

/// Text in place of ASCII bytes; other values as they are.
fn ascii_as_text(value: Value<'_>) -> Value<'_> {
    match value {
        Value::Bytes(Cow::Borrowed(bytes)) => match std::str::from_utf8(bytes) {
            Ok(text) if text.is_ascii() => Value::from(text),
            _ => Value::from(bytes),
        },
        Value::Bytes(Cow::Owned(bytes)) if bytes.is_ascii() => match String::from_utf8(bytes) {
            Ok(text) => Value::from(text),
            Err(error) => Value::from(error.into_bytes()),
        },
        other => other,
    }
}
