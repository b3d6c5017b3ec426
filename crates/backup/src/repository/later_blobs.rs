//! Blobs that a point lacks, and a later one has: a backup was made without their directory first.

use std::borrow::Cow;
use std::collections::BTreeMap;

use zodium_storage::LogItem;
use zodium_types::{Oid, Tid};

use super::blobs::Blob;
use super::chunk_store::tid_of;
use super::items::{Item, Items};
use super::opened::Repository;
use super::point::{Chunk, Point, is_damaged, readable_points};
use crate::BackupError;

/// Blobs of later points, by transaction and object.
#[derive(Default)]
pub(super) struct LaterBlobs(BTreeMap<(Tid, Oid), Blob>);

impl LaterBlobs {
    /// Those of all points after `point` that can be read, up to transaction `until`.
    pub(super) fn read(
        repository: &Repository,
        point: &Point,
        until: Tid,
    ) -> Result<LaterBlobs, BackupError> {
        let (store, mut blobs) = (repository.store(), BTreeMap::new());
        let points = readable_points(repository)?;
        for later in points.iter().filter(|other| other.number > point.number) {
            let chunks = later.own_chunks(&store);
            if is_damaged(&chunks) {
                continue;
            }
            for blob in chunks?.into_iter().flat_map(|chunk| chunk.blobs) {
                let (oid, tid) = blob.place();
                if tid <= until {
                    blobs.insert((tid, oid), blob);
                }
            }
        }
        Ok(LaterBlobs(blobs))
    }

    /// The blobs of a chunk, with those of its records that it lacks, in the order of their
    /// transactions.
    pub(super) fn with_those_of<'c>(&self, chunk: &'c Chunk, content: &[u8]) -> Cow<'c, [Blob]> {
        let (first, last) = (tid_of(&chunk.first), tid_of(&chunk.last));
        let others = self.0.range((first, Oid(0))..).take_while(|((tid, _), _)| *tid <= last);
        let mut others: BTreeMap<_, _> = others.collect();
        for blob in &chunk.blobs {
            let (oid, tid) = blob.place();
            others.remove(&(tid, oid));
        }
        if others.is_empty() {
            return Cow::Borrowed(&chunk.blobs);
        }
        // A later point may have another history: only the blobs of records that are here count.
        let (mut items, mut current) = (Items::new(content), first);
        let mut blobs = chunk.blobs.clone();
        while let Some(Ok(item)) = items.step() {
            match item {
                Item::Log(LogItem::Transaction { tid, .. }) => current = tid,
                Item::Log(LogItem::Record { oid, .. }) | Item::Same { oid, .. } => {
                    blobs.extend(others.remove(&(current, oid)).cloned());
                }
                Item::Log(LogItem::Skipped) => {}
            }
        }
        blobs.sort_by_key(|blob| blob.place().1);
        Cow::Owned(blobs)
    }
}
