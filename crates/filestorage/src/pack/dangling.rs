//! References that lead to no object: each is logged, and they can be a reason to abort the pack.

use tracing::warn;
use zodium_pickle::class_of_record;
use zodium_types::Oid;

use super::watch::Watch;
use crate::FileStorageError;
use crate::read::LogFile;

/// References that are logged one by one; the rest are only counted.
const LOGGED_MAX: u64 = 100;

/// Why a reference leads nowhere.
#[derive(Clone, Copy, Debug)]
pub(super) enum Missing {
    /// The object was never stored, or a pack has dropped it.
    NeverThere,
    /// It was deleted, or the transaction that made it was undone.
    Deleted,
    /// This pack drops it, since its current record is damaged.
    Damaged,
}

/// What was found so far.
#[derive(Default)]
pub(super) struct Dangling {
    count: u64,
    first: Option<String>,
}

impl Dangling {
    /// Notes that `referrer`, whose record stands at `position`, refers to `oid`.
    pub(super) fn note(
        &mut self,
        log: &LogFile,
        (referrer, position): (Oid, u64),
        oid: Oid,
        missing: Missing,
    ) {
        self.count += 1;
        if self.count > LOGGED_MAX {
            return;
        }
        let data = log.data_at(position, referrer).ok().flatten();
        let class = data.as_deref().and_then(class_of_record);
        let class = class.map_or("of unknown class".to_owned(), |class| class.to_string());
        let what = match missing {
            Missing::NeverThere => "does not exist",
            Missing::Deleted => "is deleted",
            Missing::Damaged => "is damaged and dropped",
        };
        let text = format!("object {referrer} ({class}) refers to object {oid}, which {what}");
        warn!(file = %log.path.display(), %referrer, class, %oid, "{text}");
        self.first.get_or_insert(text);
    }

    /// Logs their number; returns the error if they are to abort the pack.
    pub(super) fn conclude(self, watch: &Watch<'_>) -> Result<u64, FileStorageError> {
        let Some(first) = self.first else { return Ok(0) };
        let references = self.count;
        let file = watch.path.display();
        warn!(%file, references, logged = references.min(LOGGED_MAX),
            "references to objects that do not exist");
        if watch.options.abort_on_dangling {
            return Err(FileStorageError::Dangling { path: watch.path.clone(), references, first });
        }
        Ok(references)
    }
}
