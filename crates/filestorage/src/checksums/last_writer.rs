//! The last-writer marker: a line in the lock file that names the session that wrote last.
//!
//! The lock file is `zc.lockfile`'s: a space, the process id and a newline. The process that takes
//! the lock writes it and leaves it there. Our second line is `zodium` and the number of the
//! session. Any other program that opens the file for writing cuts this line off. So if the lock
//! file and the checksums name the same session, that session was the last writer. The line also
//! says `gaps` if the checksums have gaps.

use std::io;
use std::path::Path;

use zodium_disk::{Disk, OpenMode};

use zodium_disk::with_suffix;

/// Upper bound of the length of both lines.
const LINES_BYTES_MAX: usize = 64;
/// Bytes of the lock file that are read at most.
const BYTES_MAX: usize = 256;
/// Start of our line.
const PREFIX: &str = "zodium ";
/// End of our line if the checksums have gaps.
const GAPS: &str = " gaps";

/// The session that wrote last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LastWriter {
    /// Number of the session.
    pub(crate) nonce: u64,
    /// Whether everything in the file up to the session's last write has checksums.
    pub(crate) is_complete: bool,
}

impl LastWriter {
    fn parse(line: &str) -> Option<LastWriter> {
        let words = line.strip_prefix(PREFIX)?;
        let with_gaps = words.strip_suffix(GAPS);
        let nonce = u64::from_str_radix(with_gaps.unwrap_or(words), 16).ok()?;
        Some(LastWriter { nonce, is_complete: with_gaps.is_none() })
    }

    fn line(self) -> String {
        let gaps = if self.is_complete { "" } else { GAPS };
        format!("{PREFIX}{:016x}{gaps}\n", self.nonce)
    }
}

/// Reads the session that the lock file of a data file names; `None` when it names none.
pub(crate) fn read(disk: &dyn Disk, path: &Path) -> io::Result<Option<LastWriter>> {
    Ok(lines(disk, path)?.split('\n').nth(1).and_then(LastWriter::parse))
}

/// Whether the lock file has exactly this marker behind the process id.
pub(crate) fn says(disk: &dyn Disk, path: &Path, writer: Option<LastWriter>) -> io::Result<bool> {
    let text = lines(disk, path)?;
    let rest = text.split_once('\n').map_or("", |(_, rest)| rest);
    Ok(rest == writer.map(LastWriter::line).unwrap_or_default())
}

/// Writes the name of a session to the lock file, or removes it. Durable when this returns.
pub(crate) fn write(disk: &dyn Disk, path: &Path, writer: Option<LastWriter>) -> io::Result<()> {
    let lock_path = with_suffix(path, ".lock");
    let before = text(disk, path).unwrap_or_default();
    let mut text = before.split('\n').next().unwrap_or_default().to_owned();
    text.push('\n');
    text.push_str(&writer.map(LastWriter::line).unwrap_or_default());
    let file = disk.open(&lock_path, OpenMode::Create)?;
    let length = text.len();
    // Overwrite as well as cut: if the new length were lost, the old name would come back.
    let padding = LINES_BYTES_MAX.saturating_sub(length);
    text.extend(std::iter::repeat_n('\n', padding));
    file.write_all_at(text.as_bytes(), 0)?;
    file.set_length(length as u64)?;
    file.sync()?;
    disk.sync_folder_of(&lock_path)
}

/// As [`text`], but empty when there is no lock file.
fn lines(disk: &dyn Disk, path: &Path) -> io::Result<String> {
    match text(disk, path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        text => text,
    }
}

fn text(disk: &dyn Disk, path: &Path) -> io::Result<String> {
    let file = disk.open(&with_suffix(path, ".lock"), OpenMode::Read)?;
    let mut bytes = [0; BYTES_MAX];
    let count = file.read_at(&mut bytes, 0)?;
    Ok(String::from_utf8_lossy(&bytes[..count]).into_owned())
}

#[cfg(test)]
mod tests {
    use zodium_disk::{FaultyDisk, MemoryDisk, Operation};

    use super::*;

    #[test]
    fn a_session_is_named_behind_the_process_until_somebody_else_locks() {
        let disk = MemoryDisk::new();
        let (path, lock) = (Path::new("Data.fs"), Path::new("Data.fs.lock"));
        assert_eq!(read(&disk, path).unwrap(), None);
        disk.put(lock, b" 123\n".to_vec());
        assert_eq!(read(&disk, path).unwrap(), None);
        let complete = |nonce| Some(LastWriter { nonce, is_complete: true });
        write(&disk, path, complete(0xabc)).unwrap();
        assert!(says(&disk, path, complete(0xabc)).unwrap());
        assert!(!says(&disk, path, complete(0xabd)).unwrap() && !says(&disk, path, None).unwrap());
        assert_eq!(disk.after_power_cut().bytes(lock).unwrap(), b" 123\nzodium 0000000000000abc\n");
        assert_eq!(read(&disk, path).unwrap(), complete(0xabc));
        let gaps = Some(LastWriter { nonce: u64::MAX, is_complete: false });
        write(&disk, path, gaps).unwrap();
        assert_eq!(read(&disk, path).unwrap(), gaps);
        assert_eq!(disk.bytes(lock).unwrap(), b" 123\nzodium ffffffffffffffff gaps\n");
        write(&disk, path, None).unwrap();
        assert!(says(&disk, path, None).unwrap());
        assert_eq!(disk.bytes(lock).unwrap(), b" 123\n");
        for other in ["", " 1", " 1\n", " 1\nzodium\n", " 1\nzodium x\n", " 1\nother 12\n"] {
            disk.put(lock, other.as_bytes().to_vec());
            assert_eq!(read(&disk, path).unwrap(), None, "{other}");
            let is_blank = !other.contains('\n') || other.ends_with("1\n");
            assert_eq!(says(&disk, path, None).unwrap(), is_blank, "{other}");
        }
        disk.put(lock, vec![0xff; 1000]);
        assert_eq!(read(&disk, path).unwrap(), None);
    }

    #[test]
    fn a_lock_file_that_cannot_be_read_says_nothing() {
        let disk = MemoryDisk::new();
        let (path, lock) = (Path::new("Data.fs"), Path::new("Data.fs.lock"));
        assert!(says(&disk, path, None).unwrap(), "there is none");
        disk.put(lock, b" 123\n".to_vec());
        let disk = FaultyDisk::new(disk);
        for operation in [Operation::Open, Operation::Read] {
            disk.fail(operation, 1, io::ErrorKind::PermissionDenied);
            assert_eq!(
                says(&disk, path, None).unwrap_err().kind(),
                io::ErrorKind::PermissionDenied
            );
            disk.fail(operation, 1, io::ErrorKind::PermissionDenied);
            read(&disk, path).unwrap_err();
        }
    }

    /// A crash may leave the length from before, and with it the end of a longer name.
    #[test]
    fn a_shorter_line_writes_over_all_of_a_longer_one() {
        let disk = MemoryDisk::new();
        let (path, lock) = (Path::new("Data.fs"), Path::new("Data.fs.lock"));
        write(&disk, path, Some(LastWriter { nonce: 1, is_complete: false })).unwrap();
        let faulty = FaultyDisk::new(disk.clone());
        faulty.fail(Operation::SetLength, 1, io::ErrorKind::Other);
        write(&faulty, path, None).unwrap_err();
        let bytes = disk.bytes(lock).unwrap();
        assert_eq!(bytes.len(), LINES_BYTES_MAX);
        assert!(bytes.iter().all(|byte| *byte == b'\n'), "{bytes:?}");
    }
}
