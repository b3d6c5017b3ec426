//! Answers to reading requests, which also callers of the same process may ask for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use zodium_engine::Database;
use zodium_pickle::Value;
use zodium_storage::HistoryEntry;
use zodium_types::{Oid, Tid};
use zodium_zeo::codec::Encoding;

use crate::call::{Arguments, Method};
use crate::exception::{Exception, oid_value, text_value, tid_value};
use crate::info;
use crate::pack::{self, tid_of_time};
use crate::undo_log::{
    self, Entries, LISTED_MAX, Listed, Window, listed_extension, metadata_entries,
};

/// Answers a call of a method that reads or packs, as a session does. Blocking.
///
/// # Errors
/// The exception that a client would get.
pub fn answer(
    storage: &Arc<Database>,
    name: &str,
    arguments: Vec<Value<'_>>,
) -> Result<Value<'static>, Exception> {
    let unknown = || Exception::type_error(format!("{name}() cannot be called without a server"));
    let method = Method::parse(name).ok_or_else(unknown)?;
    let mut arguments = Arguments::new(method, name, arguments, None)?;
    // A caller of this process takes every value that a pickle can have.
    let encoding = Encoding::Pickle;
    match method {
        Method::GetInfo => Ok(info::info(storage)),
        Method::LoadSerial => load_serial(storage, arguments.oid()?, arguments.tid()?),
        Method::GetTid => current_tid(storage, arguments.oid()?),
        Method::History => {
            let asked = (arguments.oid()?, arguments.integer_or(1)?);
            history(storage, encoding, asked, &AtomicBool::new(false))
        }
        Method::RecordIternext => next_object(storage, first_oid(&arguments.value())?),
        Method::UndoLog => {
            let window = Window::new(arguments.integer()?, arguments.integer()?);
            undo_log::list(storage, encoding, &window, &[], &AtomicBool::new(false))
        }
        Method::UndoInfo => {
            let window = Window::new(arguments.integer_or(0)?, arguments.integer_or(-20)?);
            let specification = undo_log::specification(arguments.owned());
            undo_log::list(storage, encoding, &window, &specification, &AtomicBool::new(false))
        }
        Method::Pack => {
            let until = tid_of_time(&arguments.value())?;
            pack::run(storage, until, "this process").map_err(Exception::from)?;
            Ok(Value::None)
        }
        _ => Err(unknown()),
    }
}

/// The data that a transaction wrote for an object.
pub(crate) fn load_serial(
    storage: &Database,
    oid: Oid,
    serial: Tid,
) -> Result<Value<'static>, Exception> {
    let data = storage.reader().load_serial(oid, serial)?;
    let data = data.ok_or_else(|| Exception::missing_key(oid))?;
    Ok(Value::Bytes(Vec::from(data).into()))
}

/// The serial of an object that is there.
pub(crate) fn current_tid(storage: &Database, oid: Oid) -> Result<Value<'static>, Exception> {
    let serial = storage.reader().serial_of_living(oid)?;
    serial.map(tid_value).ok_or_else(|| Exception::missing_key(oid))
}

/// The newest revisions of an object. A long history ends when the connection has ended.
pub(crate) fn history(
    storage: &Database,
    encoding: Encoding,
    (oid, count): (Oid, i64),
    gone: &AtomicBool,
) -> Result<Value<'static>, Exception> {
    let count = usize::try_from(count).unwrap_or(0);
    let (mut listed, mut is_known, mut refused) = (Listed::default(), false, None);
    // An unknown object is an error even if no entries are requested.
    let most = count.clamp(1, LISTED_MAX + 1);
    storage.reader().each_revision(oid, most, &mut |entry| {
        is_known = true;
        if count == 0 || gone.load(Ordering::Relaxed) {
            return false;
        }
        refused = listed.push(history_entries(&entry, encoding)).err();
        refused.is_none()
    })?;
    match refused {
        Some(exception) => Err(exception),
        None if is_known => Ok(listed.into_value()),
        None => Err(Exception::missing_key(oid)),
    }
}

/// Where a step of a walk over all objects begins.
pub(crate) fn first_oid(from: &Value<'_>) -> Result<Oid, Exception> {
    match from {
        Value::None => Ok(Oid(0)),
        value => value.as_oid().ok_or_else(|| {
            Exception::value_error("record_iternext(): expected an oid of 8 bytes or None")
        }),
    }
}

/// One step of a walk over all objects.
pub(crate) fn next_object(storage: &Database, from: Oid) -> Result<Value<'static>, Exception> {
    let Some(step) = storage.reader().next_object(from)? else {
        return Err(Exception::value_error("no key satisfies the conditions"));
    };
    let data = step.data.ok_or_else(|| Exception::missing_key(step.oid))?;
    Ok(Value::tuple([
        oid_value(step.oid),
        tid_value(step.serial),
        Value::Bytes(Vec::from(data).into()),
        step.following.map_or(Value::None, oid_value),
    ]))
}

fn history_entries(entry: &HistoryEntry, encoding: Encoding) -> Entries {
    let transaction = &entry.transaction;
    let mut own = metadata_entries(transaction);
    own.push((text_value("tid"), tid_value(transaction.tid)));
    own.push((text_value("size"), Value::Int(entry.size.into())));
    let mut entries = listed_extension(transaction, encoding);
    // As in the stock server, an application's entry never stands for one of these.
    entries.retain(|(key, _)| own.iter().all(|(name, _)| name.as_str() != key.as_str()));
    own.extend(entries);
    own
}
