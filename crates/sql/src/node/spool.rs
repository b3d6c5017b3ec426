//! Spools: files with the data of large transactions until their vote.
//!
//! Data are there as compression (one byte), SHA-1 (20 bytes) and content.

use bytes::{BufMut, BytesMut};
use zodium_disk::RealDisk;
use zodium_neo::Checksum;
use zodium_neo_storage::{Data, DatabaseError, ReadResult, Spool, Spooled};
use zodium_storage::{Spool as SpoolFile, SpooledData, StorageError};

use crate::place::Place;

/// Bytes of compression and SHA-1.
const HEAD_BYTES: usize = 21;

/// The spool of a transaction.
#[derive(Debug)]
struct NodeSpool(SpoolFile);

/// Data in it.
#[derive(Debug)]
struct NodeSpooled(SpooledData);

/// An empty spool beside a database. Blocking.
pub(super) fn new_spool(place: &Place) -> ReadResult<Box<dyn Spool>> {
    let file = SpoolFile::new(&RealDisk, &place.spool(), Default::default()).map_err(failure)?;
    Ok(Box::new(NodeSpool(file)))
}

impl Spool for NodeSpool {
    fn put(&mut self, data: &Data) -> ReadResult<Box<dyn Spooled>> {
        let mut bytes = BytesMut::with_capacity(HEAD_BYTES + data.bytes.len());
        bytes.put_u8(data.compression);
        bytes.put_slice(&data.checksum.0);
        bytes.put_slice(&data.bytes);
        let spooled = self.0.append(&bytes.freeze()).map_err(failure)?;
        Ok(Box::new(NodeSpooled(spooled)))
    }

    fn flush(&mut self) -> ReadResult<()> {
        self.0.flush().map_err(failure)
    }
}

impl Spooled for NodeSpooled {
    fn read(&self) -> ReadResult<Data> {
        let bytes = self.0.read().map_err(failure)?;
        let split = bytes.split_first_chunk::<HEAD_BYTES>();
        // What was put there has a head; a shorter read has failed above.
        let Some(([compression, checksum @ ..], content)) = split else {
            return Err(DatabaseError("data in a spool without their head".into()));
        };
        let (compression, checksum) = (*compression, Checksum(*checksum));
        Ok(Data { compression, checksum, bytes: content.to_vec() })
    }
}

fn failure(error: StorageError) -> DatabaseError {
    DatabaseError(error.into())
}
