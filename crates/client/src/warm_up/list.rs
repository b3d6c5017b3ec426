//! The list of objects, and its format. docs/format.md defines it.
//!
//! Key decision: an object that a run did not load stays for some further runs. So a short run,
//! such as a script, does not cost the next one its list.

use rustc_hash::FxHashSet;
use thiserror::Error;
use zodium_types::Oid;

use crate::cache::is_other_version;

const MAGIC: &[u8; 8] = b"zodiumW1";
/// Number of runs that an object stays without being loaded.
const AGE_MAX: u8 = 3;
/// A run that has loaded less than one part in this many of the list says nothing of the rest.
const AGING_SHARE: usize = 2;
/// Bytes of an entry: an oid and its age.
const ENTRY_BYTES: usize = 9;
const SUM_BYTES: usize = 4;
/// Longest file that is read.
pub(super) const FILE_BYTES_MAX: u64 = 1 << 20;

/// Objects in the order in which they were first loaded, each with its age: the number of runs
/// since.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct List {
    entries: Vec<(Oid, u8)>,
}

/// Why a file cannot be used.
#[derive(Debug, Error, PartialEq, Eq)]
pub(super) enum Useless {
    #[error("it is a list of {0}")]
    Foreign(String),
    #[error("it is of another version of Zodium")]
    OtherVersion,
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
}

impl List {
    pub(super) fn oids(&self) -> Vec<Oid> {
        self.entries.iter().map(|(oid, _)| *oid).collect()
    }

    /// The list after a run that has loaded these objects first, with at most `objects_max`.
    pub(super) fn after(&self, recorded: &[Oid], objects_max: usize) -> List {
        let ages = recorded.len() * AGING_SHARE >= self.entries.len();
        let new: FxHashSet<Oid> = recorded.iter().copied().collect();
        let rest = self.entries.iter().filter(|(oid, _)| !new.contains(oid));
        let rest = rest.map(|(oid, age)| (*oid, age.saturating_add(u8::from(ages))));
        let recorded = recorded.iter().map(|oid| (*oid, 0));
        let entries = recorded.chain(rest.filter(|(_, age)| *age <= AGE_MAX));
        List { entries: entries.take(objects_max).collect() }
    }

    pub(super) fn encode(&self, source: &str) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        // A list has at most `OBJECTS_MAX` entries, and a source the length of some addresses.
        bytes.extend((source.len() as u32).to_be_bytes());
        bytes.extend(source.as_bytes());
        bytes.extend((self.entries.len() as u32).to_be_bytes());
        for (oid, age) in &self.entries {
            bytes.extend(oid.to_bytes());
            bytes.push(*age);
        }
        let sum = crc32c::crc32c(&bytes);
        bytes.extend(sum.to_be_bytes());
        bytes
    }

    /// Decodes a file; `source` names the storage and its servers.
    pub(super) fn decode(file: &[u8], source: &str) -> Result<List, Useless> {
        if is_other_version(MAGIC, file) {
            return Err(Useless::OtherVersion);
        }
        let truncated = Useless::Damaged("it is truncated");
        let body = file.strip_prefix(MAGIC);
        let body = body.ok_or(Useless::Damaged("it does not begin with the magic bytes"))?;
        let (Some(found), Some((body, sum))) =
            (prefixed(body), body.split_last_chunk::<SUM_BYTES>())
        else {
            return Err(truncated);
        };
        let summed = &file[..MAGIC.len() + body.len()];
        if crc32c::crc32c(summed) != u32::from_be_bytes(*sum) {
            return Err(Useless::Damaged("its checksum does not match"));
        }
        if found != source.as_bytes() {
            return Err(Useless::Foreign(String::from_utf8_lossy(found).into_owned()));
        }
        let rest = body.get(size_of::<u32>() + found.len()..).unwrap_or_default();
        let Some((count, entries)) = rest.split_first_chunk() else { return Err(truncated) };
        let (entries, surplus) = entries.as_chunks::<ENTRY_BYTES>();
        if entries.len() != u32::from_be_bytes(*count) as usize || !surplus.is_empty() {
            return Err(Useless::Damaged("the number of its entries does not match its length"));
        }
        let entry = |[oid @ .., age]: &[u8; ENTRY_BYTES]| (Oid(u64::from_be_bytes(*oid)), *age);
        Ok(List { entries: entries.iter().map(entry).collect() })
    }
}

/// The bytes after a length of four bytes.
fn prefixed(bytes: &[u8]) -> Option<&[u8]> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.get(..u32::from_be_bytes(*length) as usize)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SOURCE: &str = "storage 1 of localhost:8100";

    fn list(entries: &[(u64, u8)]) -> List {
        List { entries: entries.iter().map(|(oid, age)| (Oid(*oid), *age)).collect() }
    }

    fn oids(numbers: &[u64]) -> Vec<Oid> {
        numbers.iter().copied().map(Oid).collect()
    }

    #[test]
    fn what_was_loaded_last_comes_first_and_the_rest_ages() {
        let last = list(&[(1, 0), (2, 3), (3, 1)]);
        assert_eq!(last.after(&oids(&[4, 3]), 10), list(&[(4, 0), (3, 0), (1, 1)]));
        assert_eq!(last.after(&oids(&[4, 3]), 1), list(&[(4, 0)]));
    }

    #[test]
    fn a_short_run_ages_nothing() {
        let last = list(&[(1, 0), (2, 3), (3, 1)]);
        assert_eq!(last.after(&oids(&[9]), 10), list(&[(9, 0), (1, 0), (2, 3), (3, 1)]));
    }

    #[test]
    fn a_list_of_another_storage_is_not_used() {
        let file = list(&[(1, 0)]).encode("storage 2 of localhost:8100");
        let foreign = Useless::Foreign("storage 2 of localhost:8100".to_owned());
        assert_eq!(List::decode(&file, SOURCE), Err(foreign));
    }

    #[test]
    fn a_list_of_another_version_is_not_called_damaged() {
        let mut file = list(&[(1, 0)]).encode(SOURCE);
        file[7] = b'2';
        assert_eq!(List::decode(&file, SOURCE), Err(Useless::OtherVersion));
    }

    /// Of a file whose checksum is right, so that it was written like this.
    #[test]
    fn a_list_has_as_many_entries_as_it_says_and_nothing_behind_them() {
        let whole = list(&[(1, 0), (2, 1)]).encode(SOURCE);
        let body = &whole[..whole.len() - SUM_BYTES];
        let decode = |added: &[u8], counted: u32| {
            let mut file = [body, added].concat();
            let count = MAGIC.len() + size_of::<u32>() + SOURCE.len();
            file[count..count + size_of::<u32>()].copy_from_slice(&counted.to_be_bytes());
            let sum = crc32c::crc32c(&file);
            file.extend(sum.to_be_bytes());
            List::decode(&file, SOURCE)
        };
        assert_eq!(decode(&[], 2), Ok(list(&[(1, 0), (2, 1)])));
        assert_eq!(decode(&[0; ENTRY_BYTES], 3), Ok(list(&[(1, 0), (2, 1), (0, 0)])));
        for (added, counted) in [(0, 1), (0, 3), (1, 2), (ENTRY_BYTES - 1, 2), (ENTRY_BYTES, 2)] {
            let found = decode(&vec![0; added], counted);
            let is_damaged = matches!(found, Err(Useless::Damaged(_)));
            assert!(is_damaged, "{added} bytes more, {counted} entries: {found:?}");
        }
    }

    proptest! {
        #[test]
        fn a_list_is_read_as_it_was_written(
            entries in proptest::collection::vec((any::<u64>(), any::<u8>()), 0..50),
        ) {
            let list = list(&entries);
            prop_assert_eq!(List::decode(&list.encode(SOURCE), SOURCE), Ok(list));
        }

        #[test]
        fn a_changed_bit_and_a_missing_end_are_noticed(
            entries in proptest::collection::vec((any::<u64>(), any::<u8>()), 0..9),
            place in any::<proptest::sample::Index>(),
            bit in 0..8_u32,
        ) {
            let whole = list(&entries).encode(SOURCE);
            let mut file = whole.clone();
            let at = place.index(file.len());
            file[at] ^= 1_u8 << bit;
            let changed = List::decode(&file, SOURCE);
            let is_version = at == MAGIC.len() - 1 && file[at].is_ascii_digit();
            match is_version {
                true => prop_assert_eq!(changed, Err(Useless::OtherVersion)),
                false => prop_assert!(matches!(changed, Err(Useless::Damaged(_)))),
            }
            prop_assert!(matches!(List::decode(&whole[..at], SOURCE), Err(Useless::Damaged(_))));
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut file = MAGIC.to_vec();
            file.extend(bytes);
            let sum = crc32c::crc32c(&file);
            file.extend(sum.to_be_bytes());
            let _ = List::decode(&file, SOURCE);
        }
    }
}
