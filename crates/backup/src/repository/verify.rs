//! Verifies a repository.

use rustc_hash::FxHashSet;
use zodium_types::Tid;

use super::blobs::Blob;
use super::chunk_store::{ChunkStore, Delta, hash_of};
use super::hash::Hash;
use super::items::Items;
use super::opened::Repository;
use super::point::{Chunk, Point, read_all};
use super::sealing::has_its_sum;
use crate::BackupError;

/// What was verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Restore points.
    pub points: u64,
    /// Chunks.
    pub chunks: u64,
    /// Blobs.
    pub blobs: u64,
    /// Bytes of their content.
    pub bytes: u64,
    /// The newest point.
    pub newest: Option<NewestPoint>,
}

/// How far the backups of a repository go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewestPoint {
    /// The number of the point.
    pub number: u64,
    /// When it was made, in seconds since 1970.
    pub seconds: i64,
    /// Its last transaction; [`Tid::ZERO`] of a storage that had none.
    pub last: Tid,
}

/// What was verified already.
#[derive(Default)]
struct Seen {
    /// Contents of chunks, by how they are stored.
    contents: FxHashSet<(Hash, Option<Delta>)>,
    /// Two points may list other blobs beside the same content: those that each backup found.
    blobs: FxHashSet<Blob>,
}

/// Verifies that each point has its lists, chunks and blobs; and unless `quick`, that their content
/// is what was backed up.
///
/// # Errors
/// `Damaged`: the first damage.
pub fn verify(repository: &Repository, quick: bool) -> Result<Verified, BackupError> {
    let mut damages = Vec::new();
    let verified = find_damage(repository, quick, &mut |damage| damages.push(damage))?;
    damages.into_iter().next().map_or(Ok(verified), Err)
}

/// As [`verify`], but goes on after damage: `report` is told of each.
///
/// # Errors
/// Those of the repository, but for damage.
pub fn find_damage(
    repository: &Repository,
    quick: bool,
    report: &mut dyn FnMut(BackupError),
) -> Result<Verified, BackupError> {
    let (store, mut seen) = (repository.store(), Seen::default());
    let mut finder = Finder { store: &store, quick, report, verified: Verified::default() };
    let (mut needed, mut are_lists_whole) = (FxHashSet::default(), true);
    let mut before: Option<Point> = None;
    for point in read_all(repository)? {
        finder.verified.points += 1;
        let Some(point) = finder.sound(point)? else {
            (before, are_lists_whole) = (None, false);
            continue;
        };
        let continues = before.as_ref().is_some_and(|before| point.is_after(before));
        if !point.is_complete() && !continues {
            let what =
                format!("restore point {} does not continue the one before it", point.number);
            (finder.report)(BackupError::damaged(repository.name(), what));
        }
        let (number, seconds, last) = (point.number, point.seconds, point.last());
        finder.verified.newest = Some(NewestPoint { number, seconds, last });
        needed.extend(point.pages().cloned());
        match finder.sound(point.own_chunks(&store))? {
            Some(chunks) => {
                needed.extend(chunks.iter().flat_map(Chunk::objects).cloned());
                finder.verify_chunks(chunks, &mut seen)?;
            }
            None => are_lists_whole = false,
        }
        before = Some(point);
    }
    // What lists are of that cannot be read is needed too.
    if !quick && are_lists_whole {
        finder.sound(verify_others(repository, &needed))?;
    }
    Ok(finder.verified)
}

/// Looks for damage, and tells of it.
struct Finder<'f> {
    store: &'f ChunkStore<'f>,
    quick: bool,
    report: &'f mut dyn FnMut(BackupError),
    verified: Verified,
}

impl Finder<'_> {
    /// What is there; `None` if it is damaged, which is told.
    fn sound<T>(&mut self, found: Result<T, BackupError>) -> Result<Option<T>, BackupError> {
        match found {
            Err(error) if error.is_damage() => {
                (self.report)(error);
                Ok(None)
            }
            found => found.map(Some),
        }
    }

    fn verify_chunks(&mut self, chunks: Vec<Chunk>, seen: &mut Seen) -> Result<(), BackupError> {
        for chunk in chunks {
            if seen.contents.insert((chunk.hash.clone(), chunk.delta.clone())) {
                self.sound(verify_content(self.store, &chunk, self.quick))?;
                self.verified.chunks += 1;
                self.verified.bytes += chunk.bytes;
            }
            for blob in chunk.blobs {
                if !seen.blobs.contains(&blob) {
                    self.sound(verify_blob(self.store, &blob, self.quick))?;
                    self.verified.blobs += 1;
                    self.verified.bytes += blob.bytes;
                    seen.blobs.insert(blob);
                }
            }
        }
        Ok(())
    }
}

/// Holds the objects that no point needs against their checksums: the next backup may find that it
/// needs them.
fn verify_others(repository: &Repository, needed: &FxHashSet<Hash>) -> Result<(), BackupError> {
    let place = repository.place();
    for found in place.list("chunks")? {
        if hash_of(&found.object).is_none_or(|hash| needed.contains(&hash)) {
            continue;
        }
        if place.get(&found.object)?.is_some_and(|sealed| !has_its_sum(&sealed)) {
            let what = "its checksum differs. No restore point needs it: remove it";
            return Err(BackupError::damaged(place.path(&found.object), what));
        }
    }
    Ok(())
}

fn verify_content(store: &ChunkStore<'_>, chunk: &Chunk, quick: bool) -> Result<(), BackupError> {
    if quick {
        return verify_presence(store, chunk.content_objects());
    }
    let content = chunk.content(store)?;
    let mut items = Items::new(&content);
    while let Some(item) = items.step() {
        item.map_err(|()| BackupError::damaged(store.path(&chunk.hash), "it has no items"))?;
    }
    Ok(())
}

fn verify_blob(store: &ChunkStore<'_>, blob: &Blob, quick: bool) -> Result<(), BackupError> {
    match quick {
        true => verify_presence(store, blob.pieces.iter()),
        false => blob.read(store, &mut |_| Ok(())).map(drop),
    }
}

fn verify_presence<'h>(
    store: &ChunkStore<'_>,
    mut objects: impl Iterator<Item = &'h Hash>,
) -> Result<(), BackupError> {
    objects.try_for_each(|hash| match store.has(hash)? {
        true => Ok(()),
        false => Err(BackupError::damaged(store.path(hash), "it is missing")),
    })
}
