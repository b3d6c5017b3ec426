//! Transactions as dicts: the undo log, and the parts that it shares with histories.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tokio::sync::Semaphore;
use zodium_engine::Database;
use zodium_pickle::{Limits, Object, Objects, Value, decode};
use zodium_storage::Transaction;
use zodium_types::Tid;

use crate::call::Arguments;
use crate::exception::{Exception, text_value};
use crate::peer::Peer;
use crate::replies::{Reply, ReplyTo};

/// Limits of an extension. It has at most 65,535 bytes, but a pickle's memo can expand them.
pub(crate) const EXTENSION_LIMITS: Limits =
    Limits { nesting: 100, nodes: 1 << 16, objects: Objects::Allowed };

/// Most transactions or revisions in one answer.
pub(crate) const LISTED_MAX: usize = 100_000;

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
    let gone = peer.jobs.gone();
    Ok(peer.search(to, places, move |storage| list(storage, &window, &[], &gone)))
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
    let gone = peer.jobs.gone();
    Ok(peer.search(to, places, move |storage| list(storage, &window, &specification, &gone)))
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
}

/// Lists transactions. A filter that matches few reads the whole log, so it ends when the
/// connection has ended.
pub(crate) fn list(
    storage: &Database,
    window: &Window,
    specification: &[(Value<'static>, Value<'static>)],
    gone: &AtomicBool,
) -> Result<Value<'static>, Exception> {
    let mut listed = Vec::new();
    let mut seen = 0;
    let mut is_too_long = false;
    storage.undo_side()?.undo_log(&mut |transaction| {
        if seen >= window.last || gone.load(Ordering::Relaxed) {
            return false;
        }
        let entries = description(transaction);
        if !matches(&entries, specification) {
            return true;
        }
        if listed.len() == LISTED_MAX {
            is_too_long = true;
            return false;
        }
        if seen >= window.first {
            listed.push(Value::Dict(entries));
        }
        seen += 1;
        seen < window.last
    })?;
    if is_too_long { Err(too_many_listed()) } else { Ok(Value::List(listed)) }
}

pub(crate) fn too_many_listed() -> Exception {
    Exception::value_error(format!("ask for at most {LISTED_MAX} at once"))
}

fn description(transaction: &Transaction) -> Entries {
    let mut entries = metadata_entries(transaction);
    let id = STANDARD.encode(transaction.tid.to_bytes());
    entries.push((text_value("id"), Value::Bytes(id.into_bytes().into())));
    entries.push((text_value("size"), Value::Int(transaction.length.into())));
    entries.extend(listed_extension(transaction));
    entries
}

/// Whether every key of the specification has that value, or a path below it.
fn matches(entries: &Entries, specification: &[(Value<'static>, Value<'static>)]) -> bool {
    specification.iter().all(|(key, wanted)| {
        entries.iter().any(|(found, value)| found == key && value_matches(value, wanted))
    })
}

fn value_matches(value: &Value<'_>, wanted: &Value<'_>) -> bool {
    match (wanted.as_object(), text_of(value)) {
        (Some(prefix), Some(text)) => has_prefix(text, prefix),
        _ => value == wanted || text_of(value).is_some_and(|t| text_of(wanted) == Some(t)),
    }
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
/// undo the other transactions: text with surrogates, say, or instances.
pub(crate) fn listed_extension(transaction: &Transaction) -> Entries {
    let limits = Limits { objects: Objects::Refused, ..EXTENSION_LIMITS };
    decoded_extension(transaction, &limits).unwrap_or_default()
}

/// The extension as dict entries.
///
/// # Errors
/// For one that no message can carry. A copy of the transaction must not lose it.
pub(crate) fn extension_entries(transaction: &Transaction) -> Result<Entries, Exception> {
    decoded_extension(transaction, &EXTENSION_LIMITS)
}

fn decoded_extension(transaction: &Transaction, limits: &Limits) -> Result<Entries, Exception> {
    let pickled = &transaction.metadata.extension;
    if pickled.is_empty() {
        return Ok(Vec::new());
    }
    let unreadable = |why: String| {
        let tid = transaction.tid;
        Exception::value_error(format!("the extension of transaction {tid} cannot be sent: {why}"))
    };
    match decode(pickled, limits) {
        Ok((value, _)) => match value.into_owned() {
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
    fn a_prefix_matches_whole_parts_of_a_path_before_the_name() {
        // pickle.dumps(Prefix('/a/b'), 3)
        let pickled = b"\x80\x03cZopeUndo.Prefix\nPrefix\nq\x00)\x81q\x01}q\x02(X\x06\x00\x00\x00\
            lengthq\x03K\x03X\x04\x00\x00\x00pathq\x04]q\x05(X\x00\x00\x00\x00q\x06X\x01\x00\x00\
            \x00aq\x07X\x01\x00\x00\x00bq\x08eub.";
        let (prefix, _) = decode(pickled, &EXTENSION_LIMITS).unwrap();
        let matches = |text: &str| value_matches(&Value::from(text.as_bytes()), &prefix);
        assert!(matches("/a/b"));
        assert!(matches("/a/b joe"));
        assert!(matches("/a/b/c joe"));
        assert!(!matches("/a joe"));
        assert!(!matches("/a/bc joe"));
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
    }
}
