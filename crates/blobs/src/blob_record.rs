//! Which data records are those of blobs.

use zodium_pickle::{Limits, Value, decode};

/// The module that a blob's record names: without it none is one.
const BLOB_MODULE: &str = "ZODB.blob";

/// Whether a data record is that of a blob: its class is `ZODB.blob.Blob` itself.
pub fn is_blob_record(data: &[u8]) -> bool {
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
