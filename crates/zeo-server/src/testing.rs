//! A storage in memory, for tests of the parts of a session.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use zodium_disk::ManualClock;
use zodium_engine::commit::TransactionNumber;
use zodium_engine::{Check, Config, Database, Mailbox, Notice, Transaction, VoteStart};
use zodium_memorystorage::MemoryStorage;
use zodium_net::{Blocking, RuntimeThreads};
use zodium_storage::Access;
use zodium_types::{Oid, Tid, TransactionMetadata, TransactionStatus};

use crate::subscriber::StorageSubscriber;

/// The mailbox of a session that nothing is told to.
pub(crate) struct Ignored;

impl Mailbox for Ignored {
    fn post(&self, _notice: Notice) {}
}

/// A new storage in memory. Its clock stands still, so nothing ends by itself.
pub(crate) fn storage() -> Arc<Database> {
    let kept = Arc::new(MemoryStorage::new());
    Database::start(kept, Arc::new(ManualClock::default()), &Config::default()).unwrap()
}

/// A transaction without metadata.
pub(crate) fn transaction() -> Transaction {
    let metadata = TransactionMetadata::default();
    Transaction::new(metadata, None, TransactionStatus::Normal).unwrap()
}

/// Stores a new object.
pub(crate) fn store(transaction: &mut Transaction, oid: Oid) {
    transaction.store(oid, Tid::ZERO, Bytes::from(vec![b'd'; 5000]));
}

/// A transaction that stores a new object.
pub(crate) fn storing(oid: Oid) -> Transaction {
    let mut transaction = transaction();
    store(&mut transaction, oid);
    transaction
}

/// Begins a vote, which gets its locks at once.
pub(crate) fn lock(storage: &Database, transaction: &Transaction) -> TransactionNumber {
    let mailbox: Arc<dyn Mailbox> = Arc::new(Ignored);
    let (number, start) = storage.begin_vote(transaction, &mailbox).unwrap();
    assert!(matches!(start, VoteStart::Granted));
    number
}

/// Commits a new object.
pub(crate) fn commit(storage: &Database, oid: Oid) {
    let transaction = storing(oid);
    let number = lock(storage, &transaction);
    let checked = storage.check(number, &transaction, Access::Blocking);
    let Ok(Check::Voted(voted)) = checked else { panic!("{checked:?}") };
    storage.finish(number, voted).unwrap();
    while holds_locks(storage) {
        std::thread::yield_now();
    }
}

/// Whether any transaction holds locks.
pub(crate) fn holds_locks(storage: &Database) -> bool {
    storage.commit_status().locking > 0
}

/// A worker's subscription, without sessions.
pub(crate) fn subscriber(storage: &Arc<Database>) -> StorageSubscriber {
    let blocking: Rc<dyn Blocking> = Rc::new(RuntimeThreads::default());
    StorageSubscriber::new(Arc::clone(storage), Arc::default(), Duration::ZERO, &blocking)
}
