//! An entry of a bucket or a set.

use zodium_pickle::Value;

/// A key with its value; a set's keys have `None`.
#[derive(Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) key: Value<'a>,
    pub(crate) value: Value<'a>,
}
