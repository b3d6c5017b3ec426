//! Iterates over all current objects in the order of their oids, reading ahead.
//!
//! Key decision: an object is "current" as of the moment it is requested. So objects that were read
//! ahead count only until the next commit is heard of. The more of them had to be discarded, the
//! less is read ahead.

use std::collections::VecDeque;

use bytes::Bytes;
use zodium_pickle::Value;
use zodium_types::{Oid, Tid};
use zodium_zeo::codec::ChunkItem;

use crate::chunk::{READ_OBJECTS, bytes_of, take_item};
use crate::shared::Shared;
use crate::{Client, ClientError};

/// Read-ahead at first, and after commits made it useless.
const FIRST_BYTES: usize = 4 << 10;
/// Read-ahead while it is used.
const CHUNK_BYTES: usize = 256 << 10;

/// The current revision of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CurrentObject {
    /// The object.
    pub oid: Oid,
    /// The transaction that wrote it.
    pub serial: Tid,
    /// Its data.
    pub data: Bytes,
    /// The next object in the order of oids.
    pub following: Option<Oid>,
}

/// Objects read ahead for the next call.
#[derive(Default)]
pub(crate) struct ObjectsAhead {
    objects: VecDeque<CurrentObject>,
    /// The last known transaction when they were requested.
    known: Tid,
    /// Size of the next request.
    bytes: usize,
}

impl Client {
    /// The current revision of the first object with oid `from` or later; `None` for the first
    /// object of all. Reads the following objects ahead.
    pub fn next_object(&self, from: Option<Oid>) -> Result<CurrentObject, ClientError> {
        let shared = self.shared();
        if let Some(known) = shared.objects_ahead.lock().take(from, shared.told.so_far()) {
            return Ok(known);
        }
        let current = shared.established()?;
        let connection = &current.connection;
        if !current.has_chunks {
            let answer = connection.call("record_iternext", &Value::tuple([from.into()]))?;
            return CurrentObject::from_answer(answer);
        }
        let (known, bytes) = (shared.told.so_far(), shared.objects_ahead.lock().bytes());
        let arguments = Value::tuple([from.into(), Value::Int(bytes as i128)]);
        let answer = connection.call(READ_OBJECTS, &arguments)?;
        let mut objects = objects_of(bytes_of(answer, READ_OBJECTS)?)?;
        let unexpected = ClientError::Unexpected { method: READ_OBJECTS, expected: "an object" };
        let first = objects.pop_front().ok_or(unexpected)?;
        keep(&shared, objects, known);
        Ok(first)
    }
}

fn keep(shared: &Shared, objects: VecDeque<CurrentObject>, known: Tid) {
    let mut ahead = shared.objects_ahead.lock();
    (ahead.objects, ahead.known) = (objects, known);
}

impl ObjectsAhead {
    fn bytes(&self) -> usize {
        self.bytes.max(FIRST_BYTES)
    }

    /// The first object from `from` on, if it was read ahead and is still current.
    fn take(&mut self, from: Option<Oid>, last_tid: Tid) -> Option<CurrentObject> {
        let is_old = self.known != last_tid;
        let first = self.objects.front()?;
        if is_old || from != Some(first.oid) {
            self.objects.clear();
            self.bytes = FIRST_BYTES;
            return None;
        }
        let first = self.objects.pop_front();
        if self.objects.is_empty() {
            self.bytes = (self.bytes() * 2).min(CHUNK_BYTES);
        }
        first
    }
}

impl CurrentObject {
    /// Decodes the answer to `record_iternext`.
    ///
    /// # Errors
    /// When it is of another kind.
    pub fn from_answer(answer: Value<'static>) -> Result<CurrentObject, ClientError> {
        let parts = answer.into_sequence().map(<[Value<'_>; 4]>::try_from);
        if let Some(Ok([oid, serial, data, following])) = parts
            && let (Some(oid), Some(serial)) = (oid.as_oid(), serial.as_tid())
            && let Value::Bytes(data) = data
        {
            let (data, following) = (Bytes::from(data.into_owned()), following.as_oid());
            return Ok(CurrentObject { oid, serial, data, following });
        }
        Err(ClientError::Unexpected { method: "record_iternext", expected: "an object" })
    }
}

/// Each object with the oid of its successor. The data of one answer share one buffer.
fn objects_of(mut chunk: Bytes) -> Result<VecDeque<CurrentObject>, ClientError> {
    let mut objects: VecDeque<CurrentObject> = VecDeque::new();
    let stray = || ClientError::Unexpected { method: READ_OBJECTS, expected: "objects" };
    loop {
        let is_over = take_item(&mut chunk, |item, cut| {
            let following = match item {
                ChunkItem::Object { oid, .. } | ChunkItem::Following(oid) => Some(oid),
                ChunkItem::End => None,
                _ => return Err(stray()),
            };
            if let Some(last) = objects.back_mut() {
                last.following = following;
            }
            let ChunkItem::Object { oid, serial, data } = item else { return Ok(true) };
            objects.push_back(CurrentObject { oid, serial, data: cut(data), following: None });
            Ok(false)
        })?;
        // Without this item the successor is unknown.
        if is_over.ok_or_else(stray)?? {
            return Ok(objects);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TID: Tid = Tid(5);

    /// Takes an object that was the only one read ahead.
    fn take(ahead: &mut ObjectsAhead, last_tid: Tid) -> Option<CurrentObject> {
        let oid = Oid(7);
        let object = CurrentObject { oid, serial: TID, data: Bytes::new(), following: None };
        (ahead.objects, ahead.known) = ([object].into(), TID);
        ahead.take(Some(oid), last_tid)
    }

    #[test]
    fn more_and_more_is_read_ahead_while_it_is_used_and_little_after_a_commit() {
        let mut ahead = ObjectsAhead::default();
        for kib in [4, 8, 16, 32, 64, 128, 256, 256] {
            assert_eq!(ahead.bytes(), kib << 10);
            assert!(take(&mut ahead, TID).is_some());
        }
        assert_eq!(take(&mut ahead, TID.next()), None);
        assert_eq!(ahead.bytes(), FIRST_BYTES);
    }
}
