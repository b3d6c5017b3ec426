//! The methods that a client may call, and their arguments.

use std::borrow::Cow;

use bytes::Bytes;
use zodium_pickle::Value;
use zodium_types::{Oid, Tid};

use crate::exception::Exception;

/// Longest message of a method that carries no data, in bytes: names, numbers, filters.
const PLAIN_BYTES_MAX: usize = 64 << 10;
/// Longest `tpc_begin`. User, description and extension of up to 65,535 bytes each fit; somewhat
/// longer ones fail at the vote, with a clear error.
const BEGIN_BYTES_MAX: usize = 1 << 20;

/// A method of ZEO 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Register,
    GetInfo,
    LastTransaction,
    GetInvalidations,
    LoadBefore,
    LoadSerial,
    GetTid,
    History,
    NewOids,
    NewOid,
    Ping,
    ServerStatus,
    SetClientLabel,
    RecordIternext,
    Begin,
    Store,
    Delete,
    CheckCurrent,
    Restore,
    Undo,
    BlobStart,
    BlobChunk,
    BlobEnd,
    BlobShared,
    SendBlob,
    Vote,
    Finish,
    Abort,
    UndoLog,
    UndoInfo,
    Pack,
    IteratorStart,
    IteratorNext,
    IteratorRecordStart,
    IteratorRecordNext,
    IteratorGc,
    IteratorRead,
    ObjectsRead,
}

impl Method {
    /// The number of methods.
    pub(crate) const COUNT: usize = METHODS.len();

    /// All methods with their names in the protocol.
    pub(crate) fn all() -> impl Iterator<Item = (&'static str, Method)> {
        METHODS.iter().map(|(name, method, ..)| (*name, *method))
    }

    pub(crate) fn parse(name: &str) -> Option<Method> {
        METHODS.iter().find(|(known, ..)| *known == name).map(|(_, method, ..)| *method)
    }

    /// The least and the most number of arguments.
    fn arity(self) -> (usize, usize) {
        let entry = METHODS.iter().find(|(_, method, ..)| *method == self);
        entry.map_or((0, 0), |(_, _, least, most)| (*least, *most))
    }

    /// Longest message of this method, in bytes.
    ///
    /// Arguments other than data do not count towards the memory limit, so they must be small.
    pub(crate) fn bytes_max(self) -> usize {
        use Method::*;
        match self {
            Store | Restore | BlobChunk | BlobEnd | BlobShared => usize::MAX,
            // Only the beginning of the label is kept.
            SetClientLabel => usize::MAX,
            Begin => BEGIN_BYTES_MAX,
            _ => PLAIN_BYTES_MAX,
        }
    }

    /// Whether a read-only session must not call it.
    pub(crate) fn writes(self) -> bool {
        use Method::*;
        matches!(
            self,
            NewOids
                | Begin
                | Store
                | Delete
                | CheckCurrent
                | Restore
                | Undo
                | BlobStart
                | BlobChunk
                | BlobEnd
                | BlobShared
                | Vote
                | Finish
                | Abort
        )
    }
}

/// Name, method, least and most arguments.
const METHODS: &[(&str, Method, usize, usize)] = &[
    ("loadBefore", Method::LoadBefore, 2, 2),
    ("storea", Method::Store, 4, 4),
    ("tpc_begin", Method::Begin, 6, 6),
    ("vote", Method::Vote, 1, 1),
    ("tpc_finish", Method::Finish, 1, 1),
    ("tpc_abort", Method::Abort, 1, 1),
    ("checkCurrentSerialInTransaction", Method::CheckCurrent, 3, 3),
    ("deleteObject", Method::Delete, 3, 3),
    ("restorea", Method::Restore, 5, 5),
    ("undoa", Method::Undo, 2, 2),
    ("storeBlobStart", Method::BlobStart, 0, 0),
    ("storeBlobChunk", Method::BlobChunk, 1, 1),
    ("storeBlobEnd", Method::BlobEnd, 4, 4),
    ("storeBlobShared", Method::BlobShared, 5, 5),
    ("sendBlob", Method::SendBlob, 2, 2),
    ("lastTransaction", Method::LastTransaction, 0, 0),
    ("ping", Method::Ping, 0, 0),
    ("new_oids", Method::NewOids, 0, 1),
    ("new_oid", Method::NewOid, 0, 0),
    ("loadSerial", Method::LoadSerial, 2, 2),
    ("getTid", Method::GetTid, 1, 1),
    ("history", Method::History, 1, 2),
    ("register", Method::Register, 2, 2),
    ("get_info", Method::GetInfo, 0, 0),
    ("getInvalidations", Method::GetInvalidations, 1, 1),
    ("server_status", Method::ServerStatus, 0, 0),
    ("set_client_label", Method::SetClientLabel, 1, 1),
    ("record_iternext", Method::RecordIternext, 0, 1),
    ("undoLog", Method::UndoLog, 2, 2),
    ("undoInfo", Method::UndoInfo, 0, 3),
    ("pack", Method::Pack, 1, 2),
    ("iterator_start", Method::IteratorStart, 2, 2),
    ("iterator_next", Method::IteratorNext, 1, 1),
    ("iterator_record_start", Method::IteratorRecordStart, 2, 2),
    ("iterator_record_next", Method::IteratorRecordNext, 1, 1),
    ("iterator_gc", Method::IteratorGc, 1, 1),
    // Zodium's own methods.
    (OWN_METHODS[0], Method::IteratorRead, 3, 3),
    (OWN_METHODS[1], Method::ObjectsRead, 2, 2),
];

/// Methods that stock servers do not have. `get_info` announces them, so that clients do not call
/// them on other servers.
pub(crate) const OWN_METHODS: [&str; 2] = ["zodium_iterator_read", "zodium_objects_read"];

/// The arguments of one call, taken one by one.
pub(crate) struct Arguments<'a> {
    name: &'a str,
    /// The buffer of the message, if it has one of its own.
    frame: Option<&'a Bytes>,
    items: std::vec::IntoIter<Value<'a>>,
}

impl<'a> Arguments<'a> {
    /// Creates the arguments of a call; checks their number.
    pub(crate) fn new(
        method: Method,
        name: &'a str,
        items: Vec<Value<'a>>,
        frame: Option<&'a Bytes>,
    ) -> Result<Arguments<'a>, Exception> {
        let (least, most) = method.arity();
        let given = items.len();
        if given < least || given > most {
            return Err(Exception::type_error(format!(
                "{name}() takes {least} to {most} arguments but {given} were given"
            )));
        }
        Ok(Arguments { name, frame, items: items.into_iter() })
    }

    /// The next argument; `Value::None` for an omitted one.
    pub(crate) fn value(&mut self) -> Value<'a> {
        self.items.next().unwrap_or(Value::None)
    }

    pub(crate) fn oid(&mut self) -> Result<Oid, Exception> {
        let value = self.value();
        value.as_oid().ok_or_else(|| self.expected("an oid of 8 bytes", &value))
    }

    pub(crate) fn tid(&mut self) -> Result<Tid, Exception> {
        let value = self.value();
        value.as_tid().ok_or_else(|| self.expected("a tid of 8 bytes", &value))
    }

    /// The serial of the revision that a store replaces.
    ///
    /// Clients also send `None` for a new object. Some programs, written for Python 2, still send
    /// serials as text.
    pub(crate) fn serial(&mut self) -> Result<Tid, Exception> {
        match self.value() {
            Value::None => Ok(Tid::ZERO),
            value => {
                let tid = value.as_tid().or_else(|| tid_of_text(value.as_str()?));
                tid.ok_or_else(|| self.expected("a tid of 8 bytes or None", &value))
            }
        }
    }

    pub(crate) fn optional_tid(&mut self) -> Result<Option<Tid>, Exception> {
        match self.value() {
            Value::None => Ok(None),
            value => match value.as_tid() {
                Some(tid) => Ok(Some(tid)),
                None => Err(self.expected("a tid of 8 bytes or None", &value)),
            },
        }
    }

    /// Bytes to be kept: shared with the frame if possible, else copied.
    pub(crate) fn data(&mut self) -> Result<Bytes, Exception> {
        match self.value() {
            Value::Bytes(data) => Ok(keep(data, self.frame)),
            value => Err(self.expected("bytes", &value)),
        }
    }

    pub(crate) fn optional_data(&mut self) -> Result<Option<Bytes>, Exception> {
        match self.value() {
            Value::None => Ok(None),
            Value::Bytes(data) => Ok(Some(keep(data, self.frame))),
            value => Err(self.expected("bytes or None", &value)),
        }
    }

    /// Bytes, or text as UTF-8.
    pub(crate) fn text_bytes(&mut self) -> Result<Vec<u8>, Exception> {
        match self.value() {
            Value::Bytes(bytes) => Ok(bytes.into_owned()),
            Value::Str(text) => Ok(text.into_owned().into_bytes()),
            value => Err(self.expected("bytes", &value)),
        }
    }

    /// An integer; a boolean counts as 0 or 1.
    pub(crate) fn integer(&mut self) -> Result<i64, Exception> {
        let value = self.value();
        let number = value.as_int().ok_or_else(|| self.expected("an integer", &value))?;
        Ok(i64::try_from(number).unwrap_or(if number.is_negative() { i64::MIN } else { i64::MAX }))
    }

    /// As [`Arguments::integer`], with a default for an omitted argument.
    pub(crate) fn integer_or(&mut self, default: i64) -> Result<i64, Exception> {
        if self.items.len() == 0 { Ok(default) } else { self.integer() }
    }

    /// A transaction number: any value, compared by equality.
    pub(crate) fn owned(&mut self) -> Value<'static> {
        self.value().into_owned()
    }

    fn expected(&self, what: &str, found: &Value<'_>) -> Exception {
        Exception::type_error(format!("{}(): expected {what}, got {}", self.name, found.kind()))
    }
}

/// A tid whose bytes were sent as characters with these codes.
fn tid_of_text(text: &str) -> Option<Tid> {
    let bytes: Result<Vec<u8>, _> = text.chars().map(|c| u8::try_from(u32::from(c))).collect();
    Tid::from_slice(&bytes.ok()?)
}

/// Keeps bytes beyond the lifetime of their frame. A large frame has a buffer of its own, which can
/// be shared. A small one is in a buffer that is reused, so its bytes are copied.
fn keep(data: Cow<'_, [u8]>, frame: Option<&Bytes>) -> Bytes {
    match (data, frame) {
        (Cow::Borrowed(slice), Some(frame)) => frame.slice_ref(slice),
        (Cow::Borrowed(slice), None) => Bytes::copy_from_slice(slice),
        (Cow::Owned(bytes), _) => Bytes::from(bytes),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn an_integer_beyond_the_range_is_the_nearest_one_in_it() {
        let integer = |value: Value<'static>| {
            let method = Method::parse("zodium_iterator_read").unwrap();
            let items = vec![value, Value::None, Value::None];
            Arguments::new(method, "zodium_iterator_read", items, None).unwrap().integer()
        };
        for (given, taken) in [
            (Value::Int(7), 7),
            (Value::Int(-7), -7),
            (Value::Int(i128::from(i64::MAX) + 1), i64::MAX),
            (Value::Int(i128::from(i64::MIN) - 1), i64::MIN),
            (Value::Bool(true), 1),
        ] {
            assert_eq!(integer(given), Ok(taken));
        }
        assert_eq!(integer("7".into()).unwrap_err().name, "builtins.TypeError");
    }

    #[test]
    fn every_method_has_one_name_and_a_number_of_its_own() {
        let numbers: BTreeSet<_> = Method::all().map(|(_, method)| method as usize).collect();
        assert!(numbers.into_iter().eq(0..Method::COUNT));
    }
}
