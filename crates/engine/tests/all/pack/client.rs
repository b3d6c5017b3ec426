//! A client of the engine that does one thing after the other, and a database for it.

use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bytes::Bytes;
use zodium_disk::{Disk, SystemClock};
use zodium_engine::commit::TransactionNumber;
use zodium_engine::{
    Check, Config, Database, Mailbox, Notice, Transaction, VoteError, VoteStart, Voted,
};
use zodium_filestorage::{FileStorage, OpenOptions};
use zodium_storage::{Access, Load};
use zodium_types::{Oid, Tid, TransactionMetadata, TransactionStatus};

const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Client {
    pub(crate) storage: Arc<Database>,
    mailbox: Arc<dyn Mailbox>,
    inbox: mpsc::Receiver<Notice>,
}

struct Sender(mpsc::Sender<Notice>);

impl Mailbox for Sender {
    fn post(&self, notice: Notice) {
        let _ = self.0.send(notice);
    }
}

impl Client {
    pub(crate) fn new(storage: &Arc<Database>) -> Client {
        let (sender, inbox) = mpsc::channel();
        let mailbox: Arc<dyn Mailbox> = Arc::new(Sender(sender));
        storage.subscribers().add(Arc::clone(&mailbox));
        Client { storage: Arc::clone(storage), mailbox, inbox }
    }

    /// Stores an object over its current revision.
    pub(crate) fn store(&self, oid: Oid, data: Bytes) -> Tid {
        let mut transaction = transaction();
        let serial = self.load(oid).map_or(Tid::ZERO, |(serial, _)| serial);
        transaction.store(oid, serial, data);
        self.commit(transaction).unwrap()
    }

    pub(crate) fn undo(&self, tid: Tid) -> Result<Tid, VoteError> {
        let mut transaction = transaction();
        transaction.undo(tid);
        self.commit(transaction)
    }

    pub(crate) fn commit(&self, transaction: Transaction) -> Result<Tid, VoteError> {
        let (number, voted) = self.vote(transaction)?;
        Ok(self.finish(number, voted))
    }

    pub(crate) fn vote(
        &self,
        mut transaction: Transaction,
    ) -> Result<(TransactionNumber, Voted), VoteError> {
        self.storage.find_undone(&mut transaction)?;
        let (number, start) = self.storage.begin_vote(&transaction, &self.mailbox)?;
        if start == VoteStart::Waiting {
            self.wait(|notice| matches!(notice, Notice::Granted(granted) if *granted == number));
        }
        match self.storage.check(number, &transaction, Access::Blocking)? {
            Check::Voted(voted) => Ok((number, voted)),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn finish(&self, number: TransactionNumber, voted: Voted) -> Tid {
        self.storage.finish(number, voted).unwrap();
        let is_mine = |notice: &Notice| {
            assert!(!matches!(notice, Notice::Failed(..)));
            notice.tid_of(number).is_some()
        };
        self.wait(is_mine).tid_of(number).unwrap()
    }

    pub(crate) fn load(&self, oid: Oid) -> Option<(Tid, Bytes)> {
        match self.storage.reader().load_before(oid, Tid::MAX, Access::Blocking).unwrap() {
            Load::Revision(revision) => Some((revision.serial, revision.data)),
            _ => None,
        }
    }

    /// Drops notices up to the wanted one.
    pub(crate) fn wait(&self, is_wanted: impl Fn(&Notice) -> bool) -> Notice {
        loop {
            let notice = self.inbox.recv_timeout(PATIENCE).expect("a notice in time");
            if is_wanted(&notice) {
                return notice;
            }
        }
    }
}

pub(crate) fn transaction() -> Transaction {
    let metadata = TransactionMetadata::default();
    Transaction::new(metadata, None, TransactionStatus::Normal).unwrap()
}

/// A data record with a number in it, and perhaps more, that refers to objects.
pub(crate) fn record(number: u64, references: &[Oid], filler: usize) -> Bytes {
    let mut data = b"\x80\x03cpersistent.list\nPersistentList\nq\0.\x80\x03](".to_vec();
    data.extend_from_slice(b"C\x08");
    data.extend_from_slice(&number.to_be_bytes());
    for oid in references {
        data.extend_from_slice(b"C\x08");
        data.extend_from_slice(&oid.to_bytes());
        data.extend_from_slice(b"h\0\x86Q");
    }
    data.extend_from_slice(b"B");
    data.extend_from_slice(&(filler as u32).to_le_bytes());
    data.resize(data.len() + filler, b'.');
    data.extend_from_slice(b"e.");
    data.into()
}

pub(crate) fn open(disk: Arc<dyn Disk>, path: &Path) -> Arc<Database> {
    let config = Config { reopening: None, ..Config::default() };
    Database::start(Arc::new(open_file(disk, path)), Arc::new(SystemClock::new()), &config).unwrap()
}

pub(crate) fn open_file(disk: Arc<dyn Disk>, path: &Path) -> FileStorage {
    let options = OpenOptions { cache_bytes: 1 << 20, ..OpenOptions::new(path) };
    FileStorage::open(disk, &options).unwrap()
}
