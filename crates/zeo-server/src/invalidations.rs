//! Invalidation messages of a batch of commits, encoded once for all sessions of an encoding.
//!
//! Key decision: a worker encodes into memory that it keeps. With an allocation for each commit,
//! the workers of a large machine would pass the allocator's cache lines around: those were half of
//! all that moved between 64 workers (docs/internals/sharing.md).

use bytes::{Bytes, BytesMut};
use zodium_engine::Commit;
use zodium_zeo::codec::{CodecError, Encoding, encode_invalidation};

/// Most memory kept between batches, in bytes and in commits.
const KEPT_BYTES_MAX: usize = 64 << 10;
const KEPT_COMMITS_MAX: usize = 1024;

/// The invalidations of a batch of commits, in their order.
#[derive(Default)]
pub(crate) struct InvalidationBatch {
    entries: Vec<Entry>,
    buffer: BytesMut,
}

#[derive(Default)]
struct Entry {
    /// The session whose transaction it is, if this worker has it.
    committer: Option<u64>,
    frames: Frames,
}

/// A message in both encodings, as far as it was needed.
#[derive(Default)]
struct Frames {
    pickle: Option<Result<Bytes, CodecError>>,
    msgpack: Option<Result<Bytes, CodecError>>,
}

/// The invalidation message of a commit.
pub(crate) struct EncodedInvalidation<'a> {
    commit: &'a Commit,
    frames: &'a mut Frames,
    buffer: &'a mut BytesMut,
}

impl InvalidationBatch {
    /// Begins a batch: for each commit the session whose transaction it is.
    pub(crate) fn begin(&mut self, committers: impl Iterator<Item = Option<u64>>) {
        self.entries.clear();
        let entry = |committer| Entry { committer, frames: Frames::default() };
        self.entries.extend(committers.map(entry));
    }

    /// The session whose transaction commit number `at` is.
    pub(crate) fn committer(&self, at: usize) -> Option<u64> {
        self.entries.get(at).and_then(|entry| entry.committer)
    }

    /// The message of commit number `at` of the batch, which the caller hands in again.
    ///
    /// # Panics
    /// When the batch has fewer commits.
    pub(crate) fn invalidation<'a>(
        &'a mut self,
        at: usize,
        commit: &'a Commit,
    ) -> EncodedInvalidation<'a> {
        let InvalidationBatch { entries, buffer } = self;
        EncodedInvalidation { commit, frames: &mut entries[at].frames, buffer }
    }

    /// Ends the batch: its messages are in the outputs of the sessions.
    pub(crate) fn end(&mut self) {
        self.entries.clear();
        self.entries.shrink_to(KEPT_COMMITS_MAX);
        if self.buffer.capacity() > KEPT_BYTES_MAX {
            self.buffer = BytesMut::new();
        }
    }
}

impl EncodedInvalidation<'_> {
    /// The message in this encoding.
    pub(crate) fn bytes(&mut self, encoding: Encoding) -> &Result<Bytes, CodecError> {
        let frame = match encoding {
            Encoding::Pickle => &mut self.frames.pickle,
            Encoding::Msgpack => &mut self.frames.msgpack,
        };
        let (commit, buffer) = (self.commit, &mut *self.buffer);
        frame.get_or_insert_with(|| {
            encode_invalidation(encoding, buffer, commit.tid, &commit.oids)?;
            // The rest of the buffer takes the next message, and all of it the next batch, once no
            // output refers to it.
            Ok(buffer.split().freeze())
        })
    }
}
