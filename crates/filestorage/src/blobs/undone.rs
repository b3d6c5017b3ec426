//! Which blob an undo brings back.

use zodium_pickle::{Limits, Value, decode};
use zodium_types::{Oid, Tid};

use crate::log_bytes::{Access, Body};
use crate::{FileStorage, StorageError};

/// The module that a blob's record names: without it none is one.
const BLOB_MODULE: &str = "ZODB.blob";

impl FileStorage {
    /// The transaction whose blob becomes that of a new record of `oid` with the same data as the
    /// one at `position`. `None` when that is no blob's record, or there are no blobs.
    ///
    /// As for [`FileStorage::undo_record`], object and positions must be locked.
    pub fn blob_behind(&self, oid: Oid, position: u64) -> Result<Option<Tid>, StorageError> {
        let Some(blobs) = self.blobs() else { return Ok(None) };
        let log = self.log();
        let (mut at, mut first) = (position, None);
        while at != 0 {
            let Some(stored) = log.read_stored(at, oid, Access::Blocking)? else { break };
            let tid = stored.header.tid;
            first.get_or_insert(tid);
            match stored.body {
                Body::Back(back) => at = back,
                Body::Data(data) if is_blob_record(&data) => {
                    // Each record has its own blob, unless another program wrote this one.
                    let nearest = first.unwrap_or(tid);
                    return Ok(Some(if blobs.has(oid, nearest)? { nearest } else { tid }));
                }
                Body::Data(_) => break,
            }
        }
        Ok(None)
    }
}

/// Whether a data record is that of a blob: its class is `ZODB.blob.Blob` itself.
pub(crate) fn is_blob_record(data: &[u8]) -> bool {
    let names_module = data.windows(BLOB_MODULE.len()).any(|bytes| bytes == BLOB_MODULE.as_bytes());
    if !names_module {
        return false;
    }
    match decode(data, &Limits::OBJECTS) {
        Ok((Value::Global(class), _)) => class.module() == BLOB_MODULE && class.name() == "Blob",
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blob_is_known_by_its_class_alone() {
        assert!(is_blob_record(b"\x80\x03cZODB.blob\nBlob\nq\x00.\x80\x03N."));
        assert!(is_blob_record(b"cZODB.blob\nBlob\nq\x01.N."));
        assert!(!is_blob_record(b"\x80\x03cZODB.blob\nBlobby\nq\x00.\x80\x03N."));
        assert!(!is_blob_record(b"\x80\x03cmy.blob\nBlob\nq\x00.\x80\x03N."));
        // A list that holds the class.
        assert!(!is_blob_record(b"\x80\x03]cZODB.blob\nBlob\na.\x80\x03N."));
        assert!(!is_blob_record(b"\x80\x03cZODB.blob\nBlob"));
        assert!(!is_blob_record(b""));
    }
}
