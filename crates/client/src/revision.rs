//! A revision of an object, as loads return it.

use bytes::Bytes;
use zodium_pickle::Value;
use zodium_types::Tid;

use crate::ClientError;

/// One revision of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revision {
    /// The data record: two pickles.
    pub data: Bytes,
    /// The transaction that wrote it.
    pub serial: Tid,
    /// The transaction that wrote the next revision; `None` if there is none as far as is known.
    pub end: Option<Tid>,
}

impl Revision {
    /// Decodes the reply to `loadBefore`.
    pub(crate) fn from_answer(answer: Value<'_>) -> Result<Revision, ClientError> {
        let parts = answer.into_sequence().map(<[Value<'_>; 3]>::try_from);
        if let Some(Ok([Value::Bytes(data), serial, end])) = parts
            && let Some(serial) = serial.as_tid()
        {
            let data = Bytes::from(data.into_owned());
            return Ok(Revision { data, serial, end: end.as_tid() });
        }
        Err(ClientError::Unexpected { method: "loadBefore", expected: "a revision" })
    }
}
