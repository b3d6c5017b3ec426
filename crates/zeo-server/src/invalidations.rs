//! Invalidation messages of a batch of commits, encoded once for all sessions of an encoding.
//!
//! Key decision: the messages of a batch are one block of bytes. A session gets all of them with
//! one copy, or with two if one of the commits is its own. With a copy for each message and session
//! a commit would cost as many as there are sessions.
//!
//! A worker encodes into memory that it keeps. With an allocation for each commit, the workers of a
//! large machine would pass the allocator's cache lines around (docs/internals/sharing.md).

use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use zodium_engine::Commit;
use zodium_zeo::codec::{CodecError, Encoding, encode_invalidation};

/// Most memory kept between batches, in bytes and in commits.
const KEPT_BYTES_MAX: usize = 64 << 10;
const KEPT_COMMITS_MAX: usize = 1024;

/// Memory for the messages of one batch after the other.
#[derive(Default)]
pub(crate) struct InvalidationMemory {
    buffer: BytesMut,
    committers: Vec<(u64, usize)>,
    pickle_ends: Vec<usize>,
    msgpack_ends: Vec<usize>,
}

/// The invalidation messages of the commits of a batch, in their order.
pub(crate) struct Invalidations<'a> {
    commits: &'a [Arc<Commit>],
    /// The sessions of this worker with a commit in the batch, each with the place of that commit.
    committers: &'a mut Vec<(u64, usize)>,
    buffer: &'a mut BytesMut,
    pickle: Block<'a>,
    msgpack: Block<'a>,
}

/// The messages in one encoding.
struct Block<'a> {
    /// `None` until a session needs them.
    bytes: Option<Bytes>,
    /// The end of each message in the bytes.
    ends: &'a mut Vec<usize>,
    /// The first message that cannot be encoded. Those behind it are not encoded.
    error: Option<(usize, CodecError)>,
}

impl InvalidationMemory {
    /// Begins the messages of a batch; none is encoded yet. `committer`: the session whose
    /// transaction a commit is, if this worker has it.
    pub(crate) fn begin<'a>(
        &'a mut self,
        commits: &'a [Arc<Commit>],
        committer: impl Fn(&Commit) -> Option<u64>,
    ) -> Invalidations<'a> {
        let InvalidationMemory { buffer, committers, pickle_ends, msgpack_ends } = self;
        committers.clear();
        let commits_here = commits.iter().enumerate();
        committers.extend(commits_here.filter_map(|(at, commit)| Some((committer(commit)?, at))));
        Invalidations {
            commits,
            committers,
            buffer,
            pickle: Block::new(pickle_ends),
            msgpack: Block::new(msgpack_ends),
        }
    }

    /// Frees memory beyond what a worker keeps. The messages are in the outputs of the sessions.
    pub(crate) fn shrink(&mut self) {
        for ends in [&mut self.pickle_ends, &mut self.msgpack_ends] {
            ends.clear();
            ends.shrink_to(KEPT_COMMITS_MAX);
        }
        self.committers.clear();
        self.committers.shrink_to(KEPT_COMMITS_MAX);
        if self.buffer.capacity() > KEPT_BYTES_MAX {
            self.buffer = BytesMut::new();
        }
    }
}

impl Invalidations<'_> {
    /// The place of a session's own commit in the batch. There is at most one: a client waits for
    /// the end of its transaction.
    pub(crate) fn own_commit(&self, session: u64) -> Option<usize> {
        let own = self.committers.iter().find(|(committer, _)| *committer == session);
        own.map(|(_, at)| *at)
    }

    /// The messages of the commits `range` of the batch in this encoding, one behind the other.
    ///
    /// # Errors
    /// When one of them cannot be encoded.
    ///
    /// # Panics
    /// When the batch has fewer commits.
    pub(crate) fn bytes(
        &mut self,
        encoding: Encoding,
        range: Range<usize>,
    ) -> Result<Bytes, CodecError> {
        let block = match encoding {
            Encoding::Pickle => &mut self.pickle,
            Encoding::Msgpack => &mut self.msgpack,
        };
        let Block { bytes, ends, error } = block;
        let bytes = bytes.get_or_insert_with(|| {
            let encoded = self.commits.iter().enumerate().try_for_each(|(at, commit)| {
                let encoded = encode_invalidation(encoding, self.buffer, commit.tid, &commit.oids);
                ends.push(self.buffer.len());
                encoded.map_err(|error| (at, error))
            });
            *error = encoded.err();
            // The rest of the buffer takes the next block, and all of it the next batch, once no
            // output refers to it.
            self.buffer.split().freeze()
        });
        match error {
            Some((at, error)) if *at < range.end => Err(error.clone()),
            _ => {
                let start = range.start.checked_sub(1).map_or(0, |before| ends[before]);
                let end = range.end.checked_sub(1).map_or(0, |last| ends[last]);
                Ok(bytes.slice(start..end.max(start)))
            }
        }
    }
}

impl Block<'_> {
    fn new(ends: &mut Vec<usize>) -> Block<'_> {
        ends.clear();
        Block { bytes: None, ends, error: None }
    }
}

#[cfg(test)]
mod tests {
    use zodium_engine::commit::TransactionNumber;
    use zodium_types::{Oid, Tid};

    use super::*;

    fn commits(count: u64) -> Vec<Arc<Commit>> {
        let commit = |number| Commit {
            tid: Tid(1000 + number),
            oids: (0..number % 4).map(|oid| Oid(oid << (number % 50))).collect(),
            number: TransactionNumber(number),
        };
        (0..count).map(|number| Arc::new(commit(number))).collect()
    }

    /// The messages of commits, each encoded alone.
    fn one_by_one(encoding: Encoding, commits: &[Arc<Commit>]) -> BytesMut {
        let mut out = BytesMut::new();
        for commit in commits {
            encode_invalidation(encoding, &mut out, commit.tid, &commit.oids).unwrap();
        }
        out
    }

    #[test]
    fn each_range_of_a_batch_has_the_messages_of_its_commits() {
        let mut memory = InvalidationMemory::default();
        for count in [1, 2, 5, 200] {
            let commits = commits(count);
            let mut messages = memory.begin(&commits, |_| None);
            for encoding in [Encoding::Msgpack, Encoding::Pickle] {
                for range in [0..commits.len(), 0..1, commits.len() / 2..commits.len()] {
                    let expected = one_by_one(encoding, &commits[range.clone()]);
                    assert_eq!(messages.bytes(encoding, range).unwrap(), expected);
                }
            }
            memory.shrink();
        }
    }

    #[test]
    fn a_commit_that_cannot_be_encoded_is_an_error_of_the_ranges_that_reach_it() {
        let (mut memory, commits) = (InvalidationMemory::default(), commits(3));
        let mut messages = memory.begin(&commits, |_| None);
        let first = messages.bytes(Encoding::Pickle, 0..1).unwrap();
        // Only a message of 4 GiB is refused.
        let refused = CodecError::NotAMessage { what: "a test" };
        messages.pickle.error = Some((1, refused));
        assert_eq!(messages.bytes(Encoding::Pickle, 0..1).unwrap(), first);
        for range in [0..2, 1..2, 0..3] {
            assert!(messages.bytes(Encoding::Pickle, range).is_err());
        }
        assert!(messages.bytes(Encoding::Msgpack, 0..3).is_ok());
    }

    #[test]
    fn a_session_has_its_own_commit_in_the_batch_or_none() {
        let (mut memory, commits) = (InvalidationMemory::default(), commits(5));
        let committer = |commit: &Commit| [None, Some(70), None, Some(30), None][at(commit)];
        let messages = memory.begin(&commits, committer);
        assert_eq!(
            [30, 70, 1].map(|session| messages.own_commit(session)),
            [Some(3), Some(1), None]
        );
    }

    fn at(commit: &Commit) -> usize {
        commit.number.0 as usize
    }

    #[test]
    fn memory_for_a_large_batch_is_freed_and_that_for_small_ones_is_kept() {
        let mut memory = InvalidationMemory::default();
        memory.buffer.reserve(1 << 20);
        memory.committers.reserve(10_000);
        memory.pickle_ends.reserve(10_000);
        memory.msgpack_ends.reserve(10_000);
        memory.shrink();
        assert!(memory.buffer.capacity() <= 64 << 10);
        assert!(memory.committers.capacity() < 10_000);
        assert!(memory.pickle_ends.capacity() + memory.msgpack_ends.capacity() < 10_000);
        memory.buffer.reserve(10_000);
        memory.shrink();
        assert!(memory.buffer.capacity() >= 10_000);
    }
}
