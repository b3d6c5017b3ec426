//! What the tests of the engine share: a database, and a session that asks and waits for answers.

pub(crate) mod shared_memory;

use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bytes::Bytes;
use zodium_disk::{Clock, Disk, SystemClock};
use zodium_engine::commit::{CommitError, TransactionNumber};
use zodium_engine::{
    Check, Commit, Config, Database, FoundConflict, Mailbox, Notice, Transaction, VoteError,
    VoteStart, Voted,
};
use zodium_filestorage::{FileStorage, FileStorageError, OpenOptions};
use zodium_storage::StorageError;
use zodium_storage::{Access, Load};
use zodium_types::{Oid, Tid, TransactionMetadata, TransactionStatus};

/// Nothing takes as long unless it never comes.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) const CONFIG: Config = Config {
    invalidation_queue_size: 100,
    invalidation_age: None,
    transaction_timeout: None,
    pack_gc: true,
    pack_keep_old: false,
    pack_abort_on_dangling: false,
    resolver: None,
    resolvable_classes: Vec::new(),
    reopening: None,
};

pub(crate) fn open_file(disk: impl Disk + 'static) -> FileStorage {
    try_open_file(disk, None).expect("it opens")
}

pub(crate) fn try_open_file(
    disk: impl Disk + 'static,
    blob_directory: Option<&str>,
) -> Result<FileStorage, FileStorageError> {
    let options = OpenOptions {
        cache_bytes: 1 << 20,
        blob_directory: blob_directory.map(Into::into),
        ..OpenOptions::new(Path::new("Data.fs"))
    };
    FileStorage::open(Arc::new(disk), &options)
}

pub(crate) fn start(disk: impl Disk + 'static) -> Arc<Database> {
    start_with(disk, Arc::new(SystemClock::new()), &CONFIG)
}

pub(crate) fn start_with(
    disk: impl Disk + 'static,
    clock: Arc<dyn Clock>,
    config: &Config,
) -> Arc<Database> {
    Database::start(Arc::new(open_file(disk)), clock, config).expect("it starts")
}

/// A client of the engine, with a mailbox of its own.
pub(crate) struct Session {
    pub(crate) storage: Arc<Database>,
    mailbox: Arc<dyn Mailbox>,
    inbox: mpsc::Receiver<Notice>,
    /// All commits that the mailbox was told of, in that order.
    pub(crate) seen: Vec<Arc<Commit>>,
}

struct Sender(mpsc::Sender<Notice>);

impl Mailbox for Sender {
    fn post(&self, notice: Notice) {
        // The receiver may be gone.
        let _ = self.0.send(notice);
    }
}

/// What became of a vote.
pub(crate) enum Outcome {
    Voted(TransactionNumber, Voted),
    Conflicts(TransactionNumber, Vec<FoundConflict>),
}

impl Session {
    pub(crate) fn new(storage: &Arc<Database>) -> Session {
        Session::subscribed(storage).1
    }

    /// A session, and the last tid when its mailbox was added.
    pub(crate) fn subscribed(storage: &Arc<Database>) -> (Tid, Session) {
        let (sender, inbox) = mpsc::channel();
        let mailbox: Arc<dyn Mailbox> = Arc::new(Sender(sender));
        let last_tid = storage.subscribers().add(Arc::clone(&mailbox));
        let session = Session { storage: Arc::clone(storage), mailbox, inbox, seen: Vec::new() };
        (last_tid, session)
    }

    /// Asks for the locks.
    pub(crate) fn begin(
        &self,
        transaction: &Transaction,
    ) -> Result<(TransactionNumber, VoteStart), VoteError> {
        self.storage.begin_vote(transaction, &self.mailbox)
    }

    /// Votes, and waits for the locks as long as it takes.
    pub(crate) fn try_vote(&mut self, transaction: &mut Transaction) -> Result<Outcome, VoteError> {
        self.storage.find_undone(transaction)?;
        let number = self.lock(transaction)?;
        self.check(number, transaction)
    }

    /// Asks for the locks, and waits for them as long as it takes.
    pub(crate) fn lock(
        &mut self,
        transaction: &Transaction,
    ) -> Result<TransactionNumber, VoteError> {
        let (number, start) = self.begin(transaction)?;
        if start == VoteStart::Waiting {
            self.wait_granted(number);
        }
        Ok(number)
    }

    /// First as a worker does, which must not wait, then as a thread that may.
    pub(crate) fn check(
        &self,
        number: TransactionNumber,
        transaction: &Transaction,
    ) -> Result<Outcome, VoteError> {
        for access in [Access::NonBlocking, Access::Blocking] {
            match self.storage.check(number, transaction, access)? {
                Check::Voted(voted) => return Ok(Outcome::Voted(number, voted)),
                Check::Conflicts(found) => {
                    return Ok(Outcome::Conflicts(number, found.into_vec()));
                }
                Check::WouldBlock => assert_eq!(access, Access::NonBlocking),
            }
        }
        unreachable!("a blocking check has an answer")
    }

    pub(crate) fn vote(&mut self, mut transaction: Transaction) -> (TransactionNumber, Voted) {
        match self.try_vote(&mut transaction).expect("it votes") {
            Outcome::Voted(number, voted) => (number, voted),
            Outcome::Conflicts(_, found) => panic!("{found:?}"),
        }
    }

    /// Asks for the finish and waits for its end.
    pub(crate) fn finish(
        &mut self,
        number: TransactionNumber,
        voted: Voted,
    ) -> Result<Tid, Refusal> {
        self.storage.finish(number, voted).map_err(Refusal::AtOnce)?;
        loop {
            let notice = self.next();
            if let Some(tid) = notice.tid_of(number) {
                return Ok(tid);
            }
            if let Notice::Failed(failed, error) = notice
                && failed == number
            {
                return Err(Refusal::Later(error));
            }
        }
    }

    /// Votes and finishes.
    pub(crate) fn commit(&mut self, transaction: Transaction) -> Tid {
        let (number, voted) = self.vote(transaction);
        self.finish(number, voted).expect("it is written")
    }

    /// Stores objects over their current revisions.
    pub(crate) fn store(&mut self, objects: &[(u64, &str)]) -> Tid {
        let mut transaction = transaction();
        for (oid, data) in objects {
            let serial = self.storage.reader().current_serial(Oid(*oid));
            let serial = serial.unwrap().unwrap_or(Tid::ZERO);
            transaction.store(Oid(*oid), serial, Bytes::copy_from_slice(data.as_bytes()));
        }
        self.commit(transaction)
    }

    /// Waits until the locks of this transaction are granted.
    pub(crate) fn wait_granted(&mut self, number: TransactionNumber) {
        while !matches!(self.next(), Notice::Granted(granted) if granted == number) {}
    }

    /// The next notice, which has to come.
    pub(crate) fn next(&mut self) -> Notice {
        let notice = self.inbox.recv_timeout(PATIENCE).expect("a notice comes");
        self.note(&notice);
        notice
    }

    /// A notice that is there already.
    pub(crate) fn poll(&mut self) -> Option<Notice> {
        let notice = self.inbox.try_recv().ok()?;
        self.note(&notice);
        Some(notice)
    }

    fn note(&mut self, notice: &Notice) {
        let Notice::Committed(commits) = notice else { return };
        commits.iter().for_each(|commit| self.note_commit(commit));
    }

    fn note_commit(&mut self, commit: &Arc<Commit>) {
        if let Some(last) = self.seen.last() {
            assert!(commit.tid > last.tid, "{} was told after {}", commit.tid, last.tid);
        }
        for oid in &commit.oids {
            let serial = self.storage.reader().current_serial(*oid);
            // On a disk that fails it may be this reading.
            let Ok(serial) = serial else { continue };
            let serial = serial.unwrap();
            assert!(serial >= commit.tid, "{oid} is not visible when {} is told", commit.tid);
        }
        self.seen.push(Arc::clone(commit));
    }
}

/// Why a finish did not commit.
#[derive(Debug)]
pub(crate) enum Refusal {
    AtOnce(CommitError),
    Later(#[expect(dead_code, reason = "a failed test shows it")] Arc<StorageError>),
}

pub(crate) fn transaction() -> Transaction {
    transaction_with(None)
}

pub(crate) fn transaction_with(tid: Option<Tid>) -> Transaction {
    let metadata = TransactionMetadata::default();
    Transaction::new(metadata, tid, TransactionStatus::Normal).expect("no metadata are too long")
}

/// The data and serial of the revision before a tid; `None` when there is none.
pub(crate) fn load(storage: &Database, oid: u64, before: Tid) -> Option<(Bytes, Tid)> {
    match storage.reader().load_before(Oid(oid), before, Access::Blocking).unwrap() {
        Load::Revision(revision) => Some((revision.data, revision.serial)),
        Load::NoRevision | Load::Missing => None,
        Load::WouldBlock => unreachable!("access is blocking"),
    }
}

/// The current data as text.
pub(crate) fn text(storage: &Database, oid: u64) -> Option<String> {
    let (data, _) = load(storage, oid, Tid::MAX)?;
    Some(String::from_utf8(data.to_vec()).expect("text"))
}

/// No transaction holds or waits for anything.
pub(crate) fn assert_idle(storage: &Database) {
    let status = storage.commit_status();
    let figures = (status.waiting, status.locking, status.ready, status.writing);
    assert_eq!(figures, (0, 0, 0, 0));
}
