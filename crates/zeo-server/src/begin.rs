//! `tpc_begin`: the beginning of a transaction, and its metadata.

use zodium_engine::Transaction;
use zodium_pickle::{Value, decode, encode};
use zodium_types::{TransactionMetadata, TransactionStatus};

use crate::exception::Exception;
use crate::undo_log::EXTENSION_LIMITS;

/// Creates a transaction of the arguments that follow its id.
pub(crate) fn new_transaction(
    user: Vec<u8>,
    description: Vec<u8>,
    extension: Value<'_>,
    tid: &Value<'_>,
    status: &Value<'_>,
) -> Result<Transaction, Exception> {
    let extension = extension_bytes(extension)?;
    let explicit_tid = match tid {
        Value::None => None,
        tid => Some(tid.as_tid().ok_or_else(|| Exception::value_error("8-byte array expected"))?),
    };
    let metadata = TransactionMetadata { user, description, extension };
    Transaction::new(metadata, explicit_tid, transaction_status(status)?).map_err(|error| {
        Exception::file_storage_error(match error.field {
            "user" => "user name too long",
            "description" => "description too long",
            _ => "too much extension data",
        })
    })
}

/// The extension as Data.fs stores it: a pickle, or no bytes if it is empty.
///
/// # Errors
/// When it is no dict of plain data.
pub fn extension_bytes(extension: Value<'_>) -> Result<Vec<u8>, Exception> {
    match extension {
        Value::None => Ok(Vec::new()),
        Value::Bytes(pickled) if pickled.is_empty() => Ok(Vec::new()),
        // Already pickled; kept unchanged if it is a dict.
        Value::Bytes(pickled) => match decode(&pickled, &EXTENSION_LIMITS) {
            Ok((Value::Dict(_), _)) => Ok(pickled.into_owned()),
            _ => Err(Exception::value_error("the extension is not a pickled dict")),
        },
        Value::Dict(entries) if entries.is_empty() => Ok(Vec::new()),
        value @ Value::Dict(_) => {
            let mut bytes = Vec::new();
            encode(&value, &mut bytes);
            Ok(bytes)
        }
        Value::List(pairs) | Value::Tuple(pairs) => extension_of_pairs(pairs),
        // A subclass of dict may be pickled as a call of `dict`, which requests may contain.
        Value::Object(object) if object.class().is_some_and(|class| class.name() == "dict") => {
            let arguments = object.arguments.into_sequence().unwrap_or_default();
            let pairs = arguments.into_iter().next().and_then(Value::into_sequence);
            extension_of_pairs(pairs.unwrap_or_default())
        }
        other => {
            Err(Exception::type_error(format!("the extension is a dict, got {}", other.kind())))
        }
    }
}

/// The extension from a sequence of pairs, as Python's `dict()` takes it.
fn extension_of_pairs(pairs: Vec<Value<'_>>) -> Result<Vec<u8>, Exception> {
    let mut entries = Vec::with_capacity(pairs.len());
    for pair in pairs {
        let pair = pair.into_sequence().unwrap_or_default();
        let Ok([key, value]) = <[Value<'_>; 2]>::try_from(pair) else {
            return Err(Exception::type_error("the extension is a dict"));
        };
        entries.push((key, value));
    }
    extension_bytes(Value::Dict(entries))
}

fn transaction_status(status: &Value<'_>) -> Result<TransactionStatus, Exception> {
    let byte = match status {
        Value::Str(text) => text.as_bytes(),
        Value::Bytes(bytes) => bytes.as_ref(),
        _ => b"?",
    };
    match byte {
        b"" => Ok(TransactionStatus::Normal),
        [byte] => TransactionStatus::from_byte(*byte)
            .ok_or_else(|| Exception::value_error("a transaction's status is ' ', 'p' or 'u'")),
        _ => Err(Exception::value_error("a transaction's status is ' ', 'p' or 'u'")),
    }
}
