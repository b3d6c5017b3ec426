//! A data record in memory: shared, and never changed.
//!
//! Key decision: record and data are one allocation. A reader of the record finds its data in the
//! same place, and a small object takes no more memory than it needs. Large data stay in their own
//! allocation: a copy would cost more than it saves.

use bytes::Bytes;
use triomphe::{HeaderSlice, HeaderWithLength, ThinArc};
use zodium_types::Tid;

use super::record_cache::Weighted;

/// A data record with its back pointer followed. The bytes are its data. They are empty when it has
/// no data, or when the data have their own allocation.
pub(crate) type Record = ThinArc<RecordHead, u8>;

/// The fields of a record. Each byte counts: small objects take little more themselves.
pub(crate) struct RecordHead {
    pub(crate) position: u64,
    pub(crate) tid: Tid,
    /// Position of the previous record of the object, or 0.
    pub(crate) previous: u64,
    /// Data with their own allocation. The box keeps the head of all other records short.
    apart: Option<Box<Bytes>>,
}

/// Access to the content of a [`Record`].
pub(crate) trait RecordContent {
    fn head(&self) -> &RecordHead;

    /// The data; `None` when the object is deleted, or its creation was undone.
    fn data(&self) -> Option<&[u8]>;

    /// The data as an owned value without a copy, which keeps the whole record in memory.
    fn shared_data(&self) -> Option<Bytes>;
}

/// Keeps a record alive while its data are shared.
struct Owner(Record);

/// Data from this size on have their own allocation.
const APART_BYTES_MIN: usize = 32 << 10;

/// Makes a record from its data; `None`, or no bytes, means that the object is deleted, or that its
/// creation was undone: the format has no empty data.
pub(crate) fn new_record(position: u64, tid: Tid, previous: u64, data: Option<Bytes>) -> Record {
    let data = data.unwrap_or_default();
    let is_apart = data.len() >= APART_BYTES_MIN;
    let here = if is_apart { &[][..] } else { &data[..] };
    let apart = is_apart.then(|| Box::new(data.clone()));
    ThinArc::from_header_and_slice(RecordHead { position, tid, previous, apart }, here)
}

impl RecordContent for Record {
    #[inline]
    fn head(&self) -> &RecordHead {
        &self.header.header
    }

    #[inline]
    fn data(&self) -> Option<&[u8]> {
        match &self.head().apart {
            None if self.slice.is_empty() => None,
            None => Some(&self.slice),
            Some(data) => Some(data),
        }
    }

    fn shared_data(&self) -> Option<Bytes> {
        match &self.head().apart {
            None if self.slice.is_empty() => None,
            None => Some(Bytes::from_owner(Owner(self.clone()))),
            Some(data) => Some(Bytes::clone(data)),
        }
    }
}

impl Weighted for Record {
    #[inline]
    fn position(&self) -> u64 {
        self.head().position
    }

    fn bytes(&self) -> usize {
        let count = size_of::<usize>();
        let apart = self.head().apart.as_ref().map_or(0, |data| size_of::<Bytes>() + data.len());
        let here: &HeaderSlice<HeaderWithLength<RecordHead>, [u8]> = self;
        (count + size_of_val(here)).saturating_add(apart)
    }
}

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0.slice
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_of_any_size_come_back_lent_and_shared() {
        for length in [1, 100, APART_BYTES_MIN - 1, APART_BYTES_MIN, 100_000] {
            let data = Bytes::from(vec![7; length]);
            let record = new_record(4, Tid(5), 3, Some(data.clone()));
            assert_eq!(record.data(), Some(&data[..]));
            assert_eq!(record.shared_data(), Some(data));
            let RecordHead { position, tid, previous, .. } = record.head();
            assert_eq!((*position, *tid, *previous), (4, Tid(5), 3));
            assert!((length + 48..length + 112).contains(&record.bytes()), "{}", record.bytes());
        }
    }

    #[test]
    fn a_deletion_has_no_data() {
        let record = new_record(4, Tid(5), 3, None);
        assert_eq!((record.data(), record.shared_data()), (None, None));
    }

    #[test]
    fn shared_data_outlive_their_record() {
        let record = new_record(4, Tid(5), 0, Some(Bytes::from_static(b"data")));
        let data = record.shared_data();
        drop(record);
        assert_eq!(data.as_deref(), Some(&b"data"[..]));
    }

    #[test]
    fn small_data_do_not_keep_the_buffer_that_they_came_in() {
        let buffer = Bytes::from(vec![7; 100_000]);
        let record = new_record(4, Tid(5), 0, Some(buffer.slice(..100)));
        assert!(buffer.is_unique() && record.data().is_some());
    }
}
