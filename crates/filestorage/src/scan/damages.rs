//! Remembers the damaged places of the committed part of a file, each once: those that do not match
//! their checksum or the format.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use tracing::error;
use zodium_types::{Oid, Tid};

/// Most places remembered; a longer list would not help.
const PLACES_MAX: usize = 100_000;

/// Damaged places.
#[derive(Debug)]
pub(crate) struct Damages {
    path: PathBuf,
    places: Mutex<BTreeSet<u64>>,
}

impl Damages {
    pub(crate) fn new(path: &Path) -> Damages {
        Damages { path: path.to_owned(), places: Mutex::default() }
    }

    pub(crate) fn count(&self) -> u64 {
        self.places.lock().len() as u64
    }

    pub(crate) fn contain(&self, position: u64) -> bool {
        self.places.lock().contains(&position)
    }

    /// Forgets all places: they were not damaged.
    pub(crate) fn forget(&self) {
        self.places.lock().clear();
    }

    /// Adds a place, and logs a new one.
    pub(crate) fn note(&self, position: u64, oid: Option<Oid>, tid: Option<Tid>, what: &str) {
        let mut places = self.places.lock();
        if places.len() >= PLACES_MAX || !places.insert(position) {
            return;
        }
        drop(places);
        let oid = oid.map(tracing::field::display);
        let tid = tid.map(tracing::field::display);
        error!(file = %self.path.display(), position, oid, tid,
            "damage: {what}. It is not served; everything else is. `zodium check` tells all, \
             `zodium recover` (or a backup) gives a sound copy");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_remembered_once_until_all_are_forgotten() {
        let damages = Damages::new(Path::new("Data.fs"));
        for position in [7, 9, 7] {
            damages.note(position, None, None, "wrong");
        }
        assert_eq!(damages.count(), 2);
        assert!(damages.contain(7) && damages.contain(9) && !damages.contain(8));
        damages.forget();
        assert!(damages.count() == 0 && !damages.contain(7));
    }

    #[test]
    fn no_more_places_are_remembered_than_help() {
        let damages = Damages::new(Path::new("Data.fs"));
        *damages.places.lock() = (0..PLACES_MAX as u64 - 1).collect();
        for position in [200_000, 200_001] {
            damages.note(position, None, None, "wrong");
        }
        assert_eq!(damages.count(), PLACES_MAX as u64);
        assert!(!damages.contain(200_001));
    }
}
