//! Warns at the start if blobs of a storage are missing in its blob directory, and has that
//! directory watched.
//!
//! Key decision: it samples current records, spread over the whole file, while the first clients
//! are served. All of them would take as long as reading the file, as `zodium check --blob-dir`
//! does.

use tracing::{debug, warn};
use zodium_filestorage::FileStorage;

use super::storages::{OpenStorage, Storages};

/// Objects of each storage that are sampled: all of them in smaller files.
const OBJECTS_MAX: usize = 4096;

/// Samples each storage, on a separate thread, and watches its directory on another one.
pub(crate) fn look_for_missing(storages: &Storages) {
    for OpenStorage { name, file, .. } in storages.iter() {
        let Some(file) = file.clone() else { continue };
        if let Some(directory) = file.blobs() {
            directory.watch();
        }
        let name = name.clone();
        let look = move || look(&name, &file);
        if let Err(error) = std::thread::Builder::new().name("blob look".to_owned()).spawn(look) {
            warn!(%error, "no thread to look for missing blobs");
        }
    }
}

fn look(name: &str, storage: &FileStorage) {
    let sample = storage.reader().sample_blobs(storage.blobs(), OBJECTS_MAX);
    if sample.missing == 0 {
        debug!(storage = name, blobs = sample.blobs, "no blob is missing of those looked at");
        return;
    }
    let (file, blobs, missing) = (storage.path().display(), sample.blobs, sample.missing);
    match (storage.blobs(), &sample.first_missing) {
        (Some(directory), Some(first)) => warn!(
            storage = name, %file, directory = %directory.path().display(), blobs, missing,
            first = %first.display(),
            "objects of this file are blobs that are not in the blob directory, and loads of them \
             fail: name the right directory with --blob-dir, or restore it; \
             `zodium check --blob-dir` names each blob that is missing"
        ),
        _ => warn!(
            storage = name, %file, blobs,
            "objects of this file are blobs, and the server was given no blob directory: loads and \
             commits of blobs fail. Name the directory with --blob-dir (blob-dir in zeo.conf)"
        ),
    }
}
