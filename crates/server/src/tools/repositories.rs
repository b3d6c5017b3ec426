//! The repository of a command: a folder or an object store, and its key.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use zodium_backup::BackupError;
use zodium_backup::places::{Folder, Place};
use zodium_backup::repository::{Key, Repository};
use zodium_disk::explain_denied;

use crate::streams::complain;

/// What other users of the machine may do with a file.
const OTHERS: u32 = 0o077;

/// How a repository of ours is opened.
#[derive(Debug, Args)]
pub(super) struct RepositoryArguments {
    /// The key of an encrypted repository: a file with 64 hexadecimal digits. A new repository is
    /// encrypted with it
    #[arg(long, value_name = "FILE", env = "ZODIUM_BACKUP_KEY_FILE")]
    key_file: Option<PathBuf>,

    /// In an object store: how long a writer that is not heard of keeps others out
    #[arg(long, value_name = "SECONDS", default_value = "15", value_parser = seconds)]
    lease: Duration,
}

impl RepositoryArguments {
    /// The place that a text names: a path, or the URL of an object store.
    pub(super) fn place(&self, text: &str) -> Result<Box<dyn Place>> {
        if text.is_empty() {
            bail!("the name of the repository is empty: give a folder, or the URL of one");
        }
        match folder_of(text) {
            Some(path) => Ok(Box::new(Folder::new(path))),
            None => object_store(text, self.lease),
        }
    }

    /// Checks that no key is given for a folder of repozo, which would not be encrypted.
    pub(super) fn check_repozo(&self, folder: &Path) -> Result<()> {
        if self.key_file.is_some() {
            bail!(
                "{}: backups in repozo's format are not encrypted: use our format, or leave out \
                 --key-file and ZODIUM_BACKUP_KEY_FILE",
                folder.display()
            );
        }
        Ok(())
    }

    /// The key, if there is one.
    pub(super) fn key(&self) -> Result<Option<Key>> {
        let Some(path) = &self.key_file else { return Ok(None) };
        let context = || format!("cannot read the key file {}", path.display());
        let text = fs::read_to_string(path).with_context(context)?;
        if fs::metadata(path).with_context(context)?.permissions().mode() & OTHERS != 0 {
            complain!("zodium: other users can read the key file {}: chmod 600", path.display());
        }
        Key::parse(&text).with_context(|| path.display().to_string()).map(Some)
    }

    /// A repository that is there.
    pub(super) fn open(&self, text: &str) -> Result<Repository> {
        let opened = Repository::open(self.place(text)?, self.key()?.as_ref())?;
        opened.with_context(|| format!("{text}: no repository of backups"))
    }

    /// A repository, which is made if there is nothing.
    pub(super) fn open_or_create(&self, text: &str) -> Result<Repository> {
        let opened = Repository::open_or_create(self.place(text)?, self.key()?.as_ref());
        Ok(opened.map_err(explained)?)
    }
}

/// Checks that no blob directory is given for a folder of repozo, which has no blobs.
pub(super) fn check_repozo_blobs(folder: &Path, blob_dir: Option<&Path>) -> Result<()> {
    if blob_dir.is_some() {
        bail!(
            "{}: backups in repozo's format have no blobs: use our format, or leave out \
             --blob-dir, and copy the blob directory with another program",
            folder.display()
        );
    }
    Ok(())
}

/// Adds user, owner and mode to an error about denied permission.
fn explained(error: BackupError) -> BackupError {
    match error {
        BackupError::Io { what, path, error } => {
            let error = explain_denied(error, &path);
            BackupError::Io { what, path, error }
        }
        error => error,
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (1..=3600).contains(seconds));
    seconds.map(Duration::from_secs).ok_or_else(|| "give 1 to 3600 seconds".to_owned())
}

/// The folder that a text names; `None` if it is the URL of an object store.
pub(super) fn folder_of(text: &str) -> Option<&Path> {
    match text.split_once("://") {
        Some(("file", path)) => Some(Path::new(path)),
        Some(_) => None,
        None => Some(Path::new(text)),
    }
}

#[cfg(feature = "object-stores")]
fn object_store(url: &str, lease: Duration) -> Result<Box<dyn Place>> {
    Ok(Box::new(zodium_backup::places::ObjectStores::open(url, lease)?))
}

#[cfg(not(feature = "object-stores"))]
fn object_store(url: &str, _lease: Duration) -> Result<Box<dyn Place>> {
    anyhow::bail!(
        "{url}: this program was built without object stores; build it with \
         `cargo build --release -p zodium --features object-stores`, or give a folder"
    )
}
