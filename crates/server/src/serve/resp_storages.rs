//! The storages of a server as its RESP side sees them, and what they tell it of commits.

use std::sync::Arc;

use zodium_engine::commit::TransactionNumber;
use zodium_engine::{Claim, Commits, Companion, Database};
use zodium_pickle::{Limits, Objects, decode};
use zodium_resp_server::{Commit, Loaded, Server};
use zodium_storage::{Access, Load};
use zodium_tls::{AllowList, PeerIdentity};
use zodium_types::{Oid, Tid};

use super::storages::Storages;

/// The storages of a server, in the order of its configuration.
struct RespStorages(Vec<RespStorage>);

struct RespStorage {
    name: String,
    database: Arc<Database>,
    allow: Option<AllowList>,
}

/// Tells a RESP server of the commits of one storage.
struct Teller {
    server: Arc<Server>,
    storage: usize,
}

/// Gives a RESP server the storages beside it. Before any client can connect.
pub(crate) fn attach(server: &Arc<Server>, storages: &Storages) {
    let all = storages.iter().map(|opened| RespStorage {
        name: opened.name.clone(),
        database: Arc::clone(&opened.storage),
        allow: opened.allow.clone(),
    });
    server.attach(Arc::new(RespStorages(all.collect())));
    for (storage, opened) in storages.iter().enumerate() {
        let teller = Teller { server: Arc::clone(server), storage };
        opened.storage.subscribers().accompany(Arc::new(teller));
    }
}

impl zodium_resp_server::Storages for RespStorages {
    fn find(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|storage| storage.name == name)
    }

    fn name(&self, storage: usize) -> &str {
        self.0.get(storage).map_or("", |storage| &storage.name)
    }

    fn admits(&self, storage: usize, peer: Option<&PeerIdentity>) -> bool {
        self.0
            .get(storage)
            .is_some_and(|storage| storage.allow.as_ref().is_none_or(|allow| allow.admits(peer)))
    }

    fn last_tid(&self, storage: usize) -> Tid {
        let found = self.0.get(storage);
        found.map_or(Tid::ZERO, |storage| storage.database.subscribers().posted_tid())
    }

    fn may_have_changed(&self, storage: usize, since: Tid, oids: &[Oid]) -> bool {
        let found = self.0.get(storage);
        found.is_none_or(|storage| storage.database.may_have_changed(since, oids))
    }

    fn count(&self) -> usize {
        self.0.len()
    }

    fn changed_at(&self, storage: usize, oid: Oid) -> Option<Tid> {
        match self.0.get(storage)?.database.reader().current_serial(oid) {
            // One that is not there may have been changed, and then packed away.
            Ok(serial) => serial,
            Err(error) => {
                tracing::warn!(%oid, %error, "cannot tell when an object changed: its keys go");
                None
            }
        }
    }

    fn tokens_after(&self, storage: usize, since: Tid, visit: &mut dyn FnMut(Tid, &[u8])) {
        let Some(storage) = self.0.get(storage) else { return };
        let mut read = || -> Result<(), zodium_storage::StorageError> {
            let mut transactions = storage.database.reader().iterate(Some(since.next()), None)?;
            while let Some(transaction) = transactions.step()? {
                if let Some(token) = token_of(&transaction.metadata.extension) {
                    visit(transaction.tid, &token);
                }
            }
            Ok(())
        };
        if let Err(error) = read() {
            let name = &storage.name;
            tracing::error!(
                %error,
                "cannot read the last transactions of storage {name}: commands that were parked \
                 for one of them may be dropped although it was committed"
            );
        }
    }

    fn load(&self, storage: usize, oid: Oid, before: Tid, may_wait: bool) -> Loaded {
        let Some(storage) = self.0.get(storage) else { return Loaded::Missing };
        let access = if may_wait { Access::Blocking } else { Access::NonBlocking };
        let subscribers = storage.database.subscribers();
        // What is announced takes effect on keys before the clients are told. A reader of both
        // sides sees neither without the other.
        let before = before.min(subscribers.announced_tid().next());
        match storage.database.reader().load_before(oid, before, access) {
            Ok(Load::Revision(revision)) if revision.serial > subscribers.posted_tid() => {
                if !may_wait {
                    return Loaded::WouldBlock;
                }
                subscribers.last_tid();
                Loaded::Data(revision.data)
            }
            Ok(Load::Revision(revision)) => Loaded::Data(revision.data),
            Ok(Load::NoRevision | Load::Missing) => Loaded::Missing,
            Ok(Load::WouldBlock) => Loaded::WouldBlock,
            Err(error) => {
                tracing::error!(%oid, %error, "cannot load an object for a RESP client");
                Loaded::Failed(error.to_string())
            }
        }
    }
}

/// The entry of a transaction's extension with the token of commands that take effect with it.
const TOKEN_KEY: &str = "zodium.exec";

/// Extensions are small: they have 65,535 bytes at most.
const EXTENSION_LIMITS: Limits = Limits { nesting: 20, nodes: 1 << 14, objects: Objects::Allowed };

/// The token in an extension, if there is one.
fn token_of(extension: &[u8]) -> Option<Vec<u8>> {
    // Most extensions have none, and need not be decoded.
    extension.windows(TOKEN_KEY.len()).find(|part| *part == TOKEN_KEY.as_bytes())?;
    let (extension, _) = decode(extension, &EXTENSION_LIMITS).ok()?;
    let token = extension.entry(TOKEN_KEY)?;
    token.as_str().map(str::as_bytes).or_else(|| token.as_bytes()).map(<[u8]>::to_vec)
}

impl Companion for Teller {
    fn voted(&self, number: TransactionNumber, extension: &[u8]) -> Result<Option<Claim>, String> {
        let Some(token) = token_of(extension) else { return Ok(None) };
        if !self.server.claim(self.storage, number.0, &token)? {
            return Ok(None);
        }
        let (server, storage) = (Arc::clone(&self.server), self.storage);
        Ok(Some(Claim::new(move || server.give_up(storage, number.0))))
    }

    fn committed(&self, commits: &Commits) {
        let commits: Vec<Commit> = commits
            .iter()
            .map(|commit| Commit { tid: commit.tid, oids: &commit.oids, number: commit.number.0 })
            .collect();
        self.server.committed(self.storage, &commits);
    }

    fn make_durable(&self) -> Result<(), String> {
        self.server.wait_for_log()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Instant;

    use parking_lot::Mutex;
    use zodium_disk::{MemoryDisk, SystemClock};
    use zodium_engine::{Check, Config, Mailbox, Notice, Transaction};
    use zodium_filestorage::{FileStorage, OpenOptions};
    use zodium_resp_server::Storages;
    use zodium_types::{TransactionMetadata, TransactionStatus};

    use super::*;

    /// Notes what a RESP client is answered that asks for an object while commits are told.
    struct Looks {
        storages: RespStorages,
        answers: Mutex<Vec<String>>,
    }

    impl Looks {
        fn look(&self, before: Tid) {
            self.answers.lock().push(format!("{:?}", self.storages.load(0, Oid(1), before, false)));
        }
    }

    impl Companion for Looks {
        fn voted(&self, _: TransactionNumber, _: &[u8]) -> Result<Option<Claim>, String> {
            Ok(None)
        }

        fn committed(&self, commits: &Commits) {
            self.look(Tid::MAX);
            self.look(commits[0].tid);
        }

        fn make_durable(&self) -> Result<(), String> {
            Ok(())
        }
    }

    struct Deaf;

    impl Mailbox for Deaf {
        fn post(&self, _: Notice) {}
    }

    #[test]
    fn an_object_is_not_seen_before_its_commit_has_taken_effect_on_keys() {
        let options = OpenOptions::new(Path::new("Data.fs"));
        let file = FileStorage::open(Arc::new(MemoryDisk::new()), &options).unwrap();
        let config = Config { pack_keep_old: false, reopening: None, ..Config::default() };
        let clock = Arc::new(SystemClock::new());
        let (database, mut writer) = Database::with_writer(Arc::new(file), clock, &config).unwrap();
        let storage =
            RespStorage { name: "1".into(), database: Arc::clone(&database), allow: None };
        let looks =
            Arc::new(Looks { storages: RespStorages(vec![storage]), answers: Mutex::default() });
        assert!(database.subscribers().accompany(Arc::clone(&looks) as Arc<dyn Companion>));
        let metadata = TransactionMetadata::default();
        let mut transaction = Transaction::new(metadata, None, TransactionStatus::Normal).unwrap();
        transaction.store(Oid(1), Tid::ZERO, b"data"[..].into());
        let mailbox: Arc<dyn Mailbox> = Arc::new(Deaf);
        let (number, _) = database.begin_vote(&transaction, &mailbox).unwrap();
        let check = database.check(number, &transaction, Access::Blocking);
        let Ok(Check::Voted(voted)) = check else { panic!() };
        database.finish(number, voted).unwrap();
        writer.step(Instant::now);
        looks.look(Tid::MAX);
        let answers = std::mem::take(&mut *looks.answers.lock());
        assert_eq!(answers, ["WouldBlock", "Missing", "Data(b\"data\")"]);
        // Its keys may be stale: it can have been changed, and packed away.
        let changed_at = [1, 2].map(|oid| looks.storages.changed_at(0, Oid(oid)));
        assert_eq!(changed_at, [Some(database.reader().last_tid()), None]);
        database.close().unwrap();
    }
}
