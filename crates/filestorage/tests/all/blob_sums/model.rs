//! Random histories of one file and its blobs: commits, undos, packs, a stock server in turns,
//! crashes, backups put back. After each step every blob loads, and a check calls none damaged.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rand::RngExt;
use rand::rngs::SmallRng;
use zodium_disk::{MemoryDisk, PowerCut};
use zodium_filestorage::FileStorage;
use zodium_storage::PackOptions;
use zodium_types::{Oid, Tid};

use super::{New, RECORD, SUMS, check, commit_blobs, load, open};
use crate::support::{commit, for_each_seed, stores, tid};

type Blobs = BTreeMap<(u64, Tid), Vec<u8>>;

/// A copy of everything but the sums.
struct Backup {
    files: Vec<(PathBuf, Vec<u8>)>,
    blobs: Blobs,
    last: u64,
}

struct History {
    disk: MemoryDisk,
    storage: Option<FileStorage>,
    /// The blobs that the file has records of.
    blobs: Blobs,
    /// Those that have entries, those of histories that were given up among them.
    entries: BTreeMap<(u64, Tid), ()>,
    /// Whether all of `entries` are sure to be there: no crash took any.
    is_exact: bool,
    /// The number of the last transaction in the file, and of the last there ever was.
    last: u64,
    ever: u64,
    backup: Option<Backup>,
}

#[test]
fn no_sound_blob_is_called_damaged_in_any_history() {
    for_each_seed(200, "blob_sums", |_, random| {
        let mut history = History::new();
        for _ in 0..random.random_range(5..40) {
            history.step(random);
            history.verify();
        }
    });
}

impl History {
    fn new() -> History {
        let disk = MemoryDisk::new();
        let storage = Some(open(&disk));
        History {
            disk,
            storage,
            blobs: Blobs::new(),
            entries: BTreeMap::new(),
            is_exact: true,
            last: 0,
            ever: 0,
            backup: None,
        }
    }

    fn storage(&self) -> &FileStorage {
        self.storage.as_ref().unwrap()
    }

    fn step(&mut self, random: &mut SmallRng) {
        match random.random_range(0..20) {
            0 => self.pack(random.random_range(0..=self.last)),
            1 => self.crash(random),
            2 => self.reopen(),
            3 => self.backup = Some(self.copy()),
            4 => self.restore(),
            5 | 6 => self.commit_by_stock(random),
            7..=9 => self.undo(random),
            _ => self.commit(random),
        }
    }

    /// The next tid of ours, which another history may have had.
    fn next(&mut self, random: &mut SmallRng) -> Tid {
        self.last += random.random_range(1..3);
        self.ever = self.ever.max(self.last);
        tid(self.last)
    }

    fn commit(&mut self, random: &mut SmallRng) {
        let next = self.next(random);
        let mut new = BTreeMap::new();
        for _ in 0..random.random_range(1..4) {
            let mut data = vec![0; random.random_range(0..60)];
            data.iter_mut().for_each(|byte| *byte = random.random());
            new.insert(random.random_range(1..6), (data, random.random()));
        }
        let of = |data, is_put| if is_put { New::Put(data) } else { New::Sent(data) };
        let blobs: Vec<_> = new.iter().map(|(oid, (data, put))| (*oid, of(data, *put))).collect();
        self.record(next, &blobs);
        self.blobs.extend(new.into_iter().map(|(oid, (data, _))| ((oid, next), data)));
    }

    fn undo(&mut self, random: &mut SmallRng) {
        if self.blobs.is_empty() {
            return;
        }
        let place = random.random_range(0..self.blobs.len());
        let ((oid, source), data) = self.blobs.iter().nth(place).unwrap();
        let (oid, source, data) = (*oid, *source, data.clone());
        let next = self.next(random);
        self.record(next, &[(oid, New::SameAs(source))]);
        self.blobs.insert((oid, next), data);
    }

    fn record(&mut self, tid: Tid, blobs: &[(u64, New<'_>)]) {
        commit_blobs(self.storage(), &self.disk, tid, blobs);
        self.entries.retain(|(_, of), ()| *of < tid);
        self.entries.extend(blobs.iter().map(|(oid, _)| ((*oid, tid), ())));
    }

    /// Another server commits, which knows nothing of sums.
    fn commit_by_stock(&mut self, random: &mut SmallRng) {
        self.storage = None;
        (self.last, self.ever) = (self.ever + 1, self.ever + 1);
        let (next, oid) = (tid(self.last), random.random_range(1..6));
        let data = vec![random.random(); random.random_range(0..60)];
        let stock = crate::support::open(self.disk.clone());
        commit(&stock, stores(next, &[(oid, RECORD)])).unwrap();
        drop(stock);
        let storage = open(&self.disk);
        let path = storage.blobs().unwrap().path_of(Oid(oid), next);
        self.disk.put(&path, data.clone());
        self.storage = Some(storage);
        self.blobs.insert((oid, next), data);
    }

    fn pack(&mut self, number: u64) {
        let cancelled = Arc::default();
        let options =
            PackOptions { keep_old: number.is_multiple_of(2), ..PackOptions::new(&cancelled) };
        let storage = self.storage.take().unwrap();
        if let Some(mut pack) = storage.packer().begin(tid(number), &options).unwrap() {
            storage.packer().finish(&mut pack).unwrap();
            storage.packer().remove_blobs(&pack, &AtomicBool::new(false)).unwrap();
            let is_kept = |blob: &(u64, Tid)| {
                storage.reader().load_serial(Oid(blob.0), blob.1).unwrap().is_some()
            };
            self.entries.retain(|blob, ()| !self.blobs.contains_key(blob) || is_kept(blob));
            self.blobs.retain(|blob, _| is_kept(blob));
        }
        self.storage = Some(storage);
    }

    fn crash(&mut self, random: &mut SmallRng) {
        let kind = random.random_range(0..=PowerCut::KINDS.len());
        self.disk = match PowerCut::KINDS.get(kind) {
            Some(cut) => self.disk.after(cut, &mut |below| random.random_range(0..below)),
            None => self.disk.after_kill(),
        };
        self.is_exact &= kind == PowerCut::KINDS.len();
        self.storage = Some(open(&self.disk));
    }

    fn reopen(&mut self) {
        self.storage().close().unwrap();
        self.storage = None;
        self.storage = Some(open(&self.disk));
    }

    fn copy(&self) -> Backup {
        let mut files = Vec::new();
        for path in self.disk.paths() {
            let is_copied = path == Path::new("Data.fs")
                || path.starts_with("Blobs") && path != Path::new(SUMS);
            if is_copied {
                files.push((path.clone(), self.disk.bytes(&path).unwrap()));
            }
        }
        Backup { files, blobs: self.blobs.clone(), last: self.last }
    }

    /// The file and its blobs are those of earlier; the sums are left as they are.
    fn restore(&mut self) {
        let Some(backup) = &self.backup else { return };
        self.storage = None;
        let disk = MemoryDisk::new();
        for (path, bytes) in &backup.files {
            disk.put(path, bytes.clone());
        }
        if let Some(bytes) = self.disk.bytes(Path::new(SUMS)) {
            disk.put(Path::new(SUMS), bytes);
        }
        (self.blobs, self.last) = (backup.blobs.clone(), backup.last);
        self.disk = disk;
        self.storage = Some(open(&self.disk));
    }

    fn verify(&self) {
        let directory = self.storage().blobs().unwrap();
        for ((oid, tid), data) in &self.blobs {
            assert_eq!(&load(directory, *oid, *tid).unwrap(), data, "{oid} of {tid}");
        }
        assert_eq!(self.storage().damaged_places(), 0);
        let (found, checked) = check(&self.disk, true);
        assert!(found.iter().all(|damage| !damage.kind.is_damage()), "{found:?}");
        assert_eq!(checked.records, self.blobs.len() as u64);
        let recorded = self.blobs.keys().filter(|blob| self.entries.contains_key(blob)).count();
        let unrecorded = (self.blobs.len() - recorded) as u64;
        match self.is_exact {
            true => assert_eq!(checked.unrecorded, unrecorded),
            false => assert!(checked.unrecorded >= unrecorded),
        }
    }
}
