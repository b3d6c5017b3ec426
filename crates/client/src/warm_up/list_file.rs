//! The file of a list: read whole, and written whole beside the old one.
//!
//! Key decision: no lock. Processes that share a file replace each other's lists, and each of them
//! is whole. Nothing is synced: a damaged list fails its checksum, and is not used.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tracing::{info, warn};
use zodium_disk::{Disk, FileStream, OpenMode, with_suffix};

use super::list::{FILE_BYTES_MAX, List};

/// A file with a list.
pub(super) struct ListFile {
    disk: Arc<dyn Disk>,
    path: PathBuf,
}

impl ListFile {
    pub(super) fn new(disk: Arc<dyn Disk>, path: PathBuf) -> ListFile {
        ListFile { disk, path }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The list in the file; an empty one if it cannot be used.
    pub(super) fn read(&self, source: &str) -> List {
        let path = self.path.display();
        let decoded = match self.bytes() {
            Ok(bytes) => List::decode(&bytes, source),
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    warn!(%path, %error, "the warm-up list cannot be read");
                }
                return List::default();
            }
        };
        match decoded {
            Ok(list) => {
                info!(%path, objects = list.oids().len(), "warm-up list read");
                list
            }
            Err(useless) => {
                warn!(%path, %useless, "the warm-up list is not used");
                List::default()
            }
        }
    }

    fn bytes(&self) -> io::Result<Vec<u8>> {
        let file = self.disk.open(&self.path, OpenMode::Read)?;
        let mut bytes = Vec::new();
        FileStream::new(&*file).take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    pub(super) fn write(&self, source: &str, list: &List) -> io::Result<()> {
        // Two processes may write at the same time.
        let new_path = with_suffix(&self.path, &format!(".{}.new", std::process::id()));
        let file = self.disk.open(&new_path, OpenMode::Truncate)?;
        let written = FileStream::new(&*file).write_all(&list.encode(source));
        let result = written.and_then(|()| self.disk.move_file(&new_path, &self.path));
        if result.is_err() {
            // A partial file would only take space. The first error is returned, not this one.
            let _ = self.disk.remove(&new_path);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use zodium_disk::{FaultyDisk, MemoryDisk, Operation};
    use zodium_types::Oid;

    use super::*;
    use crate::warnings::warnings_of;

    #[test]
    fn a_list_that_is_not_there_yet_is_no_warning_and_one_that_cannot_be_read_is() {
        let disk = FaultyDisk::new(MemoryDisk::volatile());
        let file = ListFile::new(Arc::new(disk.clone()), "list".into());
        let oids = || file.read("source").oids();
        assert_eq!(warnings_of(|| assert_eq!(oids(), [])), 0);
        file.write("source", &List::default().after(&[Oid(7)], 10)).unwrap();
        assert_eq!(warnings_of(|| assert_eq!(oids(), [Oid(7)])), 0);
        disk.fail(Operation::Open, 1, io::ErrorKind::PermissionDenied);
        assert_eq!(warnings_of(|| assert_eq!(oids(), [])), 1);
        disk.mend();
        assert_eq!(oids(), [Oid(7)]);
    }

    #[test]
    fn a_list_that_cannot_be_written_leaves_the_last_one_and_no_part_of_another() {
        let disk = FaultyDisk::new(MemoryDisk::volatile());
        let file = ListFile::new(Arc::new(disk.clone()), "list".into());
        let list = |oid| List::default().after(&[Oid(oid)], 10);
        file.write("source", &list(7)).unwrap();
        for operation in [Operation::Open, Operation::Write, Operation::Folder] {
            disk.fail(operation, 1, io::ErrorKind::StorageFull);
            assert!(file.write("source", &list(8)).is_err(), "{operation:?}");
            disk.mend();
            assert_eq!(file.read("source").oids(), [Oid(7)]);
            let partial = with_suffix("list".as_ref(), &format!(".{}.new", std::process::id()));
            assert_eq!(disk.files().bytes(&partial), None, "{operation:?}");
        }
    }
}
