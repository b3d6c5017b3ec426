//! What can be said of an encrypted repository without its key.

use super::chunk_store::hash_of;
use super::point::number_of;
use super::sealing::has_its_sum;
use crate::BackupError;
use crate::places::Place;

/// What is in an encrypted repository.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Restore points.
    pub points: u64,
    /// Chunks, lists of them, and pieces of blobs.
    pub objects: u64,
    /// Their bytes, as they are stored.
    pub bytes: u64,
}

/// Lists an encrypted repository; unless `quick`, also holds each object against its checksum. Not
/// seen are objects that are missing, or that were exchanged by a person.
///
/// # Errors
/// `Damaged`.
pub fn list(place: &dyn Place, quick: bool) -> Result<Listing, BackupError> {
    let mut listing = Listing::default();
    for folder in ["points", "chunks"] {
        for found in place.list(folder)? {
            match (number_of(&found.object), hash_of(&found.object)) {
                (Some(_), _) => listing.points += 1,
                (_, Some(_)) => listing.objects += 1,
                _ => continue,
            }
            listing.bytes += found.bytes;
            let is_sound = |sealed: Option<Vec<u8>>| sealed.is_some_and(|it| has_its_sum(&it));
            if !quick && !is_sound(place.get(&found.object)?) {
                let path = place.path(&found.object);
                return Err(BackupError::damaged(path, "its checksum differs"));
            }
        }
    }
    Ok(listing)
}
