//! The types of values, for commands that want one of them.

use crate::{Hash, List, Set, SortedSet, Stream, Value, ValueRef};

/// The key has a value of another type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongType;

/// A type of values that have elements. Strings are no such type: they are read and changed whole.
pub trait Kind: Default {
    /// The value as one of this type.
    fn of(value: ValueRef<'_>) -> Option<&Self>;

    /// The value as one of this type, to change it.
    fn of_mut(value: &mut Value) -> Option<&mut Self>;

    /// As a value of any type.
    fn into_value(self) -> Value;

    /// Whether it has no elements, so that its key must be removed.
    fn has_no_elements(&self) -> bool;
}

macro_rules! kind {
    ($kind:ty, $variant:ident, $is_empty:expr) => {
        impl Kind for $kind {
            fn of(value: ValueRef<'_>) -> Option<&$kind> {
                match value {
                    ValueRef::$variant(found) => Some(found),
                    _ => None,
                }
            }

            fn of_mut(value: &mut Value) -> Option<&mut $kind> {
                match value {
                    Value::$variant(found) => Some(found),
                    _ => None,
                }
            }

            fn into_value(self) -> Value {
                Value::$variant(self.into())
            }

            fn has_no_elements(&self) -> bool {
                $is_empty(self)
            }
        }
    };
}

kind!(List, List, List::is_empty);
kind!(Hash, Hash, Hash::is_empty);
kind!(Set, Set, Set::is_empty);
kind!(SortedSet, SortedSet, SortedSet::is_empty);
kind!(Stream, Stream, |_: &Stream| false);
