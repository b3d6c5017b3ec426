//! "These objects changed": encoded once for every encoding, sent to many connections.

use bytes::{Bytes, BytesMut};
use zodium_types::{Oid, Tid};

use super::writer::{Flag, write_message};
use super::{CodecError, Encoding, MessageId};

/// The frame that tells clients that `oids` have new revisions by transaction `tid`.
pub fn encode_invalidation(
    encoding: Encoding,
    tid: Tid,
    oids: &[Oid],
) -> Result<Bytes, CodecError> {
    let mut out = BytesMut::with_capacity(80 + 10 * oids.len());
    let id = MessageId::Number(0);
    write_message(encoding, &mut out, &id, Flag::Oneway, "invalidateTransaction", |out| {
        out.open_tuple(2);
        out.tid(tid);
        out.oids(oids)?;
        out.close_tuple(2);
        Ok(())
    })?;
    Ok(out.freeze())
}
