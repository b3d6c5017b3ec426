//! A line of ours in the lock file: that nobody but our session has written since.
//!
//! The lock file is `zc.lockfile`'s: a space, the process id and a newline, written by whoever
//! takes the lock and left there. Our second line, `zodium` and the number of the session, is cut
//! off by any other program that opens the file for writing. So a file whose lock and whose
//! checksums name the same session was last written by that one.

use std::io;
use std::path::Path;

use zodium_disk::{Disk, OpenMode};

use crate::storage::with_suffix;

/// Both lines together are shorter.
const LINES_BYTES_MAX: usize = 64;
/// More is not looked at.
const BYTES_MAX: usize = 256;

/// The session that the lock file of a data file names; `None` when it names none.
pub(crate) fn read(disk: &dyn Disk, path: &Path) -> io::Result<Option<u64>> {
    let text = match text(disk, path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text?,
    };
    let nonce = text.split('\n').nth(1).and_then(|line| line.strip_prefix("zodium "));
    Ok(nonce.and_then(|nonce| u64::from_str_radix(nonce, 16).ok()))
}

/// Names a session in the lock file, or none. It is on stable storage when this returns.
pub(crate) fn write(disk: &dyn Disk, path: &Path, nonce: Option<u64>) -> io::Result<()> {
    let lock_path = with_suffix(path, ".lock");
    let before = text(disk, path).unwrap_or_default();
    let mut text = before.split('\n').next().unwrap_or_default().to_owned();
    text.push('\n');
    if let Some(nonce) = nonce {
        text.push_str(&format!("zodium {nonce:016x}\n"));
    }
    let file = disk.open(&lock_path, OpenMode::Create)?;
    let length = text.len();
    // Written over as well as cut: a length that was lost would bring a name back.
    let padding = LINES_BYTES_MAX.saturating_sub(length);
    text.extend(std::iter::repeat_n('\n', padding));
    file.write_all_at(text.as_bytes(), 0)?;
    file.set_length(length as u64)?;
    file.sync()?;
    disk.sync_folder_of(&lock_path)
}

fn text(disk: &dyn Disk, path: &Path) -> io::Result<String> {
    let file = disk.open(&with_suffix(path, ".lock"), OpenMode::Read)?;
    let mut bytes = [0; BYTES_MAX];
    let count = file.read_at(&mut bytes, 0)?;
    Ok(String::from_utf8_lossy(&bytes[..count]).into_owned())
}

#[cfg(test)]
mod tests {
    use zodium_disk::MemoryDisk;

    use super::*;

    #[test]
    fn a_session_is_named_behind_the_process_until_somebody_else_locks() {
        let disk = MemoryDisk::new();
        let (path, lock) = (Path::new("Data.fs"), Path::new("Data.fs.lock"));
        assert_eq!(read(&disk, path).unwrap(), None);
        disk.put(lock, b" 123\n".to_vec());
        assert_eq!(read(&disk, path).unwrap(), None);
        write(&disk, path, Some(0xabc)).unwrap();
        assert_eq!(disk.after_power_cut().bytes(lock).unwrap(), b" 123\nzodium 0000000000000abc\n");
        assert_eq!(read(&disk, path).unwrap(), Some(0xabc));
        write(&disk, path, Some(u64::MAX)).unwrap();
        assert_eq!(read(&disk, path).unwrap(), Some(u64::MAX));
        write(&disk, path, None).unwrap();
        assert_eq!(disk.bytes(lock).unwrap(), b" 123\n");
        for other in ["", " 1", " 1\n", " 1\nzodium\n", " 1\nzodium x\n", " 1\nother 12\n"] {
            disk.put(lock, other.as_bytes().to_vec());
            assert_eq!(read(&disk, path).unwrap(), None, "{other}");
        }
        disk.put(lock, vec![0xff; 1000]);
        assert_eq!(read(&disk, path).unwrap(), None);
    }
}
