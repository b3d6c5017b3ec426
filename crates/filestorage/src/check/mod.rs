//! Checks a data file: every transaction and record, their pointers, the index, and on request the
//! pickles in the current records and their references.
//!
//! It writes nothing and takes no lock, so a file can be checked while it is served. Transactions
//! appended after the start are not checked.
//!
//! Key decision: damage is reported and the check continues, at the next record or the next whole
//! transaction (`walk.rs`). The file is read once, in its order. The positions of current records
//! are kept in memory, 8 bytes an object, and as much again for the index file.

mod blob_data;
mod blobs;
mod deleted;
mod index;
mod objects;
mod paced;
mod pointers;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use zodium_disk::{Disk, DiskFile, OpenMode};

pub use blobs::{BlobsToCheck, CheckedBlobs};
pub use index::IndexVerdict;
pub(crate) use paced::Paced;

use crate::checksums::{Comparison, Distrust, Opened};
use crate::format::{Damage, DamageKind, MAGIC_BYTES, Magic};
use crate::open::resolve;
use crate::read::Positions;
use crate::scan::{LOOK_BYTES, Piece, RecordLookup, Resync, Walk, Window};
use crate::{FileStorageError, checksums};
use blobs::BlobCheck;
use deleted::Deleted;
use index::IndexCheck;
use objects::Objects;
use pointers::Pointers;

/// Interval between two looks at an end that may be a commit in progress.
const PATIENCE_STEP: Duration = Duration::from_millis(50);
/// Attempts to open a file that packs replace meanwhile.
const OPENINGS_MAX: u32 = 10;

/// What to check.
pub struct CheckOptions<'a> {
    /// The data file.
    pub path: PathBuf,
    /// Whether to look for references to objects that do not exist.
    pub references: bool,
    /// Whether to check that current records are pickles.
    pub pickles: bool,
    /// How long to wait for an unfinished end: in a file that is being served it may be a commit in
    /// progress.
    pub patience: Duration,
    /// Called with the bytes that are done and the number of all, in each pass through the file.
    pub progress: &'a dyn Fn(u64, u64),
}

impl CheckOptions<'_> {
    /// Of the structure alone: without a look at contents, patience and progress.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            references: false,
            pickles: false,
            patience: Duration::ZERO,
            progress: &|_, _| (),
        }
    }
}

/// The result of a check, apart from the damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checked {
    /// Bytes that were checked.
    pub bytes: u64,
    /// Transactions, damaged ones included.
    pub transactions: u64,
    /// Records, of all revisions.
    pub records: u64,
    /// Objects, deleted ones included.
    pub objects: u64,
    /// Number of damaged places.
    pub damages: u64,
    /// The index file.
    pub index: IndexVerdict,
    /// Whether the file was compared with checksums.
    pub has_checksums: bool,
    /// Why existing checksums were not used. Only the structure was checked then.
    pub distrust: Option<Distrust>,
    /// Transactions and records that have a checksum.
    pub covered: u64,
    /// Transactions and records without a checksum.
    pub uncovered: u64,
    /// Its blobs, if a blob directory was checked.
    pub blobs: Option<CheckedBlobs>,
}

/// Checks a data file and reports all damage, in the order of the file as far as it is met there.
///
/// # Errors
/// When the file cannot be opened, or is no FileStorage. What cannot be read of it is damage.
pub fn check(
    disk: &dyn Disk,
    options: &CheckOptions<'_>,
    report: &mut dyn FnMut(&Damage),
) -> Result<Checked, FileStorageError> {
    check_with_blobs(disk, options, None, report)
}

/// As [`check`], and compares the blob directory with the records of blobs, and the blobs with
/// their recorded lengths. Files that no record is of are reported too, and are no damage.
///
/// # Errors
/// As [`check`], and when the directory cannot be listed.
pub fn check_with_blobs(
    disk: &dyn Disk,
    options: &CheckOptions<'_>,
    blobs: Option<BlobsToCheck<'_>>,
    report: &mut dyn FnMut(&Damage),
) -> Result<Checked, FileStorageError> {
    let options = &CheckOptions { path: resolve(disk, &options.path)?, ..*options };
    let mut damages = 0;
    let mut report = |damage: Damage| {
        damages += u64::from(damage.kind.is_damage());
        report(&damage);
    };
    // Before the file is opened: the key decision of `blobs.rs`.
    let mut blobs = blobs.map(BlobCheck::list).transpose()?;
    let (index, source) = open_with_index(disk, &options.path, &mut report)?;
    if source.magic.is_none() {
        report(source.magic_damage());
    }
    let opened = checksums::open(disk, &options.path, OpenMode::Read, &source.file, source.end);
    let checksums = opened.as_ref().ok().and_then(Option::as_ref);
    if let Some(opened) = checksums {
        opened.warn_if_shortened(&options.path, source.end);
    }
    let beside = Beside { index, checksums, blobs: blobs.as_mut() };
    let mut checked = check_file(options, &source, beside, &mut report);
    checked.blobs =
        blobs.map(|blobs| blobs.conclude(disk, options, &source.file, checked.bytes, &mut report));
    checked.damages = damages;
    checked.distrust = checked.distrust.or(opened.err());
    Ok(checked)
}

/// Reads the index, and opens the file that it belongs to: the index first, as that of a file that
/// grows meanwhile covers only a part. Anew if a pack has put another file there in between.
fn open_with_index(
    disk: &dyn Disk,
    path: &Path,
    report: &mut dyn FnMut(Damage),
) -> Result<(IndexCheck, Source), FileStorageError> {
    let io = |error| FileStorageError::io(path, "read", error);
    let mut attempts = 0;
    loop {
        attempts += 1;
        let before = disk.status(path).map_err(io)?.map(|status| status.identity);
        let mut found = Vec::new();
        let index = IndexCheck::read(disk, path, &mut |damage| found.push(damage));
        let source = Source::open(disk, path)?;
        let opened = source.file.status().map_err(io)?.identity;
        if before == Some(opened) {
            found.into_iter().for_each(report);
            return Ok((index, source));
        }
        if attempts == OPENINGS_MAX {
            // It belongs to another file, so it says nothing about this one.
            return Ok((IndexCheck::without_index(), source));
        }
    }
}

/// The data that the records of a file are compared with.
struct Beside<'a, 'b> {
    index: IndexCheck,
    checksums: Option<&'a Opened>,
    blobs: Option<&'a mut BlobCheck<'b>>,
}

fn check_file(
    options: &CheckOptions<'_>,
    source: &Source,
    beside: Beside<'_, '_>,
    report: &mut dyn FnMut(Damage),
) -> Checked {
    let Beside { mut index, checksums, mut blobs } = beside;
    let (path, file) = (&options.path, &source.file);
    let (current, mut deleted) = (Positions::new(), Deleted::default());
    let mut end = source.end;
    let mut pointers = Pointers::new(RecordLookup::new(path, file, end));
    let mut lookup = RecordLookup::new(path, file, end);
    let mut walk = Walk::new(path, file, end);
    let mut paced = Paced::new(options.progress, end);
    let (mut transactions, mut records) = (0, 0);
    let mut comparison = checksums.map(|opened| Comparison::new(&opened.side, MAGIC_BYTES));
    while let Some(piece) = walk.step() {
        paced.reach(piece.end);
        index.at(piece.start, &current, report);
        if is_under_way(options, file, &piece, source.end) {
            end = piece.start;
            break;
        }
        transactions += u64::from(piece.transaction.is_some());
        records += piece.records.len() as u64;
        piece.damage.iter().cloned().for_each(&mut *report);
        if let Some(comparison) = &mut comparison {
            comparison.compare(&mut walk.window, &piece).into_iter().for_each(&mut *report);
        }
        if let Some(blobs) = &mut blobs {
            blobs.add(&piece, &mut walk.window, &mut lookup);
        }
        pointers.add(&piece, &current, report);
        deleted.add(&piece);
    }
    pointers.look_up(report);
    let index = index.conclude(end, &current, report);
    if options.references || options.pickles {
        let (current, deleted) = (&current, &deleted);
        let mut objects = Objects { options, current, deleted, lookup, has_compressed: false };
        objects.check(Walk::new(path, file, end), report);
    }
    let objects = current.len();
    let distrust = comparison.as_ref().and_then(Comparison::distrust);
    let has_checksums = comparison.is_some() && distrust.is_none();
    let all = transactions + records;
    let (covered, uncovered) = comparison.map_or((0, all), |c| (c.covered, c.uncovered));
    Checked {
        bytes: end,
        transactions,
        records,
        objects,
        damages: 0,
        index,
        has_checksums,
        distrust,
        covered,
        uncovered,
        blobs: None,
    }
}

/// Whether an end of the file that is no transaction, up to `end`, becomes one after some waiting.
/// It may have looked unfinished to the walk, and finished when the walk asked for the reason.
fn is_under_way(
    options: &CheckOptions<'_>,
    file: &Arc<dyn DiskFile>,
    piece: &Piece,
    end: u64,
) -> bool {
    if piece.transaction.is_some() || piece.end < end {
        return false;
    }
    let mut left = options.patience;
    while !left.is_zero() {
        let step = left.min(PATIENCE_STEP);
        std::thread::sleep(step);
        left -= step;
        let Ok(length) = file.length() else { return false };
        let mut walk = Walk::starting_at(&options.path, file, length, piece.start);
        if length <= piece.start || walk.step().is_some_and(|found| found.is_whole()) {
            return true;
        }
    }
    false
}

/// A data file that was opened for reading.
pub(crate) struct Source {
    pub(crate) file: Arc<dyn DiskFile>,
    /// Its length at the start.
    pub(crate) end: u64,
    /// `None` when the file has none, but transactions all the same.
    pub(crate) magic: Option<Magic>,
}

impl Source {
    /// Opens a file, and makes sure that it is a FileStorage.
    pub(crate) fn open(disk: &dyn Disk, path: &Path) -> Result<Source, FileStorageError> {
        let io = |operation| move |error| FileStorageError::io(path, operation, error);
        let file = disk.open(path, OpenMode::Read).map_err(io("open"))?;
        let end = file.length().map_err(io("read"))?;
        let mut window = Window::new(path, &file, end, LOOK_BYTES);
        let magic = window.bytes(0, MAGIC_BYTES as usize).and_then(Magic::parse);
        let is_one = magic.is_some() || Resync::new(&window).find(MAGIC_BYTES).is_some();
        match is_one {
            true => Ok(Source { file, end, magic }),
            false => Err(FileStorageError::NotFileStorage { path: path.to_owned() }),
        }
    }

    /// The damage of a file with a wrong magic.
    pub(crate) fn magic_damage(&self) -> Damage {
        let what = "the file does not begin with FS21 or FS30".to_owned();
        Damage { kind: DamageKind::Magic, position: 0, what, oid: None, tid: None }
    }
}
