//! Where a repository is: a set of named objects, in a folder or in an object store.
//!
//! Key decision: few operations, which every object store has. An object is there as a whole or not
//! at all, and [`Place::create`] tells two writers of one name apart. All else is built on that.

#[cfg(feature = "object-stores")]
mod attempts;
mod folder;
#[cfg(feature = "object-stores")]
mod lease;
#[cfg(feature = "object-stores")]
mod object_stores;

use crate::BackupError;
pub use folder::Folder;
#[cfg(feature = "object-stores")]
pub use object_stores::ObjectStores;

/// The name and the bytes of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name, with `/` between its parts.
    pub object: String,
    /// Its bytes, as they are stored.
    pub bytes: u64,
}

/// A set of named objects.
pub trait Place: Send + Sync {
    /// The whole name of an object, for messages. The empty name stands for the place itself.
    fn path(&self, object: &str) -> String;

    /// The bytes of an object; `None` if there is no such object.
    fn get(&self, object: &str) -> Result<Option<Vec<u8>>, BackupError>;

    /// Whether there is such an object.
    fn has(&self, object: &str) -> Result<bool, BackupError>;

    /// Stores an object whose name says what is in it. It may still be under way when this returns.
    fn put(&self, object: &str, bytes: Vec<u8>) -> Result<(), BackupError>;

    /// Waits until all that was [put](Place::put) is durable.
    ///
    /// # Errors
    /// Those of objects that were put.
    fn settle(&self) -> Result<(), BackupError>;

    /// Stores an object durably, unless there is one of that name: `false` then.
    fn create(&self, object: &str, bytes: Vec<u8>) -> Result<bool, BackupError>;

    /// The objects whose names begin with `folder` and a `/`, by their names.
    fn list(&self, folder: &str) -> Result<Vec<Listed>, BackupError>;

    /// Whether there is nothing at all.
    fn is_empty(&self) -> Result<bool, BackupError>;

    /// Removes an object, which need not be there.
    fn remove(&self, object: &str) -> Result<(), BackupError>;

    /// Keeps other writers out until it is dropped.
    ///
    /// # Errors
    /// `Refused` while there is another writer.
    fn claim(&self) -> Result<Box<dyn Claim>, BackupError>;

    /// Keeps other writers out while the first object is created; `None` where they do no harm.
    ///
    /// # Errors
    /// Those of [`Place::claim`].
    fn claim_new(&self) -> Result<Option<Box<dyn Claim>>, BackupError> {
        Ok(None)
    }
}

/// The right to write to a place.
pub trait Claim: Send + Sync {
    /// Fails if another writer may have taken the place over, as far as the clock of this machine
    /// tells, and if the folder is not at its path any more.
    fn check(&self) -> Result<(), BackupError>;

    /// As [`Claim::check`], but asks the place whether another writer has taken it over. A clock
    /// does not tell how long a machine was suspended, so this comes before what another writer may
    /// not meet.
    fn confirm(&self) -> Result<(), BackupError>;
}
