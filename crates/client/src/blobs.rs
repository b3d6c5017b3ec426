//! Blobs from the server: what comes is written to a file by whoever reads.

use std::fs::File;

use zodium_pickle::Value;
use zodium_types::{Oid, Tid};

use crate::{Client, ClientError};

impl Client {
    /// Fetches the blob that a transaction wrote for an object, and appends it to `file`, which is
    /// given back. When several threads want the same at once, one after the other gets it.
    ///
    /// After an error the file holds a part of the blob, or nothing.
    pub fn fetch_blob(&self, oid: Oid, serial: Tid, file: File) -> Result<File, ClientError> {
        let shared = self.shared();
        let connection = shared.connection()?;
        let guard = shared.blob_locks.lock((oid, serial), || shared.is_interrupted());
        let _guard = guard.ok_or(ClientError::Interrupted)?;
        connection.expect_blob(oid, serial, file)?;
        let answer = connection.call("sendBlob", &Value::tuple([oid.into(), serial.into()]));
        let file = connection.take_blob(oid, serial);
        answer?;
        // Whoever wrote to it has given it up.
        file.ok_or_else(|| ClientError::File {
            path: format!("the file for the blob of object {oid}").into(),
            reason: "it cannot be written".into(),
        })
    }
}
