//! Restore points: what a storage was when it was backed up.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use zodium_types::Tid;

use super::blob_files::BlobName;
use super::chunk_store::{ChunkStore, Hash, entries};
use crate::BackupError;
use crate::files::sync_folder_of;

/// The first line of the file that says what a folder is.
const FORMAT: &str = "zodium backup 1\n";
const FORMAT_FILE: &str = "zodium-backup";
/// Chunks that one page lists.
const PAGE_CHUNKS: usize = 1024;

/// A restore point.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Point {
    /// Counts points from 1, and is its name.
    #[serde(skip)]
    pub number: u64,
    /// When it was made, in seconds since 1970.
    pub seconds: i64,
    /// The first transaction; empty texts stand for none.
    first: String,
    /// The last transaction.
    last: String,
    /// Transactions.
    pub transactions: u64,
    /// Bytes of the content of all chunks.
    pub bytes: u64,
    /// Lists of chunks, with the bytes of their content.
    pages: Vec<(Hash, u64)>,
}

/// A chunk, as a page lists it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Chunk {
    pub(super) hash: Hash,
    pub(super) bytes: u64,
    pub(super) first: String,
    pub(super) last: String,
    pub(super) transactions: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) blobs: Vec<BlobName>,
}

impl Point {
    /// The last transaction; [`Tid::ZERO`] for an empty storage.
    pub fn last(&self) -> Tid {
        tid_of(&self.last)
    }

    /// Stores the lists of chunks, and gives the point that refers to them.
    pub(super) fn of(
        store: &ChunkStore,
        number: u64,
        seconds: i64,
        chunks: &[Chunk],
    ) -> Result<Point, BackupError> {
        let mut pages = Vec::new();
        for page in chunks.chunks(PAGE_CHUNKS) {
            let text = serde_json::to_vec(page).map_err(unwritable)?;
            pages.push((store.put(&text)?.0, text.len() as u64));
        }
        let first = chunks.first().map_or(String::new(), |chunk| chunk.first.clone());
        let last = chunks.last().map_or(String::new(), |chunk| chunk.last.clone());
        let transactions = chunks.iter().map(|chunk| chunk.transactions).sum();
        let bytes = chunks.iter().map(|chunk| chunk.bytes).sum();
        Ok(Point { number, seconds, first, last, transactions, bytes, pages })
    }

    /// The hashes of its pages.
    pub(super) fn pages(&self) -> impl Iterator<Item = &Hash> {
        self.pages.iter().map(|(hash, _)| hash)
    }

    /// All chunks, in the order of their transactions.
    pub(super) fn chunks(&self, store: &ChunkStore) -> Result<Vec<Chunk>, BackupError> {
        let mut chunks = Vec::new();
        for (hash, bytes) in &self.pages {
            let page: Vec<Chunk> =
                serde_json::from_slice(&store.get(hash, *bytes)?).map_err(|error| {
                    BackupError::Refused(format!("page {}: {error}", hash.as_str()))
                })?;
            chunks.extend(page);
        }
        Ok(chunks)
    }

    /// Writes it; from then on it counts.
    ///
    /// # Errors
    /// `Refused` if another backup has written this point.
    pub(super) fn write(&self, repository: &Path) -> Result<(), BackupError> {
        let folder = repository.join("points");
        let text = serde_json::to_string_pretty(self).map_err(unwritable)? + "\n";
        let sum = Hash::of(text.as_bytes());
        let text = format!("{text}{}\n", sum.as_str());
        let (path, temporary) = (path_of(repository, self.number), folder.join("tmp.tmp"));
        let written = fs::write(&temporary, text).and_then(|()| {
            fs::File::open(&temporary)?.sync_all()?;
            // Fails if the point is there.
            fs::hard_link(&temporary, &path)?;
            fs::remove_file(&temporary)
        });
        match written {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                Err(BackupError::Refused(format!(
                    "{}: another backup to this repository was faster",
                    path.display()
                )))
            }
            Err(error) => Err(BackupError::io("write it", &path)(error)),
            Ok(()) => sync_folder_of(&path),
        }
    }

    pub(super) fn remove(&self, repository: &Path) -> Result<(), BackupError> {
        let path = path_of(repository, self.number);
        fs::remove_file(&path).map_err(BackupError::io("remove it", &path))
    }
}

/// The tid of a text in a list.
pub(super) fn tid_of(text: &str) -> Tid {
    Tid(u64::from_str_radix(text, 16).unwrap_or(0))
}

/// Whether a folder is a repository.
pub fn is_repository(folder: &Path) -> bool {
    folder.join(FORMAT_FILE).exists()
}

/// Makes a repository of an empty folder; refuses others.
pub(super) fn prepare(folder: &Path) -> Result<(), BackupError> {
    if is_repository(folder) {
        return check_format(folder);
    }
    let is_leftover = |path: &PathBuf| path.ends_with("points") || path.ends_with("chunks");
    if entries(folder)?.iter().any(|path| !is_leftover(path)) {
        let what = format!("{}: no repository, and not empty", folder.display());
        return Err(BackupError::Refused(what));
    }
    for name in ["points", "chunks"] {
        let path = folder.join(name);
        fs::create_dir_all(&path).map_err(BackupError::io("create it", &path))?;
    }
    let path = folder.join(FORMAT_FILE);
    fs::write(&path, FORMAT).map_err(BackupError::io("write it", &path))?;
    sync_folder_of(&path)
}

fn check_format(folder: &Path) -> Result<(), BackupError> {
    let path = folder.join(FORMAT_FILE);
    match fs::read(&path) {
        Ok(text) if text == FORMAT.as_bytes() => Ok(()),
        Ok(_) => Err(BackupError::Refused(format!("{}: another format", path.display()))),
        Err(error) => Err(BackupError::io("read it", &path)(error)),
    }
}

/// All restore points, the oldest first.
///
/// # Errors
/// `Refused` if the folder is no repository; `Damaged`.
pub fn points(repository: &Path) -> Result<Vec<Point>, BackupError> {
    if !is_repository(repository) {
        let what = format!("{}: no repository of backups", repository.display());
        return Err(BackupError::Refused(what));
    }
    check_format(repository)?;
    let mut points = Vec::new();
    for path in entries(&repository.join("points"))? {
        let stem = path.extension().is_some_and(|end| end == "json").then(|| path.file_stem());
        let number = stem.flatten().and_then(|stem| stem.to_str()?.parse().ok());
        if let Some(number) = number {
            points.push(read(&path, number)?);
        }
    }
    points.sort_by_key(|point| point.number);
    Ok(points)
}

fn read(path: &Path, number: u64) -> Result<Point, BackupError> {
    let text = fs::read(path).map_err(BackupError::io("read it", path))?;
    let damaged = |what: &str| BackupError::damaged(path, what);
    let text = std::str::from_utf8(&text).map_err(|_| damaged("it is no text"))?;
    let (body, sum) = match text.trim_end_matches('\n').rfind('\n') {
        Some(end) => text.split_at(end + 1),
        None => return Err(damaged("it has no sum")),
    };
    if format!("{}\n", Hash::of(body.as_bytes()).as_str()) != sum {
        return Err(damaged("its sum differs"));
    }
    let point: Point = serde_json::from_str(body).map_err(|error| damaged(&error.to_string()))?;
    Ok(Point { number, ..point })
}

fn path_of(repository: &Path, number: u64) -> PathBuf {
    repository.join("points").join(format!("{number:08}.json"))
}

fn unwritable(error: serde_json::Error) -> BackupError {
    BackupError::Refused(format!("a list cannot be written: {error}"))
}
