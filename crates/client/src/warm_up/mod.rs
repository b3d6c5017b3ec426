//! Warm-up: the client keeps a list of the objects that it loaded first, and its next opening
//! prefetches them.
//!
//! Key decision: only oids are kept, and the objects are loaded as of the moment of the opening. So
//! the list can be old, or belong to another database: it costs loads, and never shows old data.

mod list;
mod list_file;
mod prefetch;
mod recorder;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use tracing::warn;
use zodium_disk::{RealDisk, with_suffix};
use zodium_types::Oid;

use crate::options::{Options, WarmUpList};
use list::List;
use list_file::ListFile;
pub(crate) use prefetch::start;
use recorder::Recorder;

/// Most objects in a list. A first page of a large Plone site loads 3,000.
const OBJECTS_MAX: usize = 10_000;

/// The list of a client, and the record of this run.
pub(crate) struct WarmUp {
    recorder: Recorder,
    kept: Option<Kept>,
    /// What is to be prefetched, until a connection takes it.
    ahead: Mutex<Vec<Oid>>,
}

/// The file, and the list of the last run.
struct Kept {
    file: ListFile,
    last: List,
}

impl WarmUp {
    /// Reads the list of the last run, if the options name one that can be used.
    pub(crate) fn open(options: &Options, source: &str) -> WarmUp {
        let path = path(options).filter(|_| options.cache_bytes > 0);
        let kept = path.map(|path| {
            let file = ListFile::new(Arc::new(RealDisk), path);
            Kept { last: file.read(source), file }
        });
        WarmUp {
            recorder: Recorder::new(if kept.is_some() { OBJECTS_MAX } else { 0 }),
            ahead: Mutex::new(kept.as_ref().map(|kept| kept.last.oids()).unwrap_or_default()),
            kept,
        }
    }

    /// Notes that the application has asked for an object.
    #[inline]
    pub(crate) fn note(&self, oid: Oid) {
        self.recorder.note(oid);
    }

    /// The list of the last run, once.
    pub(crate) fn take(&self) -> Vec<Oid> {
        std::mem::take(&mut *self.ahead.lock())
    }

    /// Writes the list if a save is due.
    pub(crate) fn save_if_due(&self, source: &str, now: Instant) {
        if self.recorder.is_due(now) {
            self.save(source);
        }
    }

    /// Writes the list, unless nothing was recorded since the last time.
    pub(crate) fn save(&self, source: &str) {
        let Some(kept) = &self.kept else { return };
        if let Some(recorded) = self.recorder.news(Instant::now()) {
            let list = kept.last.after(&recorded, OBJECTS_MAX);
            let saved = kept.file.write(source, &list);
            saved.unwrap_or_else(|error| {
                warn!(path = %kept.file.path().display(), %error, "cannot save the warm-up list");
            });
        }
    }
}

/// The file of the list; `None` for no list.
fn path(options: &Options) -> Option<PathBuf> {
    match (&options.warm_up, &options.cache_path) {
        (WarmUpList::Off, _) | (WarmUpList::BesideCache, None) => None,
        (WarmUpList::File(path), _) => Some(path.clone()),
        (WarmUpList::BesideCache, Some(cache)) => Some(with_suffix(cache, ".warm-up")),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use zodium_types::Address;

    use super::*;

    #[test]
    fn a_list_is_saved_some_time_after_the_first_load_and_given_once_to_the_next_run() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("list");
        let mut options = Options::new(Address::Unix(folder.path().join("socket")));
        options.warm_up = WarmUpList::File(path.clone());
        let (first, now) = (WarmUp::open(&options, "source"), Instant::now());
        first.save_if_due("source", now + Duration::from_secs(3600));
        assert!(!path.exists(), "nothing was loaded");
        first.note(Oid(7));
        first.save_if_due("source", now);
        assert!(!path.exists(), "it is too early");
        first.save_if_due("source", now + Duration::from_secs(3600));
        let next = WarmUp::open(&options, "source");
        assert_eq!((next.take(), next.take()), (vec![Oid(7)], vec![]));
        // Without a cache there is nothing to warm up.
        options.cache_bytes = 0;
        assert_eq!(WarmUp::open(&options, "source").take(), []);
        options.cache_bytes = 1;
        assert_eq!(WarmUp::open(&options, "source").take(), [Oid(7)]);
    }
}
