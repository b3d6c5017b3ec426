//! Follows a storage: each restore point continues the one before it with what was committed since.
//!
//! Key decision: what is new is stored twice, at once as it is and later in chunks that the content
//! cuts. So a commit is safe after one small write, and a pack still finds its transactions again.
//! From time to time a complete point takes the place of the points that it covers.

use rustc_hash::FxHashSet;
use zodium_storage::Read;
use zodium_types::Tid;

use super::backup::{Backup, BackupSummary, write};
use super::hash::Hash;
use super::opened::Repository;
use super::point::{Chunk, Point, Unwritten};
use super::writer::{Source, Writer};
use crate::BackupError;
use crate::places::Claim;

/// Points that may continue a complete one, and bytes of their chunks, before there is another.
const CONTINUED_MAX: usize = 600;
const CONTINUED_BYTES_MAX: u64 = 64 << 20;

/// Follows a storage, and is the only writer of its repository meanwhile.
pub struct Archiver<'r> {
    repository: &'r Repository,
    claim: Box<dyn Claim>,
    writer: Writer<'r>,
    /// Reads all of the storage once more, in slices.
    rereading: Option<Writer<'r>>,
    newest: Point,
    /// The points since the complete one.
    continued: Vec<Point>,
    /// Those of their chunks that no older point has.
    own: Vec<Hash>,
    continued_bytes: u64,
    /// A point that may have been written.
    pending: Option<Pending>,
}

/// A point that is to be written, and what it is.
struct Pending {
    point: Unwritten,
    kind: Kind,
}

enum Kind {
    /// It has one more chunk, of these transactions; the chunk is new or not.
    Continued { chunk: Chunk, is_own: bool },
    /// It lists all of these chunks.
    Complete(Vec<Chunk>),
}

/// What a step did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Transactions that are archived now.
    pub transactions: u64,
    /// Whether there are no more for now.
    pub is_caught_up: bool,
}

impl<'r> Archiver<'r> {
    /// Makes a complete restore point, so that no earlier writer can go on, and follows the storage
    /// from there.
    ///
    /// # Errors
    /// `Refused` while there is another writer; those of the storage and of the repository.
    pub fn start(
        repository: &'r Repository,
        backup: &Backup<'_>,
    ) -> Result<(Archiver<'r>, BackupSummary), BackupError> {
        let claim = repository.claim()?;
        let (summary, mut writer) = write(repository, &*claim, backup, true)?;
        writer.follow();
        let archiver = Archiver {
            repository,
            claim,
            writer,
            rereading: None,
            newest: summary.point.clone(),
            continued: Vec::new(),
            own: Vec::new(),
            continued_bytes: 0,
            pending: None,
        };
        Ok((archiver, summary))
    }

    /// The last restore point.
    pub fn newest(&self) -> &Point {
        &self.newest
    }

    /// Fails if another writer may have taken the repository over, or it is gone.
    ///
    /// # Errors
    /// `Fenced`, `Gone`.
    pub fn check(&self) -> Result<(), BackupError> {
        self.claim.check()
    }

    /// Reads what the storage has by now, and makes it a restore point. May be called again after
    /// any error but `Fenced`.
    ///
    /// # Errors
    /// Those of the storage and of the repository.
    pub fn step(&mut self, source: &Source<'_>, seconds: i64) -> Result<Step, BackupError> {
        let mut transactions = self.write_pending()?;
        let last = source.storage.last_tid();
        let read = self.writer.read(source, self.writer.next_tid(), last);
        // What was read before an error is archived in any case.
        transactions += self.archive_fresh(seconds)?;
        let is_full = self.continued.len() >= CONTINUED_MAX;
        if is_full || self.continued_bytes >= CONTINUED_BYTES_MAX {
            self.complete(seconds)?;
        }
        Ok(Step { transactions, is_caught_up: read? })
    }

    /// Whether the storage still has the last transaction that is archived. Otherwise an older
    /// copy has taken its place, or a pack has removed the transaction.
    ///
    /// # Errors
    /// Those of the storage.
    pub fn is_continued_by(&self, storage: &dyn Read) -> Result<bool, BackupError> {
        let last = self.newest.last();
        if [Tid::ZERO, storage.last_tid()].contains(&last) {
            return Ok(true);
        }
        Ok(storage.iterate(Some(last), Some(last))?.step()?.is_some())
    }

    /// Has [`Archiver::reread`] read the storage from its beginning: it may have been packed, or
    /// an older copy may have taken its place.
    pub fn begin_rereading(&mut self) {
        self.rereading = Some(self.writer.starting_over(self.repository.store()));
    }

    /// Reads some more of the whole storage, and makes a complete restore point when that is done;
    /// `true` then. Chunks that are stored are not stored again.
    ///
    /// # Errors
    /// Those of the storage and of the repository.
    pub fn reread(&mut self, source: &Source<'_>, seconds: i64) -> Result<bool, BackupError> {
        let Some(writer) = &mut self.rereading else { return Ok(true) };
        if writer.next_tid().is_none() {
            writer.forget_lost()?;
        }
        // Not what the points do not have yet.
        let until = self.newest.last();
        let is_over = writer.read(source, writer.next_tid(), until)?;
        writer.forget_fresh();
        if !is_over || self.pending.is_some() || self.writer.next_tid() != until_next(until) {
            return Ok(false);
        }
        if let Some(writer) = self.rereading.take() {
            self.writer = writer;
        }
        self.write_complete(seconds)?;
        Ok(true)
    }

    fn archive_fresh(&mut self, seconds: i64) -> Result<u64, BackupError> {
        let Some((chunk, stored)) = self.writer.store_fresh()? else { return Ok(0) };
        let point = self.newest.continued(seconds, chunk.clone())?.prepare(self.repository)?;
        let kind = Kind::Continued { chunk, is_own: stored > 0 };
        self.pending = Some(Pending { point, kind });
        self.write_pending()
    }

    /// Makes a complete restore point, and removes those that it covers.
    ///
    /// # Errors
    /// Those of the repository; what is there stays whole.
    pub fn complete(&mut self, seconds: i64) -> Result<(), BackupError> {
        self.write_pending()?;
        match self.continued.is_empty() {
            true => Ok(()),
            false => self.write_complete(seconds),
        }
    }

    fn write_complete(&mut self, seconds: i64) -> Result<(), BackupError> {
        let chunks = self.writer.all_chunks()?;
        let number = self.newest.number + 1;
        let (store, python_2) = (self.repository.store(), self.newest.python_2);
        let point = Point::complete(&store, number, seconds, python_2, &chunks)?;
        let point = point.prepare(self.repository)?;
        self.pending = Some(Pending { point, kind: Kind::Complete(chunks) });
        self.write_pending().map(drop)
    }

    /// Writes the point that is to be written; the number of transactions that it adds.
    fn write_pending(&mut self) -> Result<u64, BackupError> {
        let Some(Pending { point, .. }) = &self.pending else { return Ok(0) };
        self.repository.place().settle()?;
        self.claim.confirm()?;
        let point = point.write(self.repository)?;
        let kind = self.pending.take().map(|pending| pending.kind);
        self.newest = point.clone();
        // Nothing was read since the point was made: both kinds have all that is fresh.
        let transactions = self.writer.forget_fresh();
        match kind {
            Some(Kind::Continued { chunk, is_own }) => {
                self.continued_bytes += chunk.bytes;
                self.continued.push(point);
                if is_own {
                    self.own.push(chunk.hash);
                }
            }
            Some(Kind::Complete(chunks)) => {
                self.continued_bytes = 0;
                self.remove_covered(&chunks)?;
            }
            None => {}
        }
        Ok(transactions)
    }

    /// Removes the points that a complete one with these chunks covers. What is left after an error
    /// is removed by a prune.
    fn remove_covered(&mut self, chunks: &[Chunk]) -> Result<(), BackupError> {
        let covered = std::mem::take(&mut self.continued);
        let own = std::mem::take(&mut self.own);
        // The newest first, so that a chain that is left is whole.
        for point in covered.iter().rev() {
            point.remove(self.repository)?;
        }
        let used = objects(chunks);
        // The second reading has found them stored; its point decides.
        let reread = self.rereading.as_ref().map(|writer| objects(&writer.chunks));
        let is_reread = |hash: &Hash| reread.as_ref().is_some_and(|reread| reread.contains(hash));
        let unused = own.into_iter().filter(|hash| !used.contains(hash));
        let (undecided, unused): (_, Vec<Hash>) = unused.partition(is_reread);
        self.own = undecided;
        let store = self.repository.store();
        unused.iter().try_for_each(|hash| store.remove(hash))
    }
}

/// The objects that chunks need.
fn objects(chunks: &[Chunk]) -> FxHashSet<&Hash> {
    chunks.iter().flat_map(Chunk::objects).collect()
}

/// The transaction after the last one; `None` if there is none.
fn until_next(last: Tid) -> Option<Tid> {
    (last > Tid::ZERO).then(|| last.next())
}
