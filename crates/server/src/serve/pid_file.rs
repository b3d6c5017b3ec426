//! The file with the server's process id.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use tracing::warn;
use zodium_disk::explain_denied;

/// Longest file that may be one of an earlier server.
const PID_FILE_BYTES_MAX: u64 = 32;

/// Removed when dropped, unless another process has replaced it.
#[derive(Debug)]
pub(crate) struct PidFile {
    path: PathBuf,
    content: String,
}

impl PidFile {
    /// Writes our process id and a newline, as the stock server does. Replaces the file of an
    /// earlier server, but no other file.
    pub(crate) fn write(path: &Path) -> Result<PidFile> {
        let content = format!("{}\n", std::process::id());
        if is_something_else(path) {
            bail!(
                "{} exists, and is no pid file: give another path for the pid file, or remove it",
                path.display()
            );
        }
        // The existing file is not written to: it might be a link to something else.
        let written = remove(path).and_then(|()| {
            let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
            file.write_all(content.as_bytes())
        });
        // The mode of the folder decides: the file is removed and created.
        let folder = path.parent().unwrap_or(path);
        let written = written.map_err(|error| explain_denied(error, folder));
        written.with_context(|| format!("cannot write the pid file {}", path.display()))?;
        Ok(PidFile { path: path.to_owned(), content })
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        let ours = std::fs::read_to_string(&self.path).is_ok_and(|found| found == self.content);
        if ours && let Err(error) = remove(&self.path) {
            warn!(file = %self.path.display(), %error, "cannot remove the pid file");
        }
    }
}

/// Whether there is a file that holds more than a number. A link is replaced, not what it leads to.
fn is_something_else(path: &Path) -> bool {
    let Ok(found) = path.symlink_metadata() else { return false };
    if !found.is_file() {
        return !found.is_symlink();
    }
    if found.len() > PID_FILE_BYTES_MAX {
        return true;
    }
    // One that cannot be read, though its folder can be written, is not ours to judge.
    let content = std::fs::read(path).unwrap_or_default();
    // A power cut may leave zeros.
    let is_number = |byte: &u8| byte.is_ascii_digit() || byte.is_ascii_whitespace() || *byte == 0;
    !content.iter().all(is_number)
}

fn remove(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_file_is_replaced_and_ours_goes_with_us() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("zeo.pid");
        for stale in ["99999999\n", "", "\0\0\0\0\0"] {
            std::fs::write(&path, stale).unwrap();
            let file = PidFile::write(&path).unwrap();
            let content = std::fs::read_to_string(&path).unwrap();
            assert_eq!(content, format!("{}\n", std::process::id()));
            drop(file);
            assert!(!path.exists());
        }
    }

    #[test]
    fn a_file_that_holds_anything_else_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("zeo.pid");
        for content in ["FS30", "12 a", "1,5\n", &"1".repeat(1000)] {
            std::fs::write(&path, content).unwrap();
            let refused = PidFile::write(&path).unwrap_err().to_string();
            assert!(refused.contains("no pid file"), "{refused}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
        }
        for content in ["", "\n", "12", " 12 \n"] {
            std::fs::write(&path, content).unwrap();
            drop(PidFile::write(&path).unwrap());
            assert!(!path.exists());
        }
        let data = folder.path().join("Data.fs");
        std::fs::write(&data, "FS30").unwrap();
        std::os::unix::fs::symlink(&data, &path).unwrap();
        drop(PidFile::write(&path).unwrap());
        assert_eq!(std::fs::read_to_string(&data).unwrap(), "FS30");
        std::fs::create_dir(&path).unwrap();
        assert!(PidFile::write(&path).is_err());
    }

    #[test]
    fn the_file_of_another_process_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("zeo.pid");
        let file = PidFile::write(&path).unwrap();
        std::fs::write(&path, "1\n").unwrap();
        drop(file);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "1\n");
    }
}
