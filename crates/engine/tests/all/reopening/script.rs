//! What an application does on a disk that fails, and what it was told.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use zodium_engine::{Database, Notice, Transaction};
use zodium_storage::Access;
use zodium_types::{Oid, Tid};

use super::{try_vote, wait_until_writable};
use crate::blobs::client::{BLOB_RECORD, Client, blob_paths, path_of};
use crate::support::{load, transaction};

/// Longer than what the log writer gathers in its buffer.
const LARGE_BYTES: usize = 100_000;
/// Tries of one step. More than two only happen where a fault lasts.
const TRIES_MAX: usize = 40;

/// What was acknowledged.
#[derive(Default)]
pub(crate) struct Script {
    /// The current data of each object, or of its blob.
    current: BTreeMap<u64, (Tid, Bytes)>,
    tids: BTreeSet<Tid>,
    /// All revisions of blobs.
    blobs: Vec<(u64, Tid)>,
    /// What the first step stored.
    first: Bytes,
    /// What a pack may have dropped.
    packed: BTreeSet<Tid>,
    steps: u8,
}

/// Objects whose current data are blobs.
const BLOBS: [u64; 2] = [20, 21];

impl Script {
    /// Does each step until it succeeds. `mend` is called when one has failed.
    pub(crate) fn run(client: &mut Client, moment: &str, mend: impl Fn()) -> Script {
        let mut script = Script::default();
        script.until_done(client, moment, &mend, |script, client| script.store(client, &[1], 10));
        script.until_done(client, moment, &mend, |script, client| script.store(client, &[1], 10));
        script.until_done(client, moment, &mend, Script::batch);
        script.until_done(client, moment, &mend, |script, client| {
            script.store(client, &[5, 6], LARGE_BYTES)
        });
        script.until_done(client, moment, &mend, Script::blobs);
        script.until_done(client, moment, &mend, |_, client| client.file().save_index().ok());
        script.until_done(client, moment, &mend, Script::undo);
        script.until_done(client, moment, &mend, Script::pack);
        script.until_done(client, moment, &mend, |script, client| script.store(client, &[7], 10));
        script.until_done(client, moment, &mend, Script::blobs);
        script
    }

    fn until_done(
        &mut self,
        client: &mut Client,
        moment: &str,
        mend: &impl Fn(),
        mut step: impl FnMut(&mut Script, &mut Client) -> Option<()>,
    ) {
        self.steps += 1;
        for _ in 0..TRIES_MAX {
            if step(self, client).is_some() {
                return;
            }
            self.check_reads(client, moment);
            // For long enough that reopening is tried in vain.
            thread::sleep(Duration::from_millis(2));
            mend();
            wait_until_writable(client.storage());
        }
        panic!("{moment}: step {} never succeeds", self.steps);
    }

    /// Data that no other step or try stores.
    fn data(&self, bytes: usize) -> Bytes {
        let tag = [self.steps, u8::try_from(self.tids.len()).unwrap()];
        tag.into_iter().cycle().take(bytes).collect()
    }

    fn store(&mut self, client: &mut Client, oids: &[u64], bytes: usize) -> Option<()> {
        let data = self.data(bytes);
        let transaction = self.storing(oids, &data);
        let (number, voted) = try_vote(&mut client.session, transaction)?;
        let tid = client.session.finish(number, voted).ok()?;
        self.acknowledge(tid, oids.iter().map(|oid| (*oid, data.clone())));
        Some(())
    }

    fn storing(&self, oids: &[u64], data: &Bytes) -> Transaction {
        let mut transaction = transaction();
        for oid in oids {
            let serial = self.current.get(oid).map_or(Tid::ZERO, |(serial, _)| *serial);
            transaction.store(Oid(*oid), serial, data.clone());
        }
        transaction
    }

    /// Three transactions at once. Those that are refused are tried again alone.
    fn batch(&mut self, client: &mut Client) -> Option<()> {
        let data = self.data(50);
        let oids = [2, 3, 4].into_iter().filter(|oid| !self.current.contains_key(oid));
        let mut asked = BTreeMap::new();
        for oid in oids.collect::<Vec<_>>() {
            let transaction = self.storing(&[oid], &data);
            if let Some((number, voted)) = try_vote(&mut client.session, transaction)
                && client.storage().finish(number, voted).is_ok()
            {
                asked.insert(number.0, oid);
            }
        }
        while !asked.is_empty() {
            match client.session.next() {
                Notice::Committed(commits) => {
                    for commit in commits.iter() {
                        if let Some(oid) = asked.remove(&commit.number.0) {
                            self.acknowledge(commit.tid, [(oid, data.clone())]);
                        }
                    }
                }
                Notice::Failed(number, _) => drop(asked.remove(&number.0)),
                _ => {}
            }
        }
        [2, 3, 4].iter().all(|oid| self.current.contains_key(oid)).then_some(())
    }

    fn blobs(&mut self, client: &mut Client) -> Option<()> {
        let data = self.data(30);
        let transaction = client.try_storing(&BLOBS.map(|oid| (oid, &data[..]))).ok()?;
        let (number, voted) = try_vote(&mut client.session, transaction)?;
        let tid = client.session.finish(number, voted).ok()?;
        self.acknowledge(tid, BLOBS.map(|oid| (oid, data.clone())));
        self.blobs.extend(BLOBS.map(|oid| (oid, tid)));
        Some(())
    }

    /// Takes back what the second step stored.
    fn undo(&mut self, client: &mut Client) -> Option<()> {
        let mut transaction = transaction();
        let (undone, _) = self.current[&1];
        transaction.undo(undone);
        let (number, voted) = try_vote(&mut client.session, transaction)?;
        let tid = client.session.finish(number, voted).ok()?;
        let first = self.first.clone();
        self.acknowledge(tid, [(1, first)]);
        Some(())
    }

    /// Drops the first two revisions of the first object.
    fn pack(&mut self, client: &mut Client) -> Option<()> {
        let (last, _) = self.current[&1];
        self.packed.extend(self.tids.iter().take_while(|tid| **tid < last));
        client.storage().pack(last).ok().map(drop)
    }

    fn acknowledge(&mut self, tid: Tid, objects: impl IntoIterator<Item = (u64, Bytes)>) {
        assert!(self.tids.last().is_none_or(|last| tid > *last), "tids increase");
        self.tids.insert(tid);
        let objects: Vec<_> = objects.into_iter().collect();
        if self.first.is_empty() {
            self.first = objects[0].1.clone();
        }
        self.current.extend(objects.into_iter().map(|(oid, data)| (oid, (tid, data))));
    }

    /// What was acknowledged can be read, also while nothing can be committed.
    fn check_reads(&self, client: &Client, moment: &str) {
        for (oid, (tid, data)) in &self.current {
            // A fault may hit this reading, and then no later one that is not said to last.
            let loaded =
                client.storage().reader().load_before(Oid(*oid), Tid::MAX, Access::Blocking);
            let Ok(zodium_storage::Load::Revision(revision)) = loaded else { continue };
            assert_eq!(revision.serial, *tid, "{moment}: {oid}");
            if !BLOBS.contains(oid) {
                assert_eq!(&revision.data, data, "{moment}: {oid}");
            }
        }
    }

    /// All that was acknowledged is there, and nothing else.
    pub(crate) fn check(&self, client: &Client, moment: &str) {
        let storage = client.storage();
        for (oid, (tid, data)) in &self.current {
            let (loaded, serial) = load(storage, *oid, Tid::MAX).expect("it is there");
            assert_eq!(serial, *tid, "{moment}: {oid}");
            if BLOBS.contains(oid) {
                assert_eq!(loaded, BLOB_RECORD);
                assert_eq!(&client.blob(*oid, *tid).unwrap(), data, "{moment}: {oid}");
            } else {
                assert_eq!(loaded, data, "{moment}: {oid}");
            }
        }
        let found = tids(storage);
        let kept: BTreeSet<_> = self.tids.difference(&self.packed).copied().collect();
        assert!(found.is_subset(&self.tids), "{moment}: what was refused is there");
        assert!(found.is_superset(&kept), "{moment}: what was acknowledged is not there");
    }

    /// The blobs are there that were acknowledged, and none that was refused.
    pub(crate) fn check_blobs(&self, disk: &zodium_disk::MemoryDisk, moment: &str) {
        let mut found = blob_paths(disk);
        found.retain(|path| path.extension().is_some_and(|extension| extension == "blob"));
        let mut expected: Vec<_> = self.blobs.iter().copied().map(path_of).collect();
        expected.sort();
        assert_eq!(found, expected, "{moment}");
    }
}

fn tids(storage: &Database) -> BTreeSet<Tid> {
    let mut tids = BTreeSet::new();
    let mut transactions = storage.reader().iterate(None, None).unwrap();
    while let Some(transaction) = transactions.step().unwrap() {
        tids.insert(transaction.tid);
    }
    tids
}
