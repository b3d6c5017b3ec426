//! A full copy with the appended ranges after it, and the list of their positions and sums.

use std::fs::{self, File};
use std::io::{BufReader, Read, Write};
use std::path::{Path, PathBuf};

use flate2::bufread::GzDecoder;
use md5::{Digest, Md5};

use super::name::{Date, Name};
use crate::BackupError;
use crate::files::{BUFFER_BYTES, sync_folder_of};
use crate::large_file::ReadOnce;

/// The files that a restore needs, the full copy first.
pub(super) struct Chain {
    pub(super) names: Vec<Name>,
}

/// A line of the list: a file, the range of the data file that it holds, and the sum of that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) name: Name,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) md5: String,
}

impl Chain {
    /// The newest chain, up to the backups of `until`; `None` without a full copy.
    pub(super) fn find(folder: &Path, until: Option<&Date>) -> Result<Option<Chain>, BackupError> {
        let mut names = all_names(folder)?;
        names.retain(|name| until.is_none_or(|until| name.date <= *until));
        let Some(full) = names.iter().rposition(|name| name.is_full) else { return Ok(None) };
        Ok(Some(Chain { names: names.split_off(full) }))
    }

    /// The path of the list.
    pub(super) fn list_path(&self, folder: &Path) -> PathBuf {
        folder.join(self.names[0].beside("dat"))
    }

    /// The list, without entries of files that are not in the chain.
    pub(super) fn list(&self, folder: &Path) -> Result<Vec<Listed>, BackupError> {
        let path = self.list_path(folder);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(BackupError::io("read it", &path)(error)),
        };
        // A line without its end is one of a backup that was interrupted.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let lines = whole.lines().map(|line| {
            parse(line).ok_or_else(|| BackupError::damaged(&path, format!("no entry: {line:?}")))
        });
        let mut listed = lines.collect::<Result<Vec<_>, _>>()?;
        listed.retain(|listed| self.names.contains(&listed.name));
        Ok(listed)
    }
}

/// All files with data, in the order of their dates.
pub(super) fn all_names(folder: &Path) -> Result<Vec<Name>, BackupError> {
    let entries = fs::read_dir(folder).map_err(BackupError::io("read it", folder))?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(BackupError::io("read it", folder))?;
        names.extend(entry.file_name().to_str().and_then(Name::parse));
    }
    names.sort();
    Ok(names)
}

/// Appends a line to a list, durably.
pub(super) fn append(folder: &Path, list: &Path, entry: &Listed) -> Result<(), BackupError> {
    let Listed { name, start, end, md5 } = entry;
    let line = format!("{} {start} {end} {md5}\n", folder.join(name.to_string()).display());
    let file = File::options().create(true).append(true).open(list);
    let written = file.and_then(|mut file| {
        file.write_all(line.as_bytes())?;
        file.sync_all()
    });
    written.map_err(BackupError::io("write to it", list))?;
    sync_folder_of(list)
}

fn parse(line: &str) -> Option<Listed> {
    // The path may contain spaces.
    let mut parts = line.rsplitn(4, ' ');
    let md5 = parts.next()?.to_owned();
    let end = parts.next()?.parse().ok()?;
    let start = parts.next()?.parse().ok()?;
    Some(Listed { name: Name::of_path(parts.next()?)?, start, end, md5 })
}

/// Shows the uncompressed bytes of a file with data, piece by piece; their number and their sum.
pub(super) fn read(
    folder: &Path,
    name: &Name,
    visit: &mut dyn FnMut(&[u8]) -> Result<(), BackupError>,
) -> Result<(u64, String), BackupError> {
    let path = folder.join(name.to_string());
    let file = File::open(&path).map_err(BackupError::io("open it", &path))?;
    let file = BufReader::with_capacity(BUFFER_BYTES, ReadOnce::new(file));
    let mut input: Box<dyn Read> = match name.is_gzipped {
        true => Box::new(GzDecoder::new(file)),
        false => Box::new(file),
    };
    let mut sum = SummedBytes::default();
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let count = match input.read(&mut buffer) {
            Ok(0) => return Ok(sum.finish()),
            Ok(count) => count,
            Err(error) if is_damage(&error) => {
                return Err(BackupError::damaged(&path, error.to_string()));
            }
            Err(error) => return Err(BackupError::io("read it", &path)(error)),
        };
        sum.add(&buffer[..count]);
        visit(&buffer[..count])?;
    }
}

fn is_damage(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
    matches!(error.kind(), InvalidData | InvalidInput | UnexpectedEof)
}

/// Counts and sums bytes that come in pieces.
#[derive(Default)]
pub(super) struct SummedBytes {
    count: u64,
    md5: Md5,
}

impl SummedBytes {
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.count += bytes.len() as u64;
        self.md5.update(bytes);
    }

    /// The number of bytes, and the digits of their sum.
    pub(super) fn finish(self) -> (u64, String) {
        let digits = self.md5.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        (self.count, digits)
    }
}
