//! The pending requests of a connection.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::sync::Arc;

use rustc_hash::FxHashMap;
use zodium_pickle::Value;
use zodium_types::{Oid, Tid};

use crate::promise::Promise;
use crate::{ClientError, Revision};

/// The reply to a load: a revision, or `None` if the object did not exist then.
pub(crate) type Loaded = Option<Revision>;
/// An object, and the transaction before which its revision is requested.
pub(crate) type LoadKey = (Oid, Tid);

/// A pending call.
pub(crate) struct Call {
    pub(crate) promise: Arc<Promise<Value<'static>>>,
    /// Runs on the reading thread, before any later message is handled. Its error ends the
    /// connection, and does not change the answer.
    pub(crate) then: Option<Then>,
}

pub(crate) type Then = Box<dyn FnOnce(&Value<'_>) -> Result<(), ClientError> + Send>;

/// The destination of a blob that is being fetched.
pub(crate) struct ArrivingBlob {
    pub(crate) file: File,
    /// Whether the server has told its end.
    pub(crate) is_whole: bool,
    /// Why a write to the file has failed; only the fetch of this blob fails.
    pub(crate) failure: Option<io::Error>,
}

/// A message about a blob that is being fetched.
pub(crate) enum BlobPart<'m> {
    Start,
    Chunk(&'m [u8]),
    Stop,
}

#[derive(Default)]
pub(crate) struct Table {
    pub(crate) calls: FxHashMap<u64, Call>,
    pub(crate) loads: FxHashMap<LoadKey, Arc<Promise<Loaded>>>,
    /// Destinations of blobs that are being fetched.
    pub(crate) blobs: FxHashMap<(Oid, Tid), ArrivingBlob>,
    /// Fetches whose callers have stopped waiting. Their chunks may still come, and name only the
    /// blob: it is fetched again when the answer is here.
    pub(crate) abandoned_blobs: FxHashMap<(Oid, Tid), Arc<Promise<Value<'static>>>>,
    /// No more requests are accepted.
    pub(crate) is_over: bool,
    last_id: u64,
}

impl ArrivingBlob {
    pub(crate) fn take(&mut self, part: &BlobPart<'_>) {
        if self.failure.is_none() {
            self.failure = self.write(part).err();
        }
    }

    fn write(&mut self, part: &BlobPart<'_>) -> io::Result<()> {
        match part {
            // What came before is of an answer that the server began again.
            BlobPart::Start => {
                self.file.set_len(0)?;
                self.file.rewind()?;
            }
            BlobPart::Chunk(chunk) => self.file.write_all(chunk)?,
            BlobPart::Stop => self.file.rewind()?,
        }
        self.is_whole = matches!(part, BlobPart::Stop);
        Ok(())
    }
}

impl Table {
    pub(crate) fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }
}
