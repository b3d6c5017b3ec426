//! Begins the checksums of a session with the file that was opened.

use std::sync::Arc;

use tracing::warn;
use zodium_disk::{Disk, with_suffix};

use super::options::OpenOptions;
use super::recovery::Recovered;
use crate::checksums::{ChecksumMode, Checksums, SUFFIX, Writing, keep_later_version};

impl Recovered {
    /// Begins to use the side file, which is made when there is none. `None` when it is not asked
    /// for, or cannot be used, which is logged.
    pub(crate) fn start_checksums(
        &self,
        disk: &dyn Disk,
        options: &OpenOptions<'_>,
    ) -> Option<Arc<Checksums>> {
        let path = options.path.as_path();
        let side_path = with_suffix(path, SUFFIX);
        let writing = match (&self.checksums, options.checksums, options.read_only) {
            (_, ChecksumMode::Off, _) | (None, _, true) => return None,
            (Some(opened), _, true) => Ok(Writing::never(Arc::clone(&opened.side))),
            (Some(opened), _, false) => Writing::resume(opened, self.file.as_ref(), self.end),
            (None, _, false) => {
                let file = self.file.as_ref();
                keep_later_version(disk, &side_path)
                    .and_then(|()| Writing::create(disk, (&side_path, path), file, self.end, 0))
                    .and_then(|writing| disk.sync_folder_of(&side_path).map(|()| writing))
            }
        };
        let writing = writing
            .inspect_err(|error| {
                warn!(file = %side_path.display(), %error,
                    "checksums cannot be kept; the file is served without");
            })
            .ok()?;
        let checksums = Arc::new(Checksums::new(path, options.checksums, writing));
        self.damages.iter().for_each(|damage| checksums.note(damage));
        Some(checksums)
    }
}
