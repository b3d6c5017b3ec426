//! Message ids, by which a client matches replies to requests.

use zodium_pickle::Value;
use zodium_types::{Oid, Tid};

use super::writer::Writer;
use super::{CodecError, Encoding, msgpack};

/// The id of a request.
///
/// Stock clients count their requests, except that a `loadBefore` is identified by its
/// arguments. Other ids are opaque.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum MessageId {
    /// -1: a heartbeat.
    Heartbeat,
    /// A counter; 0 in messages that get no reply.
    Number(u64),
    /// The arguments of a `loadBefore`.
    Load {
        /// The object.
        oid: Oid,
        /// The revision wanted is the last one before this transaction.
        before: Tid,
    },
    /// Any other id, in the encoding of its connection.
    Opaque(Box<[u8]>),
}

impl MessageId {
    pub(super) fn from_value(
        encoding: Encoding,
        value: &Value<'_>,
    ) -> Result<MessageId, CodecError> {
        match value {
            Value::Int(-1) => return Ok(MessageId::Heartbeat),
            Value::Int(number) => {
                if let Ok(number) = u64::try_from(*number) {
                    return Ok(MessageId::Number(number));
                }
            }
            Value::Tuple(parts) => {
                if let [oid, before] = &parts[..]
                    && let (Some(oid), Some(before)) = (oid.as_oid(), before.as_tid())
                {
                    return Ok(MessageId::Load { oid, before });
                }
            }
            _ => {}
        }
        let mut bytes = Vec::new();
        match encoding {
            Encoding::Pickle => zodium_pickle::encode_body(value, &mut bytes),
            Encoding::Msgpack => msgpack::encode(value, &mut bytes)?,
        }
        Ok(MessageId::Opaque(bytes.into()))
    }

    pub(super) fn write(&self, out: &mut Writer<'_>) -> Result<(), CodecError> {
        match self {
            MessageId::Heartbeat => return out.int(-1),
            MessageId::Number(number) => return out.int((*number).into()),
            MessageId::Load { oid, before } => out.ids(*oid, *before),
            MessageId::Opaque(bytes) => out.raw(bytes),
        }
        Ok(())
    }
}
