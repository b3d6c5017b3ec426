//! The metadata of a transaction.

use bytes::Bytes;
use zodium_pickle::Value;
use zodium_types::Tid;
use zodium_zeo::codec::REPLY_LIMITS;

use crate::ClientError;

/// A committed transaction without its records.
#[derive(Clone, Debug, PartialEq)]
pub struct TransactionHead {
    /// Its tid.
    pub tid: Tid,
    /// `p` if it was packed, else a space.
    pub status: char,
    /// The user that committed it; UTF-8 by convention.
    pub user: Vec<u8>,
    /// Its description; UTF-8 by convention.
    pub description: Vec<u8>,
    /// Further metadata.
    pub extension: Extension,
}

/// The metadata of a transaction beside user and description.
#[derive(Clone, Debug, PartialEq)]
pub enum Extension {
    /// A pickled dict, exactly as in the file; empty for an empty dict.
    Pickle(Bytes),
    /// A dict, from a server that does not send the pickle.
    Dict(Value<'static>),
}

impl Extension {
    /// Decodes the extension.
    pub fn into_dict(self) -> Result<Value<'static>, ClientError> {
        match self {
            Extension::Dict(dict) => Ok(dict),
            Extension::Pickle(pickle) if pickle.is_empty() => Ok(Value::Dict(Vec::new())),
            Extension::Pickle(pickle) => {
                let decoded = zodium_pickle::decode_extension(&pickle, &REPLY_LIMITS);
                decoded.map(Value::into_owned).map_err(|error| {
                    ClientError::options(format!("an extension that is no plain data: {error}"))
                })
            }
        }
    }
}

impl TransactionHead {
    pub(super) fn from_answer(answer: Value<'static>) -> Result<TransactionHead, ClientError> {
        let parts = answer.into_sequence().map(<[Value<'_>; 5]>::try_from);
        if let Some(Ok([tid, status, user, description, extension])) = parts
            && let Some(tid) = tid.as_tid()
        {
            let status = status.as_str().and_then(|text| text.chars().next()).unwrap_or(' ');
            let bytes = |value: &Value<'_>| value.as_bytes().unwrap_or_default().to_vec();
            let (user, description) = (bytes(&user), bytes(&description));
            let extension = Extension::Dict(extension);
            return Ok(TransactionHead { tid, status, user, description, extension });
        }
        Err(ClientError::Unexpected { method: "iterator_next", expected: "a transaction" })
    }
}
