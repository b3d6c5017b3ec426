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

#[cfg(test)]
mod tests {
    use super::*;

    /// `pickle.dumps({"a": 1}, 2)`, without a memo.
    const PICKLED: &[u8] = b"\x80\x02}X\x01\x00\x00\x00aK\x01s.";

    /// What is stored of an extension, as a dict; `None` for no bytes.
    fn stored(extension: Value<'_>) -> Result<Option<Value<'static>>, &'static str> {
        let bytes = extension_bytes(extension).map_err(|error| error.name)?;
        match bytes.is_empty() {
            true => Ok(None),
            false => Ok(Some(decode(&bytes, &EXTENSION_LIMITS).unwrap().0.into_owned())),
        }
    }

    #[test]
    fn an_extension_comes_in_several_forms_and_an_empty_one_takes_no_bytes() {
        let dict = || Value::dict([("a", 1.into())]);
        let pair = || Value::tuple(["a".into(), 1.into()]);
        for empty in [
            Value::None,
            Value::from(b""),
            Value::dict::<&str>([]),
            Value::list([]),
            Value::tuple([]),
        ] {
            assert_eq!(stored(empty), Ok(None));
        }
        for one in [dict(), Value::from(PICKLED), Value::list([pair()]), Value::tuple([pair()])] {
            assert_eq!(stored(one), Ok(Some(dict())));
        }
        assert_eq!(extension_bytes(PICKLED.into()).unwrap(), PICKLED, "it is kept as it is");
    }

    /// Pickled as `dict([("a", 1)])`.
    #[test]
    fn an_extension_may_be_a_call_of_dict_and_of_nothing_else() {
        let call = |module: &[u8]| {
            let pickle = [b"c", module, b"\n((l(X\x01\0\0\0aK\x01tatR."].concat();
            decode(&pickle, &EXTENSION_LIMITS).unwrap().0.into_owned()
        };
        let dict = Value::dict([("a", 1.into())]);
        assert_eq!(stored(call(b"builtins\ndict")), Ok(Some(dict)));
        assert_eq!(stored(call(b"builtins\nlist")), Err("builtins.TypeError"));
    }

    #[test]
    fn an_extension_that_is_no_dict_is_refused() {
        for (other, name) in [
            (Value::from(1), "builtins.TypeError"),
            (Value::from("a"), "builtins.TypeError"),
            (Value::list([Value::tuple(["a".into()])]), "builtins.TypeError"),
            (Value::from(b"no pickle"), "builtins.ValueError"),
            (Value::from(b"K\x01."), "builtins.ValueError"),
        ] {
            assert_eq!(stored(other), Err(name));
        }
    }

    #[test]
    fn a_transaction_is_normal_unless_its_status_says_otherwise() {
        for (given, status) in [
            (Value::from(""), Some(TransactionStatus::Normal)),
            (Value::from(" "), Some(TransactionStatus::Normal)),
            (Value::from(b" "), Some(TransactionStatus::Normal)),
            (Value::from("p"), Some(TransactionStatus::Packed)),
            (Value::from(b"u"), Some(TransactionStatus::Undone)),
            (Value::from("x"), None),
            (Value::from("pu"), None),
            (Value::None, None),
        ] {
            let found = transaction_status(&given).map_err(|error| error.name);
            assert_eq!(found, status.ok_or("builtins.ValueError"), "{given:?}");
        }
    }

    #[test]
    fn metadata_that_are_too_long_are_named() {
        let long = || vec![b'x'; usize::from(u16::MAX) + 1];
        let refusal = |user, description, extension| {
            let none = Value::None;
            let refused = new_transaction(user, description, extension, &none, &" ".into());
            let Exception { name, payload } = refused.unwrap_err();
            assert_eq!(name, "ZODB.FileStorage.FileStorage.FileStorageError");
            payload.as_sequence().unwrap()[0].as_str().unwrap().to_owned()
        };
        let (none, empty) = (|| Value::None, Vec::new);
        assert_eq!(refusal(long(), empty(), none()), "user name too long");
        assert_eq!(refusal(empty(), long(), none()), "description too long");
        let extension = Value::dict([("a", Value::from(long()))]);
        assert_eq!(refusal(empty(), empty(), extension), "too much extension data");
    }
}
