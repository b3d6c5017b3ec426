//! Backs a data file up: as a whole, or what was appended to it.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::chain::{Chain, Listed, SummedBytes, all_names, append, read};
use super::name::{Date, Name};
use crate::BackupError;
use crate::files::{BUFFER_BYTES, NewFile, lock};

/// The name that repozo writes data under, before they are whole.
const TEMPORARY: &str = "tmp.tmp";

/// A data file as it is backed up.
pub struct Source<'s> {
    /// Its path, for messages.
    pub path: &'s Path,
    /// The file, open.
    pub file: &'s File,
    /// The end of its last whole transaction.
    pub end: u64,
    /// Writes the index of the file up to `end`, in ZODB's format.
    pub write_index: &'s mut dyn FnMut(&mut dyn Write) -> Result<(), BackupError>,
}

/// How a data file is backed up.
#[derive(Clone, Copy, Debug, Default)]
pub struct RepozoOptions {
    /// Make a full copy in any case.
    pub full: bool,
    /// Compare only the last range that was backed up with the file, not all that was.
    pub quick: bool,
    /// Compress data.
    pub gzip: bool,
    /// Remove older backups after a full one.
    pub kill_old: bool,
}

/// What a backup did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// All is backed up already.
    Unchanged,
    /// A range was copied.
    Copied {
        /// The file that was written.
        name: String,
        /// Whether it is a full copy.
        is_full: bool,
        /// Bytes of the data file that it holds.
        bytes: u64,
    },
}

/// Backs `source` up to a folder, under the name of `date`.
///
/// # Errors
/// `Refused` when there is a backup of that second or later, as after the clock was set back, and
/// while another one is under way.
pub fn backup(
    folder: &Path,
    source: &mut Source<'_>,
    options: RepozoOptions,
    date: &Date,
) -> Result<Done, BackupError> {
    let _lock = lock(folder)?;
    if let Some(newest) = all_names(folder)?.last().filter(|name| name.date >= *date) {
        // A restore takes the files in the order of their dates.
        let what = match newest.date == *date {
            true => format!("there is a backup of {date} already"),
            false => format!(
                "the newest backup is of {}, which is later than now, {date}; set the clock right, \
                 or begin a new folder",
                newest.date
            ),
        };
        return Err(BackupError::Refused(format!("{}: {what}", folder.display())));
    }
    let chain = if options.full { None } else { Chain::find(folder, None)? };
    let kept = match &chain {
        Some(chain) => saved_bytes(folder, chain, source, options.quick)?,
        None => None,
    };
    let name = |is_full| Name { date: date.clone(), is_full, is_gzipped: options.gzip };
    match (chain, kept) {
        (Some(_), Some(saved)) if saved == source.end => Ok(Done::Unchanged),
        (Some(chain), Some(saved)) => {
            copy(folder, source, name(false), saved, &chain.list_path(folder))
        }
        _ => {
            let name = name(true);
            let list = folder.join(name.beside("dat"));
            let done = copy(folder, source, name, 0, &list)?;
            if options.kill_old {
                remove_before(folder, date)?;
            }
            Ok(done)
        }
    }
}

/// How many bytes the chain has of the file; `None` if the file does not begin with them.
fn saved_bytes(
    folder: &Path,
    chain: &Chain,
    source: &Source<'_>,
    quick: bool,
) -> Result<Option<u64>, BackupError> {
    let listed = chain.list(folder)?;
    // A file that is not listed is one of a backup that was interrupted.
    let Some(last) = listed.last().filter(|_| listed.len() == chain.names.len()) else {
        return Ok(None);
    };
    if last.end > source.end {
        return Ok(None);
    }
    if quick {
        let mut sum = SummedBytes::default();
        each_piece(source, last.start, last.end, &mut |piece| {
            sum.add(piece);
            Ok(())
        })?;
        return Ok((sum.finish().1 == last.md5).then_some(last.end));
    }
    let mut position = 0;
    for name in &chain.names {
        let mut is_same = true;
        let mut buffer = vec![0; BUFFER_BYTES];
        let (bytes, _) = read(folder, name, &mut |piece| {
            let ours = &mut buffer[..piece.len()];
            is_same &= source.file.read_exact_at(ours, position).is_ok() && ours == piece;
            position += piece.len() as u64;
            Ok(())
        })?;
        let expected = listed.iter().find(|listed| listed.name == *name);
        let is_listed = expected.is_some_and(|listed| listed.end - listed.start == bytes);
        if !is_same || !is_listed || position > source.end {
            return Ok(None);
        }
    }
    Ok(Some(position))
}

fn copy(
    folder: &Path,
    source: &mut Source<'_>,
    name: Name,
    start: u64,
    list: &Path,
) -> Result<Done, BackupError> {
    let index = folder.join(name.beside("index"));
    let mut index = NewFile::create(&index, &folder.join("tmp.index.tmp"))?;
    (source.write_index)(&mut index)?;
    index.finish()?;
    let path = folder.join(name.to_string());
    let mut output = NewFile::create(&path, &folder.join(TEMPORARY))?;
    let mut sum = SummedBytes::default();
    if name.is_gzipped {
        let mut encoder = GzEncoder::new(output, Compression::default());
        each_piece(source, start, source.end, &mut |piece| {
            sum.add(piece);
            encoder.write_all(piece).map_err(BackupError::io("write to it", &path))
        })?;
        output = encoder.finish().map_err(BackupError::io("write to it", &path))?;
    } else {
        each_piece(source, start, source.end, &mut |piece| {
            sum.add(piece);
            output.write(piece)
        })?;
    }
    output.finish()?;
    let (bytes, md5) = sum.finish();
    let (shown, is_full, end) = (name.to_string(), name.is_full, source.end);
    append(folder, list, &Listed { name, start, end, md5 })?;
    Ok(Done::Copied { name: shown, is_full, bytes })
}

/// Shows the bytes of a range of the data file.
fn each_piece(
    source: &Source<'_>,
    start: u64,
    end: u64,
    visit: &mut dyn FnMut(&[u8]) -> Result<(), BackupError>,
) -> Result<(), BackupError> {
    let (mut position, mut buffer) = (start, vec![0; BUFFER_BYTES]);
    while position < end {
        let count = (end - position).min(BUFFER_BYTES as u64) as usize;
        let piece = &mut buffer[..count];
        let read = source.file.read_exact_at(piece, position);
        read.map_err(BackupError::io("read it", source.path))?;
        visit(piece)?;
        position += count as u64;
    }
    Ok(())
}

/// Removes all backups before a full one.
fn remove_before(folder: &Path, date: &Date) -> Result<(), BackupError> {
    for name in all_names(folder)?.into_iter().filter(|name| name.date < *date) {
        for other in [name.beside("dat"), name.beside("index"), name.to_string()] {
            let path = folder.join(other);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(BackupError::io("remove it", &path)(error));
                }
                _ => {}
            }
        }
    }
    Ok(())
}
