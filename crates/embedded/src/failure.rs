//! Errors of the storage as those of a client.

use std::sync::Arc;

use zodium_client::{ClientError, Exception as Raised};
use zodium_engine::VoteError;
use zodium_storage::StorageError;
use zodium_zeo_server::Exception;

/// The error of a call on the storage.
pub fn of_storage(error: &StorageError) -> ClientError {
    match error {
        StorageError::ReadOnly(_) => ClientError::ReadOnly,
        StorageError::Interrupted => ClientError::Interrupted,
        // Tried again later it may succeed, as with a server.
        StorageError::Io(_) => ClientError::Disconnected(error.to_string().into()),
        error => of_exception(error.into()),
    }
}

/// The error of a vote.
pub(crate) fn of_vote(error: VoteError) -> ClientError {
    match error {
        VoteError::Storage(error) => of_storage(&error),
        error => of_exception(error.into()),
    }
}

/// An exception of the server's functions.
pub(crate) fn of_exception(exception: Exception) -> ClientError {
    let Exception { name, payload } = exception;
    ClientError::Raised(Arc::new(Raised { name: name.to_owned(), payload }))
}
