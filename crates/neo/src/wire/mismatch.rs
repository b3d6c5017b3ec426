//! What is wrong with an argument, and where it stands.

use std::borrow::Cow;

/// A value that is not what the protocol says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mismatch {
    /// Path from the arguments to the value, such as `nodes[3].state`; empty for all arguments.
    pub(crate) path: String,
    /// What the protocol has there.
    pub(crate) expected: Cow<'static, str>,
    /// What is there instead.
    pub(crate) found: Cow<'static, str>,
    /// Where the value begins, in bytes from the beginning of the message.
    pub(crate) offset: usize,
}

impl Mismatch {
    /// The value is in this field.
    #[cold]
    pub(crate) fn in_field(mut self, field: &str) -> Mismatch {
        let separator = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        self.path = format!("{field}{separator}{}", self.path);
        self
    }

    /// The value is in this item of an array or map.
    #[cold]
    pub(crate) fn in_item(mut self, index: usize) -> Mismatch {
        let separator = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        self.path = format!("[{index}]{separator}{}", self.path);
        self
    }

    /// A value that begins at `offset` may also be nil.
    #[cold]
    pub(crate) fn or_nil(mut self, offset: usize) -> Mismatch {
        if self.offset == offset && self.path.is_empty() {
            self.expected = format!("{} or nil", self.expected).into();
        }
        self
    }
}
