//! Transactions as dicts: the undo log, and the parts that it shares with histories.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tokio::sync::Semaphore;
use zodium_engine::Database;
use zodium_pickle::{Limits, Object, Objects, Value, decode_extension};
use zodium_storage::Transaction;
use zodium_types::Tid;
use zodium_zeo::codec::{Encoding, msgpack};

use crate::call::Arguments;
use crate::exception::{Exception, text_value};
use crate::peer::Peer;
use crate::replies::{Reply, ReplyTo};

/// Limits of an extension. It has at most 65,535 bytes, but a pickle's memo can expand them.
pub(crate) const EXTENSION_LIMITS: Limits =
    Limits { nesting: 100, nodes: 1 << 16, objects: Objects::Allowed };

/// Most transactions or revisions in one answer.
pub(crate) const LISTED_MAX: usize = 100_000;

/// Most bytes of memory for the entries of one answer: more than as many usual ones take.
const LISTED_BYTES_MAX: usize = 96 << 20;

/// The entries of a dict.
pub(crate) type Entries = Vec<(Value<'static>, Value<'static>)>;

/// Answers `undoLog`. `places` are those for logs that are being read.
pub(crate) fn undo_log(
    peer: &Rc<Peer>,
    places: Arc<Semaphore>,
    to: &ReplyTo,
    arguments: &mut Arguments<'_>,
) -> Result<Reply, Exception> {
    let window = Window::new(arguments.integer()?, arguments.integer()?);
    let (encoding, gone) = (peer.replies.encoding(), peer.jobs.gone());
    Ok(peer.search(to, places, move |storage| list(storage, encoding, &window, &[], &gone)))
}

/// Answers `undoInfo`, which has a filter.
pub(crate) fn undo_info(
    peer: &Rc<Peer>,
    places: Arc<Semaphore>,
    to: &ReplyTo,
    arguments: &mut Arguments<'_>,
) -> Result<Reply, Exception> {
    let window = Window::new(arguments.integer_or(0)?, arguments.integer_or(-20)?);
    let specification = specification(arguments.owned());
    let (encoding, gone) = (peer.replies.encoding(), peer.jobs.gone());
    Ok(peer
        .search(to, places, move |storage| list(storage, encoding, &window, &specification, &gone)))
}

/// The entries that a transaction must have to be listed.
pub(crate) fn specification(given: Value<'static>) -> Entries {
    match given {
        Value::Dict(entries) => entries,
        _ => Vec::new(),
    }
}

/// The range of matching transactions to give, newest first.
pub(crate) struct Window {
    first: usize,
    last: usize,
}

impl Window {
    /// The range of `undoLog(first, last)`: a negative `last` is a count.
    pub(crate) fn new(first: i64, last: i64) -> Window {
        let first = usize::try_from(first).unwrap_or(0);
        let last = match usize::try_from(last) {
            Ok(last) => last,
            Err(_) => first.saturating_add(usize::try_from(last.unsigned_abs()).unwrap_or(0)),
        };
        Window { first, last }
    }

    fn is_empty(&self) -> bool {
        self.first >= self.last
    }
}

/// Lists transactions. A filter that matches few reads the whole log, so it ends when the
/// connection has ended.
pub(crate) fn list(
    storage: &Database,
    encoding: Encoding,
    window: &Window,
    specification: &[(Value<'static>, Value<'static>)],
    gone: &AtomicBool,
) -> Result<Value<'static>, Exception> {
    let (mut listed, mut seen, mut refused) = (Listed::default(), 0, None);
    let undo_side = storage.undo_side()?;
    if window.is_empty() {
        return Ok(listed.into_value());
    }
    undo_side.undo_log(&mut |transaction| {
        if gone.load(Ordering::Relaxed) {
            return false;
        }
        let entries = description(transaction, encoding);
        if !matches(&entries, specification) {
            return true;
        }
        if seen >= window.first
            && let Err(exception) = listed.push(entries)
        {
            refused = Some(exception);
            return false;
        }
        seen += 1;
        seen < window.last
    })?;
    refused.map_or_else(|| Ok(listed.into_value()), Err)
}

/// The entries of an answer, within the limits.
#[derive(Default)]
pub(crate) struct Listed {
    dicts: Vec<Value<'static>>,
    bytes: usize,
}

impl Listed {
    pub(crate) fn push(&mut self, entries: Entries) -> Result<(), Exception> {
        let dict = Value::Dict(entries);
        self.bytes += dict.memory_bytes();
        if self.dicts.len() == LISTED_MAX || self.bytes > LISTED_BYTES_MAX {
            return Err(too_many_listed(self.dicts.len()));
        }
        self.dicts.push(dict);
        Ok(())
    }

    pub(crate) fn into_value(self) -> Value<'static> {
        Value::List(self.dicts)
    }
}

fn too_many_listed(most: usize) -> Exception {
    Exception::value_error(format!("ask for at most {most} at once"))
}

fn description(transaction: &Transaction, encoding: Encoding) -> Entries {
    let mut entries = metadata_entries(transaction);
    let id = STANDARD.encode(transaction.tid.to_bytes());
    entries.push((text_value("id"), Value::Bytes(id.into_bytes().into())));
    entries.push((text_value("size"), Value::Int(transaction.length.into())));
    entries.extend(listed_extension(transaction, encoding));
    entries
}

/// Whether every key of the specification has that value, or a path below it. As in a dict, the
/// last of equal keys counts; and as with Python's `get`, an absent one is `None`.
fn matches(entries: &Entries, specification: &[(Value<'static>, Value<'static>)]) -> bool {
    specification.iter().all(|(key, wanted)| {
        let found = entries.iter().rev().find(|(found, _)| is_equal(found, key));
        value_matches(found.map_or(&Value::None, |(_, value)| value), wanted)
    })
}

fn value_matches(value: &Value<'_>, wanted: &Value<'_>) -> bool {
    match (wanted.as_object(), text_of(value)) {
        (Some(prefix), Some(text)) => has_prefix(text, prefix),
        _ => is_equal(value, wanted) || text_of(value).is_some_and(|t| text_of(wanted) == Some(t)),
    }
}

/// Whether values are equal in Python, where numbers are by what they count: `1 == 1.0 == True`.
fn is_equal(one: &Value<'_>, two: &Value<'_>) -> bool {
    match (one, two) {
        (Value::List(ones), Value::List(twos)) | (Value::Tuple(ones), Value::Tuple(twos)) => {
            ones.len() == twos.len() && ones.iter().zip(twos).all(|(one, two)| is_equal(one, two))
        }
        (Value::Float(float), number) | (number, Value::Float(float)) if is_integer(number) => {
            float.fract() == 0.0 && number.as_int() == Some(*float as i128)
        }
        _ if is_integer(one) => one.as_int() == two.as_int(),
        _ => one == two,
    }
}

/// Whether it is an integer of at most 128 bits, or a boolean.
fn is_integer(value: &Value<'_>) -> bool {
    value.as_int().is_some()
}

/// Whether a user ("path name" in Zope) is below the path of a `ZopeUndo.Prefix.Prefix`, whose
/// state has the parts of the path.
fn has_prefix(text: &str, prefix: &Object<'_>) -> bool {
    let state = prefix.state.as_ref();
    let Some(path) = state.and_then(|state| state.entry("path")?.as_sequence()) else {
        return false;
    };
    let mut parts: Vec<&str> = text.split('/').collect();
    if let Some(last) = parts.last_mut() {
        *last = last.rsplit_once(' ').map_or(*last, |(path, _name)| path);
    }
    parts.len() >= path.len() && path.iter().zip(&parts).all(|(a, b)| text_of(a) == Some(*b))
}

fn text_of<'v>(value: &'v Value<'_>) -> Option<&'v str> {
    match value {
        Value::Str(text) => Some(text),
        Value::Bytes(bytes) => std::str::from_utf8(bytes).ok(),
        _ => None,
    }
}

/// Time, user and description of a transaction, as dict entries.
pub(crate) fn metadata_entries(transaction: &Transaction) -> Entries {
    let metadata = &transaction.metadata;
    vec![
        (text_value("time"), Value::Float(transaction.tid.to_unix_seconds())),
        (text_value("user_name"), Value::Bytes(metadata.user.clone().into())),
        (text_value("description"), Value::Bytes(metadata.description.clone().into())),
    ]
}

/// The extension as dict entries, for a list. One that clients refuse is left out, so that they can
/// undo the other transactions: text with surrogates, say, or instances, and what msgpack lacks.
pub(crate) fn listed_extension(transaction: &Transaction, encoding: Encoding) -> Entries {
    let Ok(entries) = extension_entries(transaction) else { return Entries::new() };
    let dict = Value::Dict(entries);
    let is_sent = encoding == Encoding::Pickle || msgpack::encode(&dict, &mut Vec::new()).is_ok();
    match dict {
        Value::Dict(entries) if is_sent => entries,
        _ => Entries::new(),
    }
}

/// The extension as dict entries.
///
/// # Errors
/// For one that clients refuse: a stock client waits for ever for an answer with an instance. A
/// copy of the transaction must not lose it.
pub(crate) fn extension_entries(transaction: &Transaction) -> Result<Entries, Exception> {
    let pickled = &transaction.metadata.extension;
    if pickled.is_empty() {
        return Ok(Vec::new());
    }
    let unreadable = |why: String| {
        let tid = transaction.tid;
        Exception::value_error(format!("the extension of transaction {tid} cannot be sent: {why}"))
    };
    match decode_extension(pickled, &EXTENSION_LIMITS) {
        Ok(value) if !value.is_plain() => Err(unreadable("it holds an instance".to_owned())),
        Ok(value) => match value.into_owned() {
            Value::Dict(entries) => Ok(entries),
            other => Err(unreadable(format!("it is not a dict but {}", other.kind()))),
        },
        Err(error) => Err(unreadable(error.to_string())),
    }
}

/// The tid in an undo id: base64 of its 8 bytes, with or without a newline.
pub fn tid_of_undo_id(id: &[u8]) -> Option<Tid> {
    Tid::from_slice(&STANDARD.decode(id.trim_ascii()).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_matches_if_each_wanted_key_has_its_value() {
        let entries: Entries = vec![
            (text_value("user_name"), Value::from(b"joe")),
            (text_value("size"), Value::Int(7)),
            (text_value("note"), Value::from("text")),
        ];
        let is_match = |wanted: &[(&str, Value<'static>)]| {
            let wanted: Vec<_> =
                wanted.iter().map(|(key, value)| (text_value(*key), value.clone())).collect();
            matches(&entries, &wanted)
        };
        assert!(is_match(&[]));
        assert!(is_match(&[("size", 7.into())]));
        // Bytes and text are the same.
        assert!(is_match(&[("user_name", "joe".into()), ("note", Value::from(b"text"))]));
        assert!(!is_match(&[("size", 8.into())]));
        assert!(!is_match(&[("size", "7".into())]));
        assert!(!is_match(&[("user_name", 7.into())]), "that is the value of another key");
        assert!(!is_match(&[("size", 7.into()), ("absent", 7.into())]));
    }

    #[test]
    fn a_transaction_matches_as_python_compares_dicts() {
        let entries: Entries = vec![
            (text_value("user_name"), Value::from(b"joe")),
            (text_value("auto"), true.into()),
            (text_value("share"), 0.5.into()),
            (text_value("tags"), Value::list([1.into(), 2.0.into()])),
            (text_value("user_name"), Value::from("the extension's")),
        ];
        let is_match = |key: &str, wanted: Value<'static>| {
            matches(&entries, &[(text_value(key.to_owned()), wanted)])
        };
        assert!(is_match("auto", 1.into()) && is_match("auto", 1.0.into()));
        assert!(!is_match("auto", 2.into()) && !is_match("auto", 1.5.into()));
        assert!(!is_match("share", 0.into()) && !is_match("auto", f64::INFINITY.into()));
        assert!(is_match("share", 0.5.into()) && !is_match("auto", "1".into()));
        assert!(is_match("tags", Value::list([1.0.into(), 2.into()])));
        assert!(!is_match("tags", Value::list([1.into()])));
        assert!(is_match("absent", Value::None) && !is_match("auto", Value::None));
        // An entry of the extension replaces the transaction's own.
        assert!(is_match("user_name", "the extension's".into()));
        assert!(!is_match("user_name", "joe".into()));
    }

    #[test]
    fn a_prefix_matches_whole_parts_of_a_path_before_the_name() {
        // pickle.dumps(Prefix('/a/b'), 3)
        let pickled = b"\x80\x03cZopeUndo.Prefix\nPrefix\nq\x00)\x81q\x01}q\x02(X\x06\x00\x00\x00\
            lengthq\x03K\x03X\x04\x00\x00\x00pathq\x04]q\x05(X\x00\x00\x00\x00q\x06X\x01\x00\x00\
            \x00aq\x07X\x01\x00\x00\x00bq\x08eub.";
        let prefix = decode_extension(pickled, &EXTENSION_LIMITS).unwrap();
        let matches = |text: &str| value_matches(&Value::from(text.as_bytes()), &prefix);
        assert!(matches("/a/b"));
        assert!(matches("/a/b joe"));
        assert!(matches("/a/b/c joe"));
        assert!(!matches("/a joe"));
        assert!(!matches("/a/bc joe"));
    }

    #[test]
    fn an_answer_is_bounded_by_the_memory_of_its_entries() {
        let mut listed = Listed::default();
        let entries = || vec![(text_value("note"), Value::from(vec![0; 1 << 20]))];
        let refused = (0..1000).find_map(|_| listed.push(entries()).err()).unwrap();
        assert_eq!(listed.into_value().as_sequence().unwrap().len(), 95);
        let said = refused.payload.as_sequence().unwrap()[0].as_str().unwrap().to_owned();
        assert_eq!(said, "ask for at most 95 at once");
        let small = || vec![(text_value("note"), Value::None); 12];
        let mut listed = Listed::default();
        assert!((0..LISTED_MAX).all(|_| listed.push(small()).is_ok()), "usual ones have room");
    }

    #[test]
    fn undo_ids_are_base64_of_the_tid() {
        assert_eq!(tid_of_undo_id(b"AAAAAAAAAQI=\n"), Some(Tid(258)));
        assert_eq!(tid_of_undo_id(b"AAAA"), None);
        assert_eq!(tid_of_undo_id(b"?"), None);
    }

    #[test]
    fn a_negative_last_is_a_count() {
        let window = Window::new(5, -20);
        assert_eq!((window.first, window.last), (5, 25));
        assert!(!window.is_empty() && !Window::new(4, 5).is_empty());
        assert!(Window::new(5, 5).is_empty() && Window::new(6, 5).is_empty());
    }
}
