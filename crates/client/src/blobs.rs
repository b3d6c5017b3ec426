//! Fetches blobs from the server; the thread that reads the connection writes them to files.

use std::fs::File;

use zodium_pickle::Value;
use zodium_types::{Oid, Tid};

use crate::{Client, ClientError};

impl Client {
    /// Fetches the blob that a transaction wrote for an object, writes it to `file`, which is
    /// empty, and returns the file, to be read from its beginning. Concurrent fetches of the same
    /// blob run one after the other.
    ///
    /// After an error the file holds a part of the blob, or nothing.
    pub fn fetch_blob(&self, oid: Oid, serial: Tid, file: File) -> Result<File, ClientError> {
        let shared = self.shared();
        let connection = shared.connection()?;
        let guard = shared.blob_locks.lock((oid, serial), || shared.patience.has_ended());
        let _guard = guard.ok_or(ClientError::Interrupted)?;
        connection.wait_abandoned_blob(oid, serial)?;
        connection.expect_blob(oid, serial, file)?;
        let arguments = Value::tuple([oid.into(), serial.into()]);
        let answer = connection.request("sendBlob", &arguments, None)?;
        if let Err(error) = connection.wait(&answer) {
            connection.abandon_blob(oid, serial, answer);
            return Err(error);
        }
        let answer = connection.taken(&answer);
        let blob = connection.take_blob(oid, serial);
        answer?;
        let blob =
            blob.ok_or_else(|| connection.end_reason().cloned().unwrap_or(ClientError::Closed))?;
        if let Some(error) = blob.failure {
            return Err(ClientError::File {
                path: format!("the file for the blob of object {oid}").into(),
                reason: error.to_string().into(),
                code: error.raw_os_error(),
            });
        }
        let cut = ClientError::Unexpected { method: "sendBlob", expected: "a whole blob" };
        if blob.is_whole { Ok(blob.file) } else { Err(cut) }
    }
}
