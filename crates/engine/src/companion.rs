//! A server beside the engine that takes part in its commits: it is asked at votes, and told of
//! commits before any client is.
//!
//! Key decision: a claim is part of a voted transaction. Whatever becomes of that transaction, its
//! claim is dropped with it, and a claim that is dropped before its commit was told is given up. So
//! no way to abort can forget it.

use std::fmt;

use crate::Commits;
use crate::commit::TransactionNumber;

/// A server whose data change with transactions.
pub trait Companion: Send + Sync {
    /// Asked when a transaction has passed its vote, with the extension of its metadata. A claim
    /// means that something takes effect with this transaction, and not without it.
    ///
    /// It must not block: workers ask.
    ///
    /// # Errors
    /// Why the transaction must not be committed.
    fn voted(&self, number: TransactionNumber, extension: &[u8]) -> Result<Option<Claim>, String>;

    /// Commits are durable and visible to loads, in the order of tids, and no mailbox has them.
    /// These wait until it returns.
    fn committed(&self, commits: &Commits);

    /// Returns when all that has taken effect with commits so far outlasts a crash. Asked before a
    /// pack, which may drop the transactions that tell of it. Blocking.
    ///
    /// # Errors
    /// Why it would be lost, so that nothing may be packed.
    fn make_durable(&self) -> Result<(), String>;
}

/// Something that takes effect with a transaction. Given up when it is dropped before
/// [`Companion::committed`].
pub struct Claim(Option<Box<dyn FnOnce() + Send>>);

impl Claim {
    /// A claim; `give_up` is called when it is dropped. It must do nothing after the commit.
    pub fn new(give_up: impl FnOnce() + Send + 'static) -> Claim {
        Claim(Some(Box::new(give_up)))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(give_up) = self.0.take() {
            give_up();
        }
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Claim")
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Instant;

    use bytes::Bytes;
    use parking_lot::Mutex;
    use zodium_disk::{MemoryDisk, SystemClock};
    use zodium_filestorage::{FileStorage, OpenOptions};
    use zodium_storage::Access;
    use zodium_types::{Oid, Tid, TransactionMetadata, TransactionStatus};

    use super::*;
    use crate::{Check, Config, Database, LogWriter, Mailbox, Notice, Transaction, VoteError};

    /// Notes what happens, in order; refuses transactions whose extension begins with `no`.
    #[derive(Clone, Default)]
    struct Notes(Arc<Mutex<Vec<&'static str>>>);

    impl Notes {
        fn take(&self) -> Vec<&'static str> {
            std::mem::take(&mut *self.0.lock())
        }
    }

    impl Companion for Notes {
        fn voted(&self, _: TransactionNumber, extension: &[u8]) -> Result<Option<Claim>, String> {
            if extension.starts_with(b"no") {
                return Err("refused".to_owned());
            }
            let notes = self.clone();
            notes.0.lock().push("claim");
            Ok(Some(Claim::new(move || notes.0.lock().push("given up"))))
        }

        fn committed(&self, _: &Commits) {
            self.0.lock().push("companion");
        }

        fn make_durable(&self) -> Result<(), String> {
            let mut notes = self.0.lock();
            if notes.contains(&"broken") {
                return Err("broken".to_owned());
            }
            notes.push("durable");
            Ok(())
        }
    }

    impl Mailbox for Notes {
        fn post(&self, notice: Notice) {
            if matches!(notice, Notice::Committed(_)) {
                self.0.lock().push("mailbox");
            }
        }
    }

    fn start(notes: &Notes) -> (Arc<Database>, LogWriter) {
        let options = OpenOptions::new(Path::new("Data.fs"));
        let file = FileStorage::open(Arc::new(MemoryDisk::new()), &options).unwrap();
        let config = Config { pack_keep_old: false, reopening: None, ..Config::default() };
        let clock = Arc::new(SystemClock::new());
        let (database, writer) = Database::with_writer(Arc::new(file), clock, &config).unwrap();
        database.subscribers().add(Arc::new(notes.clone()));
        assert!(database.subscribers().accompany(Arc::new(notes.clone())));
        (database, writer)
    }

    fn vote(
        database: &Database,
        oid: u64,
        extension: &[u8],
    ) -> (TransactionNumber, Result<Check, VoteError>) {
        let extension = extension.to_vec();
        let metadata = TransactionMetadata { extension, ..TransactionMetadata::default() };
        let mut transaction = Transaction::new(metadata, None, TransactionStatus::Normal).unwrap();
        transaction.store(Oid(oid), Tid::ZERO, Bytes::from_static(b"data"));
        let mailbox: Arc<dyn Mailbox> = Arc::new(Notes::default());
        let (number, _) = database.begin_vote(&transaction, &mailbox).unwrap();
        (number, database.check(number, &transaction, Access::Blocking))
    }

    #[test]
    fn a_companion_is_told_before_the_mailboxes_and_claims_end_with_their_transactions() {
        let notes = Notes::default();
        let (database, mut writer) = start(&notes);
        let (number, Ok(Check::Voted(voted))) = vote(&database, 1, b"yes") else { panic!() };
        database.finish(number, voted).unwrap();
        writer.step(Instant::now);
        assert_eq!(notes.take(), ["claim", "companion", "mailbox", "given up"]);
        let (number, Ok(Check::Voted(voted))) = vote(&database, 2, b"yes") else { panic!() };
        database.abort(number, Some(voted));
        assert_eq!(notes.take(), ["claim", "given up"]);
        // Without an extension nothing is asked.
        let (number, Ok(Check::Voted(voted))) = vote(&database, 3, b"") else { panic!() };
        database.finish(number, voted).unwrap();
        writer.step(Instant::now);
        assert_eq!(notes.take(), ["companion", "mailbox"]);
        database.close().unwrap();
    }

    #[test]
    fn nothing_is_packed_before_a_companion_is_durable() {
        let notes = Notes::default();
        let (database, mut writer) = start(&notes);
        let (number, Ok(Check::Voted(voted))) = vote(&database, 1, b"yes") else { panic!() };
        database.finish(number, voted).unwrap();
        writer.step(Instant::now);
        notes.take();
        // There is no root, so a pack goes no further than to ask.
        assert!(database.pack(database.last_tid()).is_err());
        assert_eq!(notes.take(), ["durable"]);
        notes.0.lock().push("broken");
        let refused = database.pack(database.last_tid()).unwrap_err().to_string();
        assert!(refused.contains("nothing is packed: broken"), "{refused}");
        database.close().unwrap();
    }

    #[test]
    fn a_refused_transaction_holds_no_locks() {
        let notes = Notes::default();
        let (database, mut writer) = start(&notes);
        let (_, refused) = vote(&database, 1, b"no");
        assert!(matches!(refused, Err(VoteError::Companion { .. })));
        let (number, Ok(Check::Voted(voted))) = vote(&database, 1, b"yes") else { panic!() };
        database.finish(number, voted).unwrap();
        writer.step(Instant::now);
        let tid = database.last_tid();
        let changed = |since, oid| database.may_have_changed(since, &[Oid(oid)]);
        assert!(changed(Tid::ZERO, 1) && !changed(Tid::ZERO, 2) && !changed(tid, 1));
        assert!(changed(Tid(tid.0 - 1), 2), "there is no such transaction");
        database.close().unwrap();
    }
}
