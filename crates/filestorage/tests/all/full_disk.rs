//! A disk without room, and a disk that fails.
//!
//! Room is asked for at the vote, so a full disk refuses votes: nothing is written, everything
//! else goes on, and when there is room again so do the commits. A write or sync that fails all
//! the same ends the commits until the file is opened anew, and never the reads.
//!
//! The script of commits is repeated with the first operation of a kind failing, the second, and
//! so on until it runs through. Afterwards the file is opened as a power cut and as a kill would
//! leave it: every acknowledged transaction is there, and of the others a first part.

use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::task::Poll;

use crate::support::{
    History, Model, check_everything, commit, commit_all, companion, data_file, data_of, disk_of,
    file_bytes, for_each_seed, logged, open, prepare, same_answers, stores, tid, try_open,
};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use tracing::Level;
use zodium_disk::{FaultyDisk, MemoryDisk, Operation};
use zodium_filestorage::{FileStorage, FileStorageError, OpenOptions};
use zodium_storage::{Access, LogItem, Write};

#[test]
fn full_disk_refuses_the_vote_and_nothing_else() {
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    let mut history = History::new(SmallRng::seed_from_u64(1));
    for _ in 0..5 {
        history.commit_batch(&storage);
    }
    storage.close().unwrap();
    let (before, used) = (data_of(&disk), disk.used_bytes());
    let new = || stores(history.model.last_tid().next(), &[(1, &[1; 1000])]);
    let bytes = file_bytes(&new());
    for room in [0, 1, bytes - 1] {
        disk.set_capacity(used + room);
        match prepare(&storage, new().1) {
            Err(FileStorageError::Full { bytes: refused, .. }) => assert_eq!(refused, bytes),
            other => panic!("{other:?}"),
        }
        assert_eq!(data_of(&disk), before);
        assert!(same_answers(&storage, &history.model).unwrap());
    }
    disk.set_capacity(used + bytes);
    let new = new();
    history.commit(&storage, new);
    check_everything(&storage, &history.model, &mut SmallRng::seed_from_u64(1));
    let refused = commit(&storage, stores(tid(1 << 20), &[(1, b"no room")]));
    assert!(matches!(refused, Err(FileStorageError::Full { .. })));
    disk.set_capacity(u64::MAX);
    history.commit_batch(&storage);
    drop(storage);
    assert!(same_answers(&open(disk), &history.model).unwrap());
}

#[test]
fn a_shortage_of_space_is_logged_once_and_so_is_its_end() {
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    commit(&storage, stores(tid(1), &[(1, b"before")])).unwrap();
    storage.close().unwrap();
    disk.set_capacity(disk.used_bytes() + 500);
    let large = |n| stores(tid(n), &[(1, &[1; 1000])]);
    let is_full = |result| {
        use zodium_storage::StorageError;
        matches!(
            result,
            Err(FileStorageError::Full { .. } | FileStorageError::Spool(StorageError::Full { .. }))
        )
    };
    let ((), messages) = logged(Level::INFO, || {
        assert!(is_full(commit(&storage, large(2))));
        // What still fits is committed, and ends nothing.
        commit(&storage, stores(tid(3), &[(1, b"small")])).unwrap();
        assert!(is_full(commit(&storage, large(4))));
        assert!(is_full(
            Write::new_spool(&storage)
                .and_then(|mut spool| spool.append(&vec![1; 2 << 20].into()).map(drop))
                .map_err(FileStorageError::from)
        ));
    });
    let [(Level::WARN, message)] = &messages[..] else { panic!("{messages:?}") };
    assert!(message.contains("Data.fs: no space left for"), "{message}");
    assert!(message.contains("commits that need more space are refused"), "{message}");
    assert!(message.contains("once there is space"), "{message}");
    disk.set_capacity(u64::MAX);
    let ((), messages) = logged(Level::INFO, || {
        for n in 5..8 {
            commit(&storage, large(n)).unwrap();
        }
    });
    let [(Level::INFO, message)] = &messages[..] else { panic!("{messages:?}") };
    assert!(
        message.contains("refused=3 ") && message.contains("there is space again"),
        "{message}"
    );
}

#[test]
fn a_used_up_quota_is_logged_once_and_so_is_its_end() {
    let options = OpenOptions { quota_bytes: Some(2000), ..OpenOptions::new(data_file()) };
    let storage = FileStorage::open(Arc::new(MemoryDisk::new()), &options).unwrap();
    let prepared = || prepare(&storage, stores(tid(1), &[(1, &[1; 1000])]).1);
    let ((), messages) = logged(Level::INFO, || {
        let first = prepared().unwrap();
        for _ in 0..5 {
            assert!(matches!(prepared(), Err(FileStorageError::Quota { .. })));
        }
        storage.release(first);
        storage.release(prepared().unwrap());
    });
    let [(Level::WARN, full), (Level::INFO, again)] = &messages[..] else { panic!("{messages:?}") };
    assert!(full.contains("over the quota of 2000; pack, or raise the quota"), "{full}");
    assert!(full.contains("once the storage is below its quota"), "{full}");
    assert!(again.contains("refused=5 "), "{again}");
}

#[test]
fn a_quota_that_has_space_for_less_than_was_refused_is_still_used_up() {
    let bytes = |n: u64| file_bytes(&stores(tid(n), &[(n, &vec![1; n as usize])]));
    let quota_bytes = Some(4 + bytes(100) + bytes(1000));
    let options = OpenOptions { quota_bytes, ..OpenOptions::new(data_file()) };
    let storage = FileStorage::open(Arc::new(MemoryDisk::new()), &options).unwrap();
    let vote = |n: u64| prepare(&storage, stores(tid(n), &[(n, &vec![1; n as usize])]).1);
    let (messages_before, messages) = {
        let first = vote(100).unwrap();
        let small = || storage.release(vote(50).unwrap());
        let ((), messages_before) = logged(Level::INFO, || {
            vote(1001).unwrap_err();
            small();
        });
        storage.release(first);
        (messages_before, logged(Level::INFO, small).1)
    };
    let levels = |messages: &[(Level, String)]| messages.iter().map(|m| m.0).collect::<Vec<_>>();
    assert_eq!(levels(&messages_before), [Level::WARN]);
    assert_eq!(levels(&messages), [Level::INFO]);
}

#[test]
fn disk_can_be_filled_to_the_last_byte() {
    let new = |n| stores(tid(n), &[(1, &[1; 100])]);
    let bytes = file_bytes(&new(1));
    let disk = MemoryDisk::with_capacity(4 + 50 * bytes);
    let storage = open(disk.clone());
    for n in 1..=50 {
        commit(&storage, new(n)).unwrap();
    }
    assert_eq!(disk.used_bytes(), 4 + 50 * bytes);
    assert!(matches!(commit(&storage, new(51)), Err(FileStorageError::Full { .. })));
}

#[test]
fn file_can_grow_to_its_quota_and_not_a_byte_further() {
    let new = |n| stores(tid(n), &[(1, &[1; 100])]);
    let bytes = file_bytes(&new(1));
    let quota = 4 + 3 * bytes;
    for (quota_bytes, room) in [(quota - 1, 2), (quota, 3), (quota + 1, 3)] {
        let options =
            OpenOptions { quota_bytes: Some(quota_bytes), ..OpenOptions::new(data_file()) };
        let storage = FileStorage::open(Arc::new(MemoryDisk::new()), &options).unwrap();
        for n in 1..=room {
            commit(&storage, new(n)).unwrap();
        }
        let refused = commit(&storage, new(room + 1));
        assert!(matches!(refused, Err(FileStorageError::Quota { .. })), "{refused:?}");
        assert_eq!(storage.size(), 4 + room * bytes);
    }
}

#[test]
fn space_that_was_given_back_can_be_promised_again() {
    let new = || stores(tid(1), &[(1, &[1; 100])]);
    let storage = open(MemoryDisk::with_capacity(4 + 2 * file_bytes(&new())));
    let prepared = || prepare(&storage, new().1);
    for _ in 0..100 {
        let one = prepared().unwrap();
        let other = prepared().unwrap();
        assert!(matches!(prepared(), Err(FileStorageError::Full { .. })));
        storage.release(one);
        let third = prepared().unwrap();
        storage.release(other);
        storage.release(third);
    }
    commit(&storage, new()).unwrap();
}

#[test]
fn space_of_a_transaction_that_the_engine_aborts_is_given_back() {
    let new = || stores(tid(1), &[(1, &[1; 100])]).1;
    let disk = MemoryDisk::with_capacity(4 + file_bytes(&(tid(1), new())));
    let storage = open(disk);
    let storage: &dyn Write = &storage;
    for _ in 0..3 {
        let Poll::Ready(prepared) = storage.prepare(new(), Access::Blocking).unwrap() else {
            panic!("it may wait");
        };
        assert!(storage.prepare(new(), Access::Blocking).is_err());
        storage.abort(prepared);
    }
}

#[test]
fn promised_space_is_not_promised_again_while_it_is_being_written() {
    let new = |n| stores(tid(n), &[(n, &[1; 100])]);
    let bytes = file_bytes(&new(1));
    let disk = FaultyDisk::new(MemoryDisk::with_capacity(4 + 2 * bytes));
    let storage = Arc::new(open(disk.clone()));
    let [first, second] = [1, 2].map(|n| (tid(n), prepare(&storage, new(n).1).unwrap()));
    let answer = Arc::new(Mutex::new(None));
    let (storage_then, answer_then) = (Arc::clone(&storage), Arc::clone(&answer));
    disk.before_next(Operation::Sync, move || {
        *answer_then.lock().unwrap() = Some(prepare(&storage_then, new(3).1));
    });
    storage.append(vec![first]).unwrap();
    let answer = answer.lock().unwrap().take().unwrap();
    assert!(matches!(answer, Err(FileStorageError::Full { .. })), "{answer:?}");
    storage.append(vec![second]).unwrap();
}

#[test]
fn space_of_a_transaction_that_is_refused_after_a_failure_is_given_back() {
    let new = |n| stores(tid(n), &[(n, &[1; 100])]);
    let disk = FaultyDisk::new(MemoryDisk::new());
    let quota_bytes = Some(4 + 2 * file_bytes(&new(1)));
    let options = OpenOptions { quota_bytes, ..OpenOptions::new(data_file()) };
    let storage = FileStorage::open(Arc::new(disk.clone()), &options).unwrap();
    let prepared = || [1, 2].map(|n| (tid(n), prepare(&storage, new(n).1).unwrap()));
    let [first, second] = prepared();
    disk.fail(Operation::Write, 1, ErrorKind::Other);
    storage.append(vec![first]).unwrap_err();
    let refused = storage.append(vec![second]);
    assert!(matches!(refused, Err(FileStorageError::Failed { .. })), "{refused:?}");
    storage.reopen().unwrap();
    storage.append(prepared().into()).unwrap();
}

#[test]
fn space_reserved_ahead_is_given_back_at_the_close() {
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    commit(&storage, stores(tid(1), &[(1, b"a")])).unwrap();
    assert!(disk.used_bytes() > 1 << 20);
    storage.close().unwrap();
    let length = |path| disk.bytes(path).unwrap().len() as u64;
    assert_eq!(disk.used_bytes(), disk.paths().iter().map(|path| length(path)).sum::<u64>());
}

#[test]
fn resident_access_never_asks_the_file_system() {
    let disk = FaultyDisk::new(MemoryDisk::new());
    let storage = open(disk.clone());
    let prepared = |access| storage.prepare(stores(tid(1), &[(1, b"data")]).1, access).unwrap();
    assert!(prepared(Access::NonBlocking).is_none());
    assert_eq!(disk.count(Operation::Reserve), 0);
    let first = prepared(Access::Blocking).unwrap();
    // What was reserved ahead is enough for this one.
    storage.release(prepared(Access::NonBlocking).unwrap());
    storage.release(first);
    assert_eq!(disk.count(Operation::Reserve), 1);
}

#[test]
fn a_vote_need_not_wait_for_what_was_reserved_ahead_and_no_byte_more() {
    const AHEAD_BYTES: u64 = 1 << 20;
    for (more, is_reserved) in [(0, true), (1, false)] {
        let disk = FaultyDisk::new(MemoryDisk::new());
        let storage = open(disk.clone());
        let first = prepare(&storage, stores(tid(1), &[(1, b"data")]).1).unwrap();
        let empty = file_bytes(&stores(tid(2), &[(2, b"")]));
        let data = vec![2; (AHEAD_BYTES - empty + more) as usize];
        let (_, new) = stores(tid(2), &[(2, &data)]);
        let second = storage.prepare(new, Access::NonBlocking).unwrap();
        assert_eq!(second.is_some(), is_reserved, "{more} bytes more");
        assert_eq!(disk.count(Operation::Reserve), 1);
        storage.release(first);
    }
}

#[test]
fn a_vote_that_may_not_wait_does_not_while_another_asks_the_file_system() {
    let disk = FaultyDisk::new(MemoryDisk::new());
    let storage = Arc::new(open(disk.clone()));
    let vote = |storage: &FileStorage, n, access| storage.prepare(stores(tid(n), &[]).1, access);
    let answer = Arc::new(Mutex::new(None));
    let (storage_then, answer_then) = (Arc::clone(&storage), Arc::clone(&answer));
    disk.before_next(Operation::Reserve, move || {
        *answer_then.lock().unwrap() = Some(vote(&storage_then, 2, Access::NonBlocking));
    });
    assert!(vote(&storage, 1, Access::Blocking).unwrap().is_some());
    let answer = answer.lock().unwrap().take().expect("the file system was asked");
    assert!(answer.unwrap().is_none());
    assert!(vote(&storage, 3, Access::NonBlocking).unwrap().is_some());
}

#[test]
fn failing_operation_loses_nothing_wherever_it_is() {
    for_each_seed(3, "full_disk", |_, rng| {
        for operation in [
            Operation::Write,
            Operation::Sync,
            Operation::Reserve,
            Operation::SetLength,
            Operation::Open,
            Operation::Folder,
        ] {
            for error in [ErrorKind::Other, ErrorKind::StorageFull] {
                let faults = (1..).take_while(|nth| {
                    let disk = FaultyDisk::new(MemoryDisk::new());
                    disk.fail(operation, *nth, error);
                    let script = Script::run(&disk, rng.clone());
                    script.check(&disk.files().after_power_cut());
                    script.check(&disk.files().after_kill());
                    disk.has_failed()
                });
                assert!(faults.count() >= 1, "{operation:?} does not occur in the script");
            }
        }
    });
}

#[test]
fn crash_after_any_step_loses_nothing() {
    for_each_seed(3, "full_disk", |_, rng| {
        let disk = FaultyDisk::new(MemoryDisk::new());
        disk.keep_images();
        let script = Script::run(&disk, rng.clone());
        let images = disk.images();
        assert!(images.len() > 20);
        for (number, image) in images.iter().enumerate() {
            let acknowledged = script.acknowledged_at(number + 1);
            for crashed in [&image.power_cut, &image.kill] {
                check_prefix(crashed, acknowledged, &script.attempted);
            }
        }
    });
}

#[test]
fn crash_after_any_step_of_an_opening_loses_nothing() {
    let (torn, model) = torn_file();
    let disk = FaultyDisk::new(disk_of(&torn));
    disk.keep_images();
    open(disk.clone());
    for image in disk.images() {
        for crashed in [image.power_cut, image.kill] {
            check_torn(&crashed, &torn, &model);
        }
    }
}

#[test]
fn failing_operation_in_an_opening_loses_nothing() {
    let (torn, model) = torn_file();
    for operation in [
        Operation::Open,
        Operation::Read,
        Operation::Write,
        Operation::Sync,
        Operation::SetLength,
        Operation::Folder,
    ] {
        let faults = (1..).take_while(|nth| {
            let disk = FaultyDisk::new(disk_of(&torn));
            disk.fail(operation, *nth, ErrorKind::Other);
            let opened = try_open(disk.clone(), 0);
            assert!(opened.is_ok() || disk.has_failed());
            drop(opened);
            check_torn(&disk.files().after_power_cut(), &torn, &model);
            check_torn(&disk.files().after_kill(), &torn, &model);
            disk.has_failed()
        });
        assert!(faults.count() >= 1, "{operation:?} does not occur");
    }
}

/// However often it is tried, no part of a copy takes the room that there is.
#[test]
fn a_file_that_cannot_be_read_is_not_said_to_be_no_file_storage() {
    let (bytes, _) = torn_file();
    for nth in 1.. {
        let disk = FaultyDisk::new(disk_of(&bytes));
        disk.fail(Operation::Read, nth, ErrorKind::Other);
        let opened = try_open(disk.clone(), 0);
        if !disk.has_failed() {
            break;
        }
        assert!(!matches!(opened, Err(FileStorageError::NotFileStorage { .. })), "read {nth}");
    }
}

#[test]
fn a_broken_end_that_cannot_be_kept_is_left_in_place() {
    let (torn, model) = torn_file();
    let tail = &torn[model.size() as usize..];
    let disk = disk_of(&torn);
    for room in 0..tail.len() as u64 {
        disk.set_capacity(torn.len() as u64 + room);
        let Err(error) = try_open(disk.clone(), 0) else { panic!("room for {room} bytes only") };
        let text = error.to_string();
        let FileStorageError::NoRoomForEnd { position, bytes, kept, .. } = error else {
            panic!("{error}")
        };
        assert_eq!((position, bytes), (model.size(), tail.len() as u64));
        assert_eq!(kept, companion(".tr0"));
        assert!(text.contains("disk is full") && text.contains("Data.fs.tr0"), "{text}");
        assert_eq!(data_of(&disk), torn);
        assert_eq!(disk.paths(), [data_file()], "with room for {room} bytes");
    }
    disk.set_capacity((torn.len() + tail.len()) as u64);
    assert!(same_answers(&open(disk.clone()), &model).unwrap());
    assert_eq!(disk.bytes(&companion(".tr0")).unwrap(), tail);
    assert!(disk.bytes(&companion(".tr1")).is_none());
}

#[test]
fn a_crash_or_failure_in_an_opening_leaves_no_part_of_a_broken_end() {
    let (torn, model) = torn_file();
    let tail = &torn[model.size() as usize..];
    let check = |files: &MemoryDisk, what: &dyn std::fmt::Debug| {
        let paths = files.paths();
        let is_kept = |path: &&std::path::PathBuf| {
            path.extension().is_some_and(|suffix| {
                suffix
                    .to_string_lossy()
                    .strip_prefix("tr")
                    .is_some_and(|n| n.parse::<u32>().is_ok())
            })
        };
        for kept in paths.iter().filter(is_kept) {
            assert_eq!(files.bytes(kept).unwrap(), tail, "{} after {what:?}", kept.display());
        }
    };
    for operation in [Operation::Open, Operation::Write, Operation::Sync, Operation::Folder] {
        for nth in 1.. {
            let disk = FaultyDisk::new(disk_of(&torn));
            disk.keep_images();
            disk.fail(operation, nth, ErrorKind::StorageFull);
            let opened = try_open(disk.clone(), 0);
            if !disk.has_failed() {
                break;
            }
            check(disk.files(), &(operation, nth));
            for image in disk.images() {
                for crashed in [image.power_cut, image.names_lost, image.kill] {
                    check(&crashed, &(operation, nth, image.after));
                }
            }
            if opened.is_err() && data_of(disk.files()) == torn {
                assert_eq!(disk.files().paths(), [data_file()], "{operation:?} {nth}");
            }
        }
    }
}

/// Whichever read fails, within headers, metadata or records: the next attempt begins there.
#[test]
fn an_iteration_goes_on_where_a_read_failed() {
    let disk = FaultyDisk::new(MemoryDisk::new());
    let storage = open(disk.clone());
    for (number, bytes) in [(1, 100), (2, 200 << 10), (3, 300 << 10), (4, 100)] {
        let mut new = stores(tid(number), &[(number, &vec![7; bytes])]);
        new.1.metadata.description = vec![b'd'; 60_000];
        commit(&storage, new).unwrap();
    }
    for nth in 1.. {
        let mut transactions = storage.reader().iterate(None, None).unwrap();
        let (mut seen, mut failures) = (Vec::new(), 0);
        disk.fail(Operation::Read, nth, ErrorKind::Other);
        loop {
            let read = transactions.read(true, |item| {
                match item {
                    LogItem::Transaction { tid, .. } => seen.push((tid, 0)),
                    LogItem::Record { data, .. } => {
                        seen.last_mut().unwrap().1 += data.map_or(0, <[u8]>::len);
                    }
                    LogItem::Skipped => panic!("records are asked for"),
                }
                ControlFlow::Continue(())
            });
            match read {
                Ok(true) => break,
                Ok(false) => panic!("it was not stopped"),
                Err(_) => failures += 1,
            }
        }
        let all = [(tid(1), 100), (tid(2), 200 << 10), (tid(3), 300 << 10), (tid(4), 100)];
        assert_eq!(seen, all, "read {nth} failed");
        if failures == 0 {
            assert!(nth > 3, "there were {nth} reads");
            break;
        }
    }
}

#[test]
fn read_error_concerns_that_reading_only() {
    let disk = FaultyDisk::new(MemoryDisk::new());
    let storage = open(disk.clone());
    let mut history = History::new(SmallRng::seed_from_u64(8));
    for _ in 0..8 {
        history.commit_batch(&storage);
    }
    let faults = (1..).take_while(|nth| {
        disk.fail(Operation::Read, *nth, ErrorKind::Other);
        let answers = same_answers(&storage, &history.model);
        match disk.has_failed() {
            true => assert!(matches!(answers, Err(FileStorageError::Io { operation: "read", .. }))),
            false => assert!(answers.unwrap()),
        }
        disk.has_failed()
    });
    assert!(faults.count() > 100);
    disk.mend();
    history.commit_batch(&storage);
    assert!(same_answers(&storage, &history.model).unwrap());
}

/// An opening, commits, an index saved in between, and a close, on a disk that may fail once.
struct Script {
    acknowledged: Model,
    attempted: Model,
    /// How many images the disk had kept when so many transactions were acknowledged.
    moments: Vec<(usize, usize)>,
}

impl Script {
    fn run(disk: &FaultyDisk, rng: SmallRng) -> Script {
        let mut script = Script {
            acknowledged: Model::default(),
            attempted: Model::default(),
            moments: vec![(0, 0)],
        };
        let Ok(storage) = try_open(disk.clone(), 0) else { return script };
        let mut history = History::new(rng);
        for step in 0..8 {
            let batch = history.next_batch(&storage);
            script.attempted = history.model.clone();
            match commit_all(&storage, batch) {
                Ok(()) => script.acknowledge(disk, &history.model),
                Err(error) => {
                    history.model = script.acknowledged.clone();
                    assert!(same_answers(&storage, &history.model).unwrap());
                    if !goes_on(&storage, disk, &error) {
                        assert!(same_answers(&storage, &history.model).unwrap());
                        break;
                    }
                    script.attempted = history.model.clone();
                }
            }
            if step == 4 {
                // The index is a hint: failing to save it disturbs nothing.
                let _ = storage.save_index();
                assert!(same_answers(&storage, &history.model).unwrap());
            }
        }
        let _ = storage.close();
        assert!(same_answers(&storage, &script.acknowledged).unwrap());
        script
    }

    fn acknowledge(&mut self, disk: &FaultyDisk, model: &Model) {
        self.acknowledged = model.clone();
        self.moments.push((disk.images().len(), model.transactions.len()));
    }

    /// How many transactions were acknowledged when the disk had kept so many images.
    fn acknowledged_at(&self, images: usize) -> usize {
        let past = self.moments.iter().take_while(|(kept, _)| *kept < images);
        past.last().map_or(0, |(_, acknowledged)| *acknowledged)
    }

    fn check(&self, crashed: &MemoryDisk) {
        check_prefix(crashed, self.acknowledged.transactions.len(), &self.attempted);
    }
}

/// Whether commits go on after a commit that failed: they do if the space was refused. After a
/// failed write or sync they do not, and nothing is written or synced any more.
fn goes_on(storage: &FileStorage, disk: &FaultyDisk, error: &FileStorageError) -> bool {
    let refused = match error {
        FileStorageError::Full { .. } => true,
        FileStorageError::Io { operation, .. } => *operation == "reserve space",
        other => panic!("{other}"),
    };
    if refused {
        return true;
    }
    let counts = || [Operation::Write, Operation::Sync].map(|kind| disk.count(kind));
    let before = counts();
    let (_, new) = stores(tid(1 << 20), &[(1, b"after the failure")]);
    assert!(matches!(prepare(storage, new), Err(FileStorageError::Failed { .. })));
    let appended = storage.append(Vec::new());
    assert!(matches!(appended, Err(FileStorageError::Failed { .. })));
    assert_eq!(counts(), before);
    false
}

/// The file opens, has at least so many of the transactions, and nothing else.
fn check_prefix(crashed: &MemoryDisk, acknowledged: usize, attempted: &Model) {
    let storage = open(crashed.clone());
    let tids = || attempted.transactions.iter().map(|transaction| transaction.tid);
    let count = tids().take_while(|tid| *tid <= storage.last_tid()).count();
    assert!(count >= acknowledged, "{count} of {acknowledged} acknowledged transactions");
    let mut history = History::after(&attempted.first(count), SmallRng::seed_from_u64(1));
    assert!(same_answers(&storage, &history.model).unwrap());
    history.commit_batch(&storage);
    drop(storage);
    assert!(same_answers(&open(crashed.clone()), &history.model).unwrap());
}

/// A data file whose last transaction is cut, and what is in it.
fn torn_file() -> (Vec<u8>, Model) {
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    let mut history = History::new(SmallRng::seed_from_u64(3));
    for _ in 0..4 {
        history.commit_batch(&storage);
    }
    let model = history.model.clone();
    history.commit(&storage, stores(model.last_tid().next(), &[(1, &[1; 100])]));
    let mut torn = data_of(&disk);
    torn.truncate(torn.len() - 9);
    (torn, model)
}

/// The file opens with what is whole, and a copy of the tail exists.
fn check_torn(crashed: &MemoryDisk, torn: &[u8], model: &Model) {
    let storage = open(crashed.clone());
    assert!(same_answers(&storage, model).unwrap());
    let tail = &torn[model.size() as usize..];
    let mut others = crashed.paths();
    others.retain(|path| path != data_file());
    assert!(others.iter().any(|path| crashed.bytes(path).unwrap() == tail), "{others:?}");
}
