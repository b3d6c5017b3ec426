//! Restores a data file, and verifies a folder.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use super::chain::{Chain, all_names, read};
use super::name::{Date, Name};
use crate::BackupError;
use crate::files::NewFile;

/// What was restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// Bytes of the data file.
    pub bytes: u64,
    /// The last of the files that it was made from.
    pub last: String,
}

/// Whether a folder has backups of repozo.
pub fn is_repozo(folder: &Path) -> bool {
    all_names(folder).is_ok_and(|names| !names.is_empty())
}

/// Restores the data file as it was backed up last, up to `until`, with its index.
///
/// # Errors
/// `Refused` if there is no such backup, and if the output exists already; `Damaged` if the sums
/// differ, and nothing is there then.
pub fn restore(
    folder: &Path,
    until: Option<&Date>,
    output: &Path,
) -> Result<Restored, BackupError> {
    if output.metadata().is_ok_and(|found| found.len() > 0) {
        let what = format!("{}: exists already; restore to another path", output.display());
        return Err(BackupError::Refused(what));
    }
    let part = with_suffix(output, ".part");
    let mut file = NewFile::create(output, &part)?;
    let restored = restore_to(folder, until, &mut |piece| file.write(piece));
    let restored = match restored {
        Ok(restored) => restored,
        Err(error) => {
            drop(file);
            // What is left of it does no harm.
            let _ = fs::remove_file(&part);
            return Err(error);
        }
    };
    if let Some(last) = Name::parse(&restored.last) {
        copy_index(&folder.join(last.beside("index")), &with_suffix(output, ".index"))?;
    }
    file.finish()?;
    Ok(restored)
}

fn copy_index(from: &Path, to: &Path) -> Result<(), BackupError> {
    match fs::copy(from, to) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(BackupError::io("copy the index from it", from)(error))
        }
        _ => Ok(()),
    }
}

/// As [`restore`], to anything that takes bytes.
///
/// # Errors
/// As [`restore`], and those of `visit`.
pub fn restore_to(
    folder: &Path,
    until: Option<&Date>,
    visit: &mut dyn FnMut(&[u8]) -> Result<(), BackupError>,
) -> Result<Restored, BackupError> {
    let chain = chain(folder, until)?;
    let mut bytes = 0;
    verify_chain(folder, &chain, false, &mut |piece| {
        bytes += piece.len() as u64;
        visit(piece)
    })?;
    let last = chain.names.last().map_or(String::new(), Name::to_string);
    Ok(Restored { bytes, last })
}

/// Verifies sizes and sums of the newest chain; `quick`: only sizes, where that needs no reading.
/// Gives the number of files.
///
/// # Errors
/// `Damaged`, and `Refused` if there are no backups.
pub fn verify(folder: &Path, quick: bool) -> Result<usize, BackupError> {
    let chain = chain(folder, None)?;
    verify_chain(folder, &chain, quick, &mut |_| Ok(()))?;
    Ok(chain.names.len())
}

fn chain(folder: &Path, until: Option<&Date>) -> Result<Chain, BackupError> {
    Chain::find(folder, until)?.ok_or_else(|| {
        let before = until.map_or(String::new(), |until| format!(" of {until} or before"));
        BackupError::Refused(format!("{}: there is no full backup{before}", folder.display()))
    })
}

fn verify_chain(
    folder: &Path,
    chain: &Chain,
    quick: bool,
    visit: &mut dyn FnMut(&[u8]) -> Result<(), BackupError>,
) -> Result<(), BackupError> {
    let listed = chain.list(folder)?;
    let listed: BTreeMap<_, _> = listed.iter().map(|listed| (&listed.name, listed)).collect();
    let mut position = 0;
    for name in &chain.names {
        let path = folder.join(name.to_string());
        let Some(listed) = listed.get(name) else {
            let list = chain.list_path(folder);
            return Err(BackupError::damaged(&list, format!("{name} is not listed")));
        };
        let expected = listed.end.saturating_sub(listed.start);
        if listed.start != position || listed.end < listed.start {
            return Err(BackupError::damaged(&path, "it does not follow the one before it"));
        }
        position = listed.end;
        let is_size_enough = quick && !name.is_gzipped;
        let (bytes, md5) = match is_size_enough {
            true => {
                let found = path.metadata().map_err(BackupError::io("read it", &path))?;
                (found.len(), listed.md5.clone())
            }
            false => read(folder, name, visit)?,
        };
        if bytes != expected {
            let what = format!("it has {bytes} bytes instead of {expected}");
            return Err(BackupError::damaged(&path, what));
        }
        if md5 != listed.md5 {
            let what = format!("its sum is {md5} instead of {}", listed.md5);
            return Err(BackupError::damaged(&path, what));
        }
    }
    Ok(())
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}
