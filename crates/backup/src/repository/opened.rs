//! A repository: a place, and the key of what is there.

use std::path::Path;

use super::chunk_store::ChunkStore;
use super::sealing::{Key, Sealer};
use crate::BackupError;
use crate::places::Place;

/// The object that says what a place is, and its first line.
const FORMAT_OBJECT: &str = "zodium-backup";
const FORMAT: &str = "zodium backup 2\n";
/// The second line of an encrypted repository begins with this, and says which key it has.
const ENCRYPTED: &str = "encrypted ";

/// A repository of backups.
pub struct Repository {
    place: Box<dyn Place>,
    sealer: Sealer,
}

impl Repository {
    /// Opens what is at a place; `None` if it is no repository.
    ///
    /// # Errors
    /// `Refused` for a repository of another format or key.
    pub fn open(
        place: Box<dyn Place>,
        key: Option<&Key>,
    ) -> Result<Option<Repository>, BackupError> {
        let Some(text) = place.get(FORMAT_OBJECT)? else { return Ok(None) };
        let repository = Repository { sealer: Sealer::new(key)?, place };
        let refused = |what: &str| {
            Err(BackupError::Refused(format!("{}: {what}", repository.place.path(FORMAT_OBJECT))))
        };
        let Some(rest) = text.strip_prefix(FORMAT.as_bytes()) else {
            return refused("another format; begin a new repository");
        };
        let is_encrypted = rest.starts_with(ENCRYPTED.as_bytes());
        match rest == repository.key_line().as_bytes() {
            true => Ok(Some(repository)),
            false if !is_encrypted && !rest.is_empty() => refused("another format, or damaged"),
            false if !is_encrypted => {
                refused("the repository is not encrypted; give no key, or begin a new repository")
            }
            false if key.is_none() => {
                refused("the repository is encrypted; give its key with --key-file")
            }
            false => refused("the repository has another key"),
        }
    }

    /// Opens a repository, or makes one of an empty place.
    ///
    /// # Errors
    /// As [`Repository::open`], and `Refused` for a place with other objects.
    pub fn open_or_create(
        place: Box<dyn Place>,
        key: Option<&Key>,
    ) -> Result<Repository, BackupError> {
        let repository = Repository { sealer: Sealer::new(key)?, place };
        if repository.place.has(FORMAT_OBJECT)? {
            let Repository { place, .. } = repository;
            let path = place.path("");
            let opened = Repository::open(place, key)?;
            return opened.ok_or_else(|| BackupError::Refused(format!("{path}: it vanished")));
        }
        if !repository.place.is_empty()? {
            let what = format!("{}: no repository, and not empty", repository.place.path(""));
            return Err(BackupError::Refused(what));
        }
        let claim = repository.place.claim_new()?;
        let text = FORMAT.to_owned() + &repository.key_line();
        match repository.place.create(FORMAT_OBJECT, text.into_bytes())? {
            true => Ok(repository),
            // Another writer was faster, perhaps with another key.
            false => {
                drop(claim);
                Repository::open_or_create(repository.place, key)
            }
        }
    }

    /// Whether a place is an encrypted repository.
    pub fn is_encrypted(place: &dyn Place) -> Result<bool, BackupError> {
        let text = place.get(FORMAT_OBJECT)?.unwrap_or_default();
        let rest = text.strip_prefix(FORMAT.as_bytes());
        Ok(rest.is_some_and(|rest| rest.starts_with(ENCRYPTED.as_bytes())))
    }

    /// Its name, for messages.
    pub fn name(&self) -> String {
        self.place.path("")
    }

    pub(super) fn place(&self) -> &dyn Place {
        &*self.place
    }

    pub(super) fn sealer(&self) -> &Sealer {
        &self.sealer
    }

    pub(super) fn store(&self) -> ChunkStore<'_> {
        ChunkStore::new(&*self.place, &self.sealer)
    }

    fn key_line(&self) -> String {
        let check = self.sealer.key_check();
        check.map_or(String::new(), |check| format!("{ENCRYPTED}{}\n", check.as_str()))
    }
}

/// Whether a folder is a repository of ours.
pub fn is_repository(folder: &Path) -> bool {
    folder.join(FORMAT_OBJECT).exists()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::places::Folder;

    #[test]
    fn a_folder_that_another_writer_has_claimed_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let place = || Box::new(Folder::new(folder.path()));
        let claim = place().claim().unwrap();
        let refused = Repository::open_or_create(place(), None).err().unwrap();
        assert!(matches!(refused, BackupError::Refused(_)), "{refused}");
        assert!(place().is_empty().unwrap());
        drop(claim);
        Repository::open_or_create(place(), None).unwrap();
        assert!(Repository::open(place(), None).unwrap().is_some());
    }
}
