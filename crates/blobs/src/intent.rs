//! Intents: durable lists of the blobs of voted transactions.
//!
//! An intent is durable before any of its blobs leaves `tmp`. So the next opening finds every blob
//! that a crash or a failing disk kept from being committed. It is in the folder of an object that
//! an intent names, is later than the vote, and the log has no record of the object by that
//! transaction. What is not later was committed, though an older copy of the log may not have it.

use std::fmt::Write;
use std::path::Path;

use tracing::info;
use zodium_disk::{EntryKind, OpenMode};
use zodium_types::{Oid, Tid};

use crate::layout::{self, OUR_PREFIX, PACKED_NAME, TEMPORARY_FOLDER};
use crate::{BlobDirectory, BlobError};

/// Ends the name of an intent.
pub(crate) const INTENT_SUFFIX: &str = ".intent";

/// Begins the line with the last transaction before the vote.
const AFTER: &str = "after";

/// Writes an intent: the last transaction of the log at the vote, the oids of the blobs, and their
/// names until the commit.
pub(crate) fn write<'a>(
    directory: &BlobDirectory,
    path: &Path,
    after: Tid,
    blobs: impl Iterator<Item = (Oid, &'a str)>,
) -> Result<(), BlobError> {
    let mut text = format!("{AFTER} {after}\n");
    for (oid, name) in blobs {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{oid} {name}");
    }
    let file = directory.open_temporary(path, OpenMode::CreateNew)?;
    file.write_all_at(text.as_bytes(), 0)
        .and_then(|()| file.sync())
        .and_then(|()| directory.disk.sync_folder_of(path))
        .map_err(|error| BlobError::writing(path, "write", text.len() as u64, error))
}

/// Its lines. A last one that a crash cut is left out: no blob was moved then.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'))
}

/// The last transaction before the vote; 0 if an intent does not say it.
fn after(text: &str) -> Tid {
    let line = lines(text).next().and_then(|line| line.strip_prefix(AFTER)?.strip_prefix(' '));
    line.and_then(|tid| u64::from_str_radix(tid, 16).ok()).map_or(Tid::ZERO, Tid)
}

/// The oids and names of an intent.
fn parse(text: &str) -> impl Iterator<Item = (Oid, &str)> {
    lines(text).filter_map(|line| {
        let (oid, name) = line.split_once(' ')?;
        let oid = Oid(u64::from_str_radix(oid, 16).ok()?);
        (name.starts_with(OUR_PREFIX) && !name.contains('/')).then_some((oid, name))
    })
}

/// The records of the log, for blobs.
pub trait CommittedRecords {
    /// Whether that transaction has written data of that object.
    /// `None` when that cannot be found out, because the log is damaged there.
    fn has_written(&self, oid: Oid, tid: Tid) -> Option<bool>;
}

impl BlobDirectory {
    /// Removes what a crash left: blobs without records, and temporary files.
    pub fn clean_up(&self, log: &dyn CommittedRecords) -> Result<(), BlobError> {
        let temporary = self.path.join(TEMPORARY_FOLDER);
        let mut names = Vec::new();
        for entry in self.list(&temporary)? {
            if let Some(name) = entry.name.to_str()
                && name.starts_with(OUR_PREFIX)
                && name != PACKED_NAME
                && entry.kind == EntryKind::File
            {
                names.push(name.to_owned());
            }
        }
        let (intents, files): (Vec<_>, Vec<_>) =
            names.iter().partition(|name| name.ends_with(INTENT_SUFFIX));
        for name in intents {
            let path = temporary.join(name);
            let text = self.read_text(&path)?;
            let after = after(&text);
            for (oid, staged) in parse(&text) {
                self.take_back(oid, staged, after, log)?;
            }
            self.remove(&path)?;
        }
        for name in files {
            self.remove(&temporary.join(name))?;
        }
        Ok(())
    }

    fn take_back(
        &self,
        oid: Oid,
        staged: &str,
        after: Tid,
        log: &dyn CommittedRecords,
    ) -> Result<(), BlobError> {
        let folder = self.folder_of(oid);
        let kind = self.disk.kind(&folder);
        if kind.map_err(|error| BlobError::io(&folder, "look for", error))?.is_none() {
            return Ok(());
        }
        let mut is_changed = false;
        for entry in self.list(&folder)? {
            let Some(name) = entry.name.to_str() else { continue };
            // An unreadable record may be this one: then its blob stays.
            let is_uncommitted = layout::tid_of_name(name)
                .is_some_and(|tid| tid > after && log.has_written(oid, tid) == Some(false));
            if is_uncommitted {
                info!(%oid, file = name, "removing the blob of what was not committed");
            }
            if is_uncommitted || name == staged {
                self.remove(&folder.join(name))?;
                is_changed = true;
            }
        }
        if is_changed {
            self.sync_folder(&folder)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_line_and_a_strange_name_are_left_out() {
        let text = "0000000000000001 zodium-a\n0000000000000002 ../x\nzz zodium-b\n\
            0000000000000003 zodium-c/../d\n0000000000000004 zodium-";
        assert_eq!(parse(text).collect::<Vec<_>>(), [(Oid(1), "zodium-a")]);
        assert_eq!(after(text), Tid::ZERO);
        let text = "after 00000000000000ff\n0000000000000001 zodium-a\n";
        assert_eq!(parse(text).collect::<Vec<_>>(), [(Oid(1), "zodium-a")]);
        assert_eq!(after(text), Tid(255));
    }
}
