//! Errors of commands. Their texts are the stock server's: clients and its tests compare them.

use std::borrow::Cow;

use zodium_keyspace::WrongType;

/// What a command answers if it fails: the text after `-`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fail(pub(crate) Cow<'static, str>);

/// The result of a command, which has written its answer.
pub(crate) type Outcome = Result<(), Fail>;

impl Fail {
    pub(crate) const fn fixed(text: &'static str) -> Fail {
        Fail(Cow::Borrowed(text))
    }

    pub(crate) const fn text(text: String) -> Fail {
        Fail(Cow::Owned(text))
    }

    /// The error of a command whose number of arguments is wrong. `name` is in lower case.
    pub(crate) fn arity(name: &str) -> Fail {
        Fail::text(format!("ERR wrong number of arguments for '{name}' command"))
    }
}

impl From<WrongType> for Fail {
    fn from(_: WrongType) -> Fail {
        WRONG_TYPE
    }
}

pub(crate) const WRONG_TYPE: Fail =
    Fail::fixed("WRONGTYPE Operation against a key holding the wrong kind of value");
/// Stands before the reason why a transaction was not executed.
pub(crate) const ABORTED_FOR: &str = "EXECABORT Transaction discarded because of: ";
pub(crate) const OUT_OF_MEMORY: Fail =
    Fail::fixed("OOM command not allowed when used memory > 'maxmemory'.");
pub(crate) const SYNTAX: Fail = Fail::fixed("ERR syntax error");
pub(crate) const NO_INTEGER: Fail = Fail::fixed("ERR value is not an integer or out of range");
pub(crate) const NO_FLOAT: Fail = Fail::fixed("ERR value is not a valid float");
pub(crate) const OUT_OF_RANGE: Fail = Fail::fixed("ERR value is out of range");
pub(crate) const NO_KEY: Fail = Fail::fixed("ERR no such key");
pub(crate) const NO_INDEX: Fail = Fail::fixed("ERR index out of range");
pub(crate) const NO_DATABASE: Fail = Fail::fixed("ERR DB index is out of range");
pub(crate) const NOT_POSITIVE: Fail = Fail::fixed("ERR value is out of range, must be positive");
pub(crate) const OVERFLOW: Fail = Fail::fixed("ERR increment or decrement would overflow");
pub(crate) const NAN: Fail = Fail::fixed("ERR increment would produce NaN or Infinity");
pub(crate) const ANSWER_TOO_LONG: Fail =
    Fail::fixed("ERR the answer would be longer than proto-max-bulk-len. Ask for fewer elements");
pub(crate) const TOO_LONG: Fail =
    Fail::fixed("ERR string exceeds maximum allowed size (proto-max-bulk-len)");
