//! A repository: a place, and the key of what is there.

use std::path::Path;

use super::chunk_store::ChunkStore;
use super::sealing::{Key, Sealer};
use crate::BackupError;
use crate::places::{Claim, Place};

/// The object that says what a place is, and its first line.
const FORMAT_OBJECT: &str = "zodium-backup";
const FORMAT: &str = "zodium backup 2\n";
/// The version in it.
const VERSION: u32 = 2;
/// Begins the first line of each version.
const ANY_FORMAT: &str = "zodium backup ";
/// The folder of restore points.
pub(super) const POINTS: &str = "points";
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
        let repository = Repository { sealer: Sealer::new(key)?, place };
        let Some(text) = repository.place.get(FORMAT_OBJECT)? else {
            repository.check_not_lost()?;
            return Ok(None);
        };
        let refused = |what: &str| {
            Err(BackupError::Refused(format!("{}: {what}", repository.place.path(FORMAT_OBJECT))))
        };
        let Some(rest) = text.strip_prefix(FORMAT.as_bytes()) else {
            return refused(&match version_of(&text) {
                Some(version) => format!(
                    "version {version} of the format, and this Zodium knows version {VERSION}: use \
                     the Zodium that has written it"
                ),
                None => format!("damaged, {}", repository.how_to_write_it()),
            });
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
        repository.check_not_lost()?;
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

    /// Keeps other writers out, as [`Place::claim`].
    pub(super) fn claim(&self) -> Result<Box<dyn Claim>, BackupError> {
        let claim = self.place.claim()?;
        // Its disk may have been unmounted since the repository was opened.
        match self.place.has(FORMAT_OBJECT)? {
            true => Ok(claim),
            false => Err(BackupError::Gone { path: self.name() }),
        }
    }

    pub(super) fn sealer(&self) -> &Sealer {
        &self.sealer
    }

    pub(super) fn store(&self) -> ChunkStore<'_> {
        ChunkStore::new(&*self.place, &self.sealer)
    }

    /// Refuses a place that has restore points, but not the object that says what it is.
    fn check_not_lost(&self) -> Result<(), BackupError> {
        if self.place.list(POINTS)?.is_empty() {
            return Ok(());
        }
        let (path, what) = (self.place.path(FORMAT_OBJECT), self.how_to_write_it());
        Err(BackupError::Refused(format!(
            "{path}: missing, though restore points are there; {what}"
        )))
    }

    fn how_to_write_it(&self) -> String {
        let hint = match self.sealer.key_check() {
            Some(_) => "",
            None => " (that of an encrypted repository is told if its key is given)",
        };
        format!("write it again: its text is {:?}{hint}", FORMAT.to_owned() + &self.key_line())
    }

    fn key_line(&self) -> String {
        let check = self.sealer.key_check();
        check.map_or(String::new(), |check| format!("{ENCRYPTED}{}\n", check.as_str()))
    }
}

/// Whether a folder is a repository of ours, or what is left of one.
pub fn is_repository(folder: &Path) -> bool {
    folder.join(FORMAT_OBJECT).exists() || folder.join(POINTS).is_dir()
}

/// The version in the first line.
fn version_of(text: &[u8]) -> Option<u32> {
    let rest = text.strip_prefix(ANY_FORMAT.as_bytes())?;
    let line = rest.split(|byte| *byte == b'\n').next()?;
    let version = std::str::from_utf8(line).ok()?.parse().ok()?;
    (version != VERSION).then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::places::Folder;

    /// What opening a place with this first object says.
    fn said_of(text: Option<&str>, has_points: bool) -> Option<String> {
        let folder = tempfile::tempdir().unwrap();
        if let Some(text) = text {
            std::fs::write(folder.path().join(FORMAT_OBJECT), text).unwrap();
        }
        if has_points {
            std::fs::create_dir(folder.path().join(POINTS)).unwrap();
            std::fs::write(folder.path().join(POINTS).join("00000001.json"), "{}").unwrap();
        }
        assert_eq!(is_repository(folder.path()), text.is_some() || has_points);
        let place = || Box::new(Folder::new(folder.path()));
        let said = Repository::open(place(), None).err().map(|error| error.to_string());
        if has_points {
            let error = Repository::open_or_create(place(), None).err();
            assert_eq!(error.map(|error| error.to_string()), said);
        }
        said
    }

    #[test]
    fn of_a_lost_or_other_first_line_is_said_what_to_do() {
        assert_eq!(said_of(None, false), None);
        assert_eq!(said_of(Some(FORMAT), true), None);
        let says = |text, words: &str| {
            let said = said_of(text, true).unwrap();
            assert!(said.contains(words), "{said}");
        };
        says(None, "missing, though restore points are there; write it again: its text is");
        says(None, r#""zodium backup 2\n""#);
        says(Some("zodium backup 3\nnew\n"), "version 3 of the format, and this Zodium knows");
        says(Some("zodium backup 2\r\n"), "damaged, write it again: its text is");
        says(Some(""), "damaged, write it again");
    }

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
