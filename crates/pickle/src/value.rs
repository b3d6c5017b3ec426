//! The content of a pickle: a tree of plain data that borrows from the pickle where possible.
//!
//! Identity is not kept: an object that a pickle refers to twice becomes two values.

use std::borrow::Cow;
use std::fmt;

use zodium_types::{Oid, Tid};

/// A Python value.
///
/// Dropping, cloning and encoding recurse; values from [`crate::decode()`] are no deeper than its
/// limit.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// `None`
    None,
    /// `True` or `False`
    Bool(bool),
    /// An integer that fits 128 bits.
    Int(i128),
    /// An integer that does not fit [`Value::Int`]: minimal little-endian two's complement.
    BigInt(Cow<'a, [u8]>),
    /// `float`
    Float(f64),
    /// `bytes`; also `str` of Python 2.
    Bytes(Cow<'a, [u8]>),
    /// `str`; `unicode` of Python 2.
    Str(Cow<'a, str>),
    /// `list`
    List(Vec<Value<'a>>),
    /// `tuple`
    Tuple(Vec<Value<'a>>),
    /// `dict`, in the order of the pickle; of repeated keys the last one counts.
    Dict(Vec<(Value<'a>, Value<'a>)>),
    /// A class or function, by name.
    Global(Global<'a>),
    /// An instance, described by its construction.
    Object(Box<Object<'a>>),
    /// A persistent reference, which ZODB stores in place of another persistent object.
    Persistent(Box<Value<'a>>),
}

/// The name of a class or function. Neither part contains a newline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Global<'a> {
    // Boxed, because a class is rare and would double the size of every value.
    names: Box<Names<'a>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Names<'a> {
    module: Cow<'a, str>,
    name: Cow<'a, str>,
}

/// The construction of an instance: the callable or its `__new__` is called with the arguments;
/// then items are appended, entries are set, and the state is passed to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Object<'a> {
    /// How the callable is called.
    pub construction: Construction,
    /// The class or function; usually a [`Value::Global`].
    pub callable: Value<'a>,
    /// The arguments; usually a [`Value::Tuple`].
    pub arguments: Value<'a>,
    /// Items to append to a list-like object.
    pub items: Vec<Value<'a>>,
    /// Entries to set in a dict-like object.
    pub entries: Vec<(Value<'a>, Value<'a>)>,
    /// The argument of `__setstate__`.
    pub state: Option<Value<'a>>,
}

/// How an instance is constructed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Construction {
    /// The callable is called: REDUCE, INST, OBJ.
    Call,
    /// The class's `__new__` is called: NEWOBJ.
    New,
}

impl<'a> Global<'a> {
    /// A name; `None` if a part contains a newline, which GLOBAL cannot express.
    pub fn new(
        module: impl Into<Cow<'a, str>>,
        name: impl Into<Cow<'a, str>>,
    ) -> Option<Global<'a>> {
        let names = Names { module: module.into(), name: name.into() };
        let expressible = !names.module.contains('\n') && !names.name.contains('\n');
        expressible.then(|| Global { names: Box::new(names) })
    }

    /// The dotted module.
    pub fn module(&self) -> &str {
        &self.names.module
    }

    /// The name within the module.
    pub fn name(&self) -> &str {
        &self.names.name
    }

    /// The same name, owning its text.
    pub fn into_owned(self) -> Global<'static> {
        let (module, name) = self.into_parts();
        Global { names: Box::new(Names { module: owned(module), name: owned(name) }) }
    }

    pub(crate) fn into_parts(self) -> (Cow<'a, str>, Cow<'a, str>) {
        (self.names.module, self.names.name)
    }
}

impl fmt::Display for Global<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.module(), self.name())
    }
}

impl<'a> Value<'a> {
    /// A tuple.
    pub fn tuple(items: impl IntoIterator<Item = Value<'a>>) -> Value<'a> {
        Value::Tuple(items.into_iter().collect())
    }

    /// A list.
    pub fn list(items: impl IntoIterator<Item = Value<'a>>) -> Value<'a> {
        Value::List(items.into_iter().collect())
    }

    /// A dict with text keys.
    pub fn dict<K: Into<Cow<'a, str>>>(
        entries: impl IntoIterator<Item = (K, Value<'a>)>,
    ) -> Value<'a> {
        Value::Dict(entries.into_iter().map(|(k, v)| (Value::Str(k.into()), v)).collect())
    }

    /// The integer with these little-endian two's complement bytes, of any length and padding.
    pub fn from_twos_complement(bytes: &'a [u8]) -> Value<'a> {
        let minimal = trim_sign(bytes);
        if minimal.len() > 16 {
            return Value::BigInt(Cow::Borrowed(minimal));
        }
        let negative = minimal.last().is_some_and(|byte| byte & 0x80 != 0);
        let mut wide = [if negative { 0xff } else { 0 }; 16];
        for (to, from) in wide.iter_mut().zip(minimal) {
            *to = *from;
        }
        Value::Int(i128::from_le_bytes(wide))
    }

    /// Whether this is `None`.
    pub fn is_none(&self) -> bool {
        matches!(self, Value::None)
    }

    /// Python's truth value: false for `None`, `False`, zero and empty values.
    pub fn is_truthy(&self) -> bool {
        match self {
            Value::None => false,
            Value::Bool(truth) => *truth,
            Value::Int(number) => *number != 0,
            Value::Float(number) => *number != 0.0,
            Value::Bytes(bytes) => !bytes.is_empty(),
            Value::Str(text) => !text.is_empty(),
            Value::List(items) | Value::Tuple(items) => !items.is_empty(),
            Value::Dict(entries) => !entries.is_empty(),
            Value::BigInt(_) | Value::Global(_) | Value::Object(_) | Value::Persistent(_) => true,
        }
    }

    /// Whether it holds no class, instance or persistent reference.
    pub fn is_plain(&self) -> bool {
        match self {
            Value::List(items) | Value::Tuple(items) => items.iter().all(Value::is_plain),
            Value::Dict(entries) => {
                entries.iter().all(|(key, value)| key.is_plain() && value.is_plain())
            }
            Value::Global(_) | Value::Object(_) | Value::Persistent(_) => false,
            _ => true,
        }
    }

    /// The memory that plain data take, about: each value, its bytes and its text.
    pub fn memory_bytes(&self) -> usize {
        let content = match self {
            Value::Bytes(bytes) | Value::BigInt(bytes) => bytes.len(),
            Value::Str(text) => text.len(),
            Value::List(items) | Value::Tuple(items) => items.iter().map(Value::memory_bytes).sum(),
            Value::Dict(entries) => {
                let pair = |(key, value): &(Value<'_>, Value<'_>)| {
                    key.memory_bytes() + value.memory_bytes()
                };
                entries.iter().map(pair).sum()
            }
            _ => 0,
        };
        size_of::<Value<'_>>() + content
    }

    /// The bytes of a bytes value.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Value::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The text of a text value, or of a Python 2 `str` that is UTF-8.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::Str(text) => Some(text),
            Value::Bytes(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    /// An integer; `True` and `False` are 1 and 0, as in Python.
    pub fn as_int(&self) -> Option<i128> {
        match self {
            Value::Int(number) => Some(*number),
            Value::Bool(truth) => Some((*truth).into()),
            _ => None,
        }
    }

    /// An integer from 0 to 2^64 - 1.
    pub fn as_u64(&self) -> Option<u64> {
        self.as_int()?.try_into().ok()
    }

    /// A float, or an integer converted to one.
    pub fn as_float(&self) -> Option<f64> {
        match self {
            Value::Float(number) => Some(*number),
            _ => self.as_int().map(|number| number as f64),
        }
    }

    /// The items of a list or tuple; the protocol does not distinguish them.
    pub fn as_sequence(&self) -> Option<&[Value<'a>]> {
        match self {
            Value::List(items) | Value::Tuple(items) => Some(items),
            _ => None,
        }
    }

    /// The items of a list or tuple, moved out.
    pub fn into_sequence(self) -> Option<Vec<Value<'a>>> {
        match self {
            Value::List(items) | Value::Tuple(items) => Some(items),
            _ => None,
        }
    }

    /// The entries of a dict.
    pub fn as_dict(&self) -> Option<&[(Value<'a>, Value<'a>)]> {
        match self {
            Value::Dict(entries) => Some(entries),
            _ => None,
        }
    }

    /// The value of a text key in a dict; also finds a Python 2 key.
    pub fn entry(&self, key: &str) -> Option<&Value<'a>> {
        let found = |(k, _): &&(Value<'a>, Value<'a>)| k.as_str() == Some(key);
        self.as_dict()?.iter().rev().find(found).map(|(_, value)| value)
    }

    /// The class or function.
    pub fn as_global(&self) -> Option<&Global<'a>> {
        match self {
            Value::Global(global) => Some(global),
            _ => None,
        }
    }

    /// The instance.
    pub fn as_object(&self) -> Option<&Object<'a>> {
        match self {
            Value::Object(object) => Some(object),
            _ => None,
        }
    }

    /// An oid: exactly 8 bytes.
    pub fn as_oid(&self) -> Option<Oid> {
        self.as_bytes().and_then(Oid::from_slice)
    }

    /// A tid or serial: exactly 8 bytes.
    pub fn as_tid(&self) -> Option<Tid> {
        self.as_bytes().and_then(Tid::from_slice)
    }

    /// The kind of the value in Python's words, for error messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::None => "None",
            Value::Bool(_) => "bool",
            Value::Int(_) | Value::BigInt(_) => "int",
            Value::Float(_) => "float",
            Value::Bytes(_) => "bytes",
            Value::Str(_) => "str",
            Value::List(_) => "list",
            Value::Tuple(_) => "tuple",
            Value::Dict(_) => "dict",
            Value::Global(_) => "class or function",
            Value::Object(_) => "instance",
            Value::Persistent(_) => "persistent reference",
        }
    }

    /// The same value with all its parts owned.
    pub fn into_owned(self) -> Value<'static> {
        match self {
            Value::None => Value::None,
            Value::Bool(truth) => Value::Bool(truth),
            Value::Int(number) => Value::Int(number),
            Value::BigInt(bytes) => Value::BigInt(Cow::Owned(bytes.into_owned())),
            Value::Float(number) => Value::Float(number),
            Value::Bytes(bytes) => Value::Bytes(Cow::Owned(bytes.into_owned())),
            Value::Str(text) => Value::Str(owned(text)),
            Value::List(items) => Value::List(own_all(items)),
            Value::Tuple(items) => Value::Tuple(own_all(items)),
            Value::Dict(entries) => Value::Dict(own_entries(entries)),
            Value::Global(global) => Value::Global(global.into_owned()),
            Value::Object(object) => Value::Object(Box::new(object.into_owned())),
            Value::Persistent(id) => Value::Persistent(Box::new(id.into_owned())),
        }
    }
}

impl Object<'_> {
    /// The same instance with all its parts owned.
    pub fn into_owned(self) -> Object<'static> {
        Object {
            construction: self.construction,
            callable: self.callable.into_owned(),
            arguments: self.arguments.into_owned(),
            items: own_all(self.items),
            entries: own_entries(self.entries),
            state: self.state.map(Value::into_owned),
        }
    }

    /// What stands where an object is within itself, in a record that is decoded to be shown, with
    /// so many other objects between. No pickle that can be loaded calls `None`.
    pub(crate) fn cycle(levels: usize) -> Object<'static> {
        Object {
            construction: Construction::Call,
            callable: Value::None,
            arguments: Value::tuple((levels > 0).then_some(Value::Int(levels as i128))),
            items: Vec::new(),
            entries: Vec::new(),
            state: None,
        }
    }

    /// Whether it stands for an object that it is within.
    pub fn is_cycle(&self) -> bool {
        self.callable.is_none()
    }

    /// The number of lists, dicts and instances between it and the object that it stands for, which
    /// it is within; `None` if it stands for none.
    pub fn cycle_levels(&self) -> Option<usize> {
        match (self.is_cycle(), self.arguments.as_sequence()) {
            (true, Some([Value::Int(levels)])) => usize::try_from(*levels).ok(),
            (is_cycle, _) => is_cycle.then_some(0),
        }
    }

    /// The class or function, if it is given by name.
    pub fn class(&self) -> Option<&Global<'_>> {
        self.callable.as_global()
    }
}

fn owned(text: Cow<'_, str>) -> Cow<'static, str> {
    Cow::Owned(text.into_owned())
}

fn own_all(items: Vec<Value<'_>>) -> Vec<Value<'static>> {
    items.into_iter().map(Value::into_owned).collect()
}

fn own_entries(entries: Vec<(Value<'_>, Value<'_>)>) -> Vec<(Value<'static>, Value<'static>)> {
    entries.into_iter().map(|(key, value)| (key.into_owned(), value.into_owned())).collect()
}

/// Removes high bytes that only repeat the sign.
pub(crate) fn trim_sign(bytes: &[u8]) -> &[u8] {
    let mut rest = bytes;
    while let [shorter @ .., last] = rest {
        let sign_below = shorter.last().is_some_and(|byte| byte & 0x80 != 0);
        let redundant = if sign_below { *last == 0xff } else { *last == 0 };
        if !redundant {
            break;
        }
        rest = shorter;
    }
    rest
}

macro_rules! value_from_int {
    ($($int:ty),*) => {$(
        impl From<$int> for Value<'_> {
            fn from(number: $int) -> Self {
                Value::Int(number.into())
            }
        }
    )*};
}

value_from_int!(u8, u16, u32, u64, i32, i64, i128);

impl From<bool> for Value<'_> {
    fn from(truth: bool) -> Self {
        Value::Bool(truth)
    }
}

impl From<f64> for Value<'_> {
    fn from(number: f64) -> Self {
        Value::Float(number)
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Value::Str(Cow::Borrowed(text))
    }
}

impl From<String> for Value<'_> {
    fn from(text: String) -> Self {
        Value::Str(Cow::Owned(text))
    }
}

impl<'a> From<&'a [u8]> for Value<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Value::Bytes(Cow::Borrowed(bytes))
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Value<'a> {
    fn from(bytes: &'a [u8; N]) -> Self {
        Value::Bytes(Cow::Borrowed(bytes))
    }
}

impl From<Vec<u8>> for Value<'_> {
    fn from(bytes: Vec<u8>) -> Self {
        Value::Bytes(Cow::Owned(bytes))
    }
}

impl From<Oid> for Value<'_> {
    fn from(oid: Oid) -> Self {
        Value::Bytes(Cow::Owned(oid.to_bytes().to_vec()))
    }
}

impl From<Tid> for Value<'_> {
    fn from(tid: Tid) -> Self {
        Value::Bytes(Cow::Owned(tid.to_bytes().to_vec()))
    }
}

/// Converts `None` to [`Value::None`].
impl<'a, T: Into<Value<'a>>> From<Option<T>> for Value<'a> {
    fn from(option: Option<T>) -> Self {
        option.map_or(Value::None, Into::into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_minimal_whatever_their_padding() {
        assert_eq!(Value::from_twos_complement(b""), Value::Int(0));
        assert_eq!(Value::from_twos_complement(b"\0\0\0"), Value::Int(0));
        assert_eq!(Value::from_twos_complement(b"\xff\xff"), Value::Int(-1));
        assert_eq!(Value::from_twos_complement(b"\xff\0"), Value::Int(255));
        assert_eq!(Value::from_twos_complement(b"\x80"), Value::Int(-128));
        let max = i128::MAX.to_le_bytes();
        assert_eq!(Value::from_twos_complement(&max), Value::Int(i128::MAX));
        let mut beyond = u128::MAX.to_le_bytes().to_vec();
        beyond.extend([0, 0, 0]);
        assert_eq!(Value::from_twos_complement(&beyond), Value::BigInt((&beyond[..17]).into()));
    }

    #[test]
    fn transaction_ids_of_64_bits_are_lossless() {
        assert_eq!(Value::from(u64::MAX).as_u64(), Some(u64::MAX));
        assert_eq!(Value::from(-1).as_u64(), None);
    }

    #[test]
    fn a_dict_entry_is_found_under_a_python_2_key_and_the_last_one_counts() {
        let pairs = vec![(Value::from(b"a"), 1.into()), (Value::from("a"), 2.into())];
        assert_eq!(Value::Dict(pairs[..1].to_vec()).entry("a"), Some(&1.into()));
        assert_eq!(Value::Dict(pairs).entry("a"), Some(&2.into()));
    }

    #[test]
    fn a_value_is_small_enough_to_move_around() {
        assert!(size_of::<Value<'_>>() <= 32);
    }
}
