//! A value as it is read: borrowed from a database.

use std::ops::Deref;

use bytes::Bytes;

use crate::{Hash, List, Set, SortedSet, Stream, Value};

/// A value of a database, to be read.
#[derive(Clone, Copy, Debug)]
pub enum ValueRef<'a> {
    /// Bytes.
    String(Text<'a>),
    /// Elements in order.
    List(&'a List),
    /// Values by field.
    Hash(&'a Hash),
    /// Members.
    Set(&'a Set),
    /// Members with scores, in order.
    SortedSet(&'a SortedSet),
    /// Entries in the order of their ids.
    Stream(&'a Stream),
}

/// The bytes of a string.
#[derive(Clone, Copy, Debug)]
pub enum Text<'a> {
    /// Those of a short one, which are beside its key.
    Packed(&'a [u8]),
    /// Those of a long one. Answers may share them.
    Shared(&'a Bytes),
}

impl ValueRef<'_> {
    /// The name of its type.
    #[must_use]
    pub fn type_name(self) -> &'static str {
        match self {
            ValueRef::String(_) => "string",
            ValueRef::List(_) => "list",
            ValueRef::Hash(_) => "hash",
            ValueRef::Set(_) => "set",
            ValueRef::SortedSet(_) => "zset",
            ValueRef::Stream(_) => "stream",
        }
    }

    /// A copy of its own.
    #[must_use]
    pub fn to_value(self) -> Value {
        match self {
            ValueRef::String(text) => Value::String(text.to_bytes()),
            ValueRef::List(list) => Value::List(list.clone()),
            ValueRef::Hash(hash) => Value::Hash(hash.clone()),
            ValueRef::Set(set) => Value::Set(set.clone()),
            ValueRef::SortedSet(set) => Value::SortedSet(set.clone()),
            ValueRef::Stream(stream) => Value::Stream(Box::new(stream.clone())),
        }
    }
}

impl<'a> Text<'a> {
    /// The bytes, for as long as the database is borrowed.
    #[must_use]
    pub fn bytes(self) -> &'a [u8] {
        match self {
            Text::Packed(bytes) => bytes,
            Text::Shared(bytes) => bytes,
        }
    }

    /// The bytes on their own. Those of a long string are shared, others are copied.
    #[must_use]
    pub fn to_bytes(self) -> Bytes {
        match self {
            Text::Packed(bytes) => Bytes::copy_from_slice(bytes),
            Text::Shared(bytes) => bytes.clone(),
        }
    }
}

impl Deref for Text<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes()
    }
}

impl Value {
    /// The same, to be read.
    #[must_use]
    pub fn as_ref(&self) -> ValueRef<'_> {
        match self {
            Value::String(bytes) => ValueRef::String(Text::Shared(bytes)),
            Value::List(list) => ValueRef::List(list),
            Value::Hash(hash) => ValueRef::Hash(hash),
            Value::Set(set) => ValueRef::Set(set),
            Value::SortedSet(set) => ValueRef::SortedSet(set),
            Value::Stream(stream) => ValueRef::Stream(stream),
        }
    }
}
