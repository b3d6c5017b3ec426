//! The outcome of a conflict resolution.

use thiserror::Error;
use zodium_pickle::PickleError;

/// The result of [`crate::resolve`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The merged data record, to be stored.
    Resolved(Vec<u8>),
    /// The class is known, but these changes do not merge, or the result is uncertain.
    Unresolvable(Reason),
    /// A class that only Python knows, or one without conflict resolution.
    NotOurs,
}

/// Why a conflict of a known class was not resolved.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Reason {
    /// A record that cannot be decoded exactly.
    #[error(transparent)]
    Pickle(#[from] PickleError),
    /// The three records are not all of one class.
    #[error("the revisions are of different classes, or of one with arguments")]
    OtherClass,
    /// A state that the class would not accept either.
    #[error("a state is malformed: {0}")]
    Malformed(&'static str),
    /// The changes contradict each other, or the result would not fit its tree.
    #[error("the changes do not merge: {0}")]
    Contradiction(&'static str),
    /// Only Python can tell the result.
    #[error("it is left to Python: {0}")]
    Uncertain(&'static str),
}

impl Reason {
    /// Whether Python, with the real class, would not merge these either.
    pub fn is_certain(&self) -> bool {
        match self {
            Reason::Malformed(_) | Reason::Contradiction(_) => true,
            Reason::Pickle(_) | Reason::OtherClass | Reason::Uncertain(_) => false,
        }
    }
}
