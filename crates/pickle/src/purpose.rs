//! What a pickle is decoded for: it decides about information that values cannot represent.

/// What a pickle is decoded for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To use its values.
    Plain,
    /// To encode it again: information that values cannot represent is refused.
    Exact,
    /// To look at it: what values cannot represent is described by others.
    Show,
    /// It is the extension of a transaction: see [`decode_extension`](crate::decode_extension).
    Extension,
}
