//! Files that are damaged in every place and way, checked: what the format can tell is told, and
//! nothing makes the check panic or change the file.

use std::time::{Duration, Instant};

use crate::support::{
    Field, History, Model, commit, companion, data_file, data_of, disk_of, for_each_seed, open,
    referring, stores, tid, transaction,
};
use rand::RngExt;
use rand::rngs::SmallRng;
use zodium_disk::{Disk, FaultyDisk, MemoryDisk, OpenMode, Operation};
use zodium_filestorage::{
    CheckOptions, Checked, Damage, DamageKind, FileStorageError, IndexVerdict, check,
};
use zodium_storage::{NewBody, NewRecord};
use zodium_types::Oid;

fn try_check(
    disk: &MemoryDisk,
    contents: bool,
) -> Result<(Checked, Vec<Damage>), FileStorageError> {
    check_patiently(disk, contents, Duration::ZERO)
}

fn check_patiently(
    disk: &dyn Disk,
    contents: bool,
    patience: Duration,
) -> Result<(Checked, Vec<Damage>), FileStorageError> {
    check_with(disk, &CheckOptions { patience, ..looking_for(contents, contents) })
}

fn looking_for(references: bool, pickles: bool) -> CheckOptions<'static> {
    CheckOptions { references, pickles, ..CheckOptions::new(data_file()) }
}

fn check_with(
    disk: &dyn Disk,
    options: &CheckOptions<'_>,
) -> Result<(Checked, Vec<Damage>), FileStorageError> {
    let mut found = Vec::new();
    let checked = check(disk, options, &mut |damage| found.push(damage.clone()))?;
    let damages = found.iter().filter(|damage| damage.kind.is_damage()).count();
    assert_eq!(checked.damages, damages as u64);
    Ok((checked, found))
}

/// What is found in these bytes; a file that is none at all counts as one damage.
fn found_in(bytes: &[u8]) -> Vec<Damage> {
    let disk = disk_of(bytes);
    match try_check(&disk, false) {
        Ok((_, found)) => {
            assert_eq!(data_of(&disk), bytes);
            found
        }
        Err(FileStorageError::NotFileStorage { .. }) => vec![Damage {
            kind: DamageKind::Magic,
            position: 0,
            what: String::new(),
            oid: None,
            tid: None,
        }],
        Err(error) => panic!("{error}"),
    }
}

fn written(rng: &SmallRng, bytes_min: u64) -> (MemoryDisk, Model) {
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    let mut history = History::new(rng.clone());
    while history.model.size() < bytes_min {
        history.commit_batch(&storage);
    }
    storage.close().unwrap();
    (disk, history.model)
}

#[test]
fn what_a_storage_writes_is_whole_and_so_is_its_index() {
    for_each_seed(10, "check", |_, rng| {
        let (disk, model) = written(rng, 20_000);
        let (checked, found) = try_check(&disk, false).unwrap();
        assert_eq!(found, []);
        assert_eq!(checked.index, IndexVerdict::Agrees);
        assert_eq!(checked.bytes, model.size());
        assert_eq!(checked.transactions, model.transactions.len() as u64);
    });
}

#[test]
fn wrong_bit_outside_of_contents_is_found() {
    for_each_seed(2, "check", |_, rng| {
        let (disk, model) = written(rng, 1_000);
        let mut bytes = data_of(&disk);
        for field in Field::all(&bytes, &model) {
            if matches!(field.name, "data" | "metadata") {
                continue;
            }
            for bit in field.start * 8..field.end * 8 {
                bytes[bit / 8] ^= 1 << (bit % 8);
                let is_found = !found_in(&bytes).is_empty();
                bytes[bit / 8] ^= 1 << (bit % 8);
                match field.name {
                    // 8 bytes of data take the room of a back pointer.
                    "data length" if bit == field.start * 8 + 59 => {}
                    // Nothing tells what an object is called that has one record only.
                    "oid" if bytes[field.start + 16..field.start + 24] == [0; 8] => {}
                    // Nothing tells the tid of a transaction without records but its order.
                    "transaction tid" if is_empty(&model, &bytes, field.start) => {}
                    name => assert!(is_found, "bit {bit}, {name}"),
                }
            }
        }
    });
}

fn is_empty(model: &Model, bytes: &[u8], start: usize) -> bool {
    let tid = u64::from_be_bytes(bytes[start..start + 8].try_into().unwrap());
    model.transactions.iter().any(|t| t.tid.0 == tid && t.records.is_empty())
}

#[test]
fn end_that_is_cut_or_zeroed_at_any_byte_is_found_as_a_tail() {
    for_each_seed(2, "check", |_, rng| {
        let (disk, model) = written(rng, 1_500);
        let bytes = data_of(&disk);
        let mut starts = vec![4];
        for transaction in &model.transactions {
            starts.push(starts[starts.len() - 1] + transaction.length() as usize + 8);
        }
        let begun = *starts.iter().rev().nth(3).unwrap_or(&4);
        for end in begun..bytes.len() {
            let last = *starts.iter().filter(|start| **start <= end).max().unwrap();
            let found = found_in(&bytes[..end]);
            match last == end {
                true => assert_eq!(found, []),
                false => {
                    let [tail] = &found[..] else { panic!("cut at {end}: {found:?}") };
                    assert_eq!((tail.kind, tail.position), (DamageKind::Tail, last as u64));
                }
            }
            let mut zeroed = bytes.clone();
            zeroed[end..].fill(0);
            assert_eq!(found_in(&zeroed).is_empty(), zeroed == bytes, "zeroed from {end}");
        }
    });
}

#[test]
fn commit_under_way_is_no_damage() {
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    commit(&storage, stores(tid(1), &[(0, b"root")])).unwrap();
    let end = storage.size();
    commit(&storage, stores(tid(2), &[(0, b"root again")])).unwrap();
    drop(storage);
    let bytes = data_of(&disk);
    let begun = end as usize + 40;
    disk.put(data_file(), bytes[..begun].to_vec());
    let file = disk.open(data_file(), OpenMode::Write).unwrap();
    let disk = FaultyDisk::new(disk);
    let read = disk.clone();
    let writer = std::thread::spawn(move || {
        // By then the check has seen the unfinished end, and looks at it again and again.
        while read.count(Operation::Read) < 20 {
            std::thread::sleep(Duration::from_millis(1));
        }
        file.write_all_at(&bytes[begun..], begun as u64).unwrap();
    });
    let (checked, found) = check_patiently(&disk, false, Duration::from_secs(60)).unwrap();
    writer.join().unwrap();
    assert_eq!(found, []);
    assert_eq!((checked.bytes, checked.transactions), (end, 1));
}

/// Nothing that is behind it can finish it.
#[test]
fn only_an_unfinished_end_is_waited_for() {
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    for n in 1..=3 {
        commit(&storage, stores(tid(n), &[(n, b"data")])).unwrap();
    }
    drop(storage);
    let mut bytes = data_of(&disk);
    let (length, patience) = ((bytes.len() - 4) / 3, Duration::from_secs(30));
    let started = Instant::now();
    let (checked, found) = check_patiently(&disk, false, patience).unwrap();
    assert_eq!((checked.transactions, checked.bytes, found.len()), (3, bytes.len() as u64, 0));
    // The second length of the second.
    bytes[4 + 2 * length - 1] ^= 1;
    let (checked, found) = check_patiently(&disk_of(&bytes), false, patience).unwrap();
    assert_eq!((checked.transactions, checked.bytes, found.len()), (2, bytes.len() as u64, 1));
    assert!(started.elapsed() < patience);
    // The third ends early. Nothing finishes it.
    let cut = disk_of(&bytes[..bytes.len() - 3]);
    let (patience, started) = (Duration::from_millis(120), Instant::now());
    let (_, found) = check_patiently(&cut, false, patience).unwrap();
    assert!(started.elapsed() >= patience);
    assert_eq!(found.last().map(|damage| damage.kind), Some(DamageKind::Tail));
}

#[test]
fn extension_that_is_no_pickle_is_found() {
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    for (n, extension) in [(1, &b"\x80\x03}."[..]), (2, b"\x80\x03}"), (3, b"")] {
        let mut new = stores(tid(n), &[]);
        new.1.metadata.extension = extension.to_vec();
        commit(&storage, new).unwrap();
    }
    let (_, found) = try_check(&disk, true).unwrap();
    let [damage] = &found[..] else { panic!("{found:?}") };
    assert_eq!((damage.kind, damage.tid), (DamageKind::Pickle, Some(tid(2))));
}

#[test]
fn check_goes_on_after_damage_in_the_middle() {
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    for n in 1..=9 {
        commit(&storage, stores(tid(n), &[(n % 3, &[b'x'; 100]), (n + 10, b"data")])).unwrap();
    }
    drop(storage);
    let bytes = data_of(&disk);
    let length = (bytes.len() - 4) / 9;
    let start = |n: usize| 4 + (n - 1) * length;
    let mut damaged = bytes.clone();
    // The header of the second, two records of the fifth, and the length of the eighth.
    damaged[start(2)..start(2) + 23].fill(0xff);
    damaged[start(5) + 23 + 24] ^= 1;
    damaged[start(5) + 23 + 142 + 24] ^= 1;
    damaged[start(8) + length - 1] ^= 1;
    let found = found_in(&damaged);
    let at = |kind| {
        let of = found.iter().filter(|damage| damage.kind == kind).map(|d| d.position as usize);
        of.collect::<Vec<_>>()
    };
    assert_eq!(at(DamageKind::Transaction), [start(2), start(8)]);
    assert_eq!(at(DamageKind::RecordField), [start(5) + 23, start(5) + 23 + 142]);
    // The headers of the second's records are whole, its own is not: what followed it is told.
    assert_eq!(at(DamageKind::Previous), [start(5) + 23]);
    assert_eq!(found.len(), 5, "{found:?}");
}

#[test]
fn a_record_that_does_not_name_the_one_before_it_is_found() {
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    for n in 1..=3 {
        commit(&storage, stores(tid(n), &[(0, b"root")])).unwrap();
    }
    drop(storage);
    let bytes = data_of(&disk);
    let length = (bytes.len() - 4) / 3;
    let [first, second, third] = [0, 1, 2].map(|n| 4 + n * length + 23);
    let whats = |previous: usize, status: u8| {
        let mut damaged = bytes.clone();
        damaged[third + 16..third + 24].copy_from_slice(&(previous as u64).to_be_bytes());
        damaged[third - 23 + 16] = status;
        let found = found_in(&damaged);
        assert!(
            found.iter().all(|it| (it.kind, it.position) == (DamageKind::Previous, third as u64))
        );
        found.into_iter().map(|damage| damage.what).collect::<Vec<_>>()
    };
    assert_eq!(whats(second, b' '), [""; 0]);
    let none = format!("no previous record, though there is one at {second}");
    assert_eq!(whats(0, b' '), [none]);
    let past = format!("previous record at {first}, past the one at {second}");
    assert_eq!(whats(first, b' '), [past]);
    // A pack may have left it so.
    assert_eq!(whats(0, b'p'), [""; 0]);
}

#[test]
fn a_back_pointer_that_leads_to_no_record_of_the_object_is_found() {
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    commit(&storage, stores(tid(1), &[(1, b"data"), (2, b"of another")])).unwrap();
    let body = NewBody::SameAs(tid(1));
    commit(&storage, (tid(2), transaction(vec![NewRecord { oid: Oid(1), body }]))).unwrap();
    drop(storage);
    let bytes = data_of(&disk);
    let (pointer, record) = (bytes.len() - 16, bytes.len() as u64 - 16 - 42);
    assert_eq!(found_in(&bytes), []);
    for back in [28, 27 + 46, 4] {
        let mut damaged = bytes.clone();
        damaged[pointer..pointer + 8].copy_from_slice(&(back as u64).to_be_bytes());
        let found = found_in(&damaged);
        let [damage] = &found[..] else { panic!("{found:?}") };
        assert_eq!((damage.kind, damage.position), (DamageKind::BackPointer, record));
        assert_eq!(damage.what, format!("data at {back}, where no record of the object is"));
    }
}

#[test]
fn stored_copy_of_a_data_file_is_taken_for_data() {
    for_each_seed(3, "check", |_, rng| {
        let (inner, _) = written(rng, 3_000);
        let disk = MemoryDisk::new();
        let storage = open(disk.clone());
        commit(&storage, stores(tid(1), &[(0, b"root")])).unwrap();
        commit(&storage, stores(tid(2), &[(1, &data_of(&inner))])).unwrap();
        commit(&storage, stores(tid(3), &[(0, b"root again")])).unwrap();
        let mut bytes = data_of(&disk);
        let second = 4 + 23 + 42 + 4 + 8;
        bytes[second + 8] ^= 0x40;
        let found = found_in(&bytes);
        let [gap] = &found[..] else { panic!("{found:?}") };
        assert_eq!((gap.kind, gap.position), (DamageKind::Transaction, second as u64));
    });
}

#[test]
fn index_that_names_other_records_is_found() {
    for_each_seed(5, "check", |_, rng| {
        let (disk, _) = written(rng, 5_000);
        let index = disk.bytes(&companion(".index")).unwrap();
        for _ in 0..50 {
            let mut damaged = index.clone();
            let at = rng.random_range(0..damaged.len());
            damaged[at] ^= 1 << rng.random_range(0..8);
            disk.put(&companion(".index"), damaged);
            let (checked, found) = try_check(&disk, false).unwrap();
            // The number of the pickle protocol, which changes nothing.
            if at > 0 && index[at - 1..=at] == [0x80, 3] {
                continue;
            }
            let told = found.iter().all(|damage| damage.kind == DamageKind::Index);
            let is_old_format = found.is_empty() && checked.index == IndexVerdict::None;
            assert!(told && (is_old_format || checked.index == IndexVerdict::Differs), "byte {at}");
        }
    });
}

#[test]
fn index_that_cannot_be_opened_is_told_and_one_that_is_not_there_is_not() {
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    commit(&storage, stores(tid(1), &[(1, b"data")])).unwrap();
    storage.close().unwrap();
    drop(storage);
    let failing = FaultyDisk::new(disk.clone());
    failing.fail(Operation::Open, 1, std::io::ErrorKind::PermissionDenied);
    let (checked, found) = check_patiently(&failing, false, Duration::ZERO).unwrap();
    let [damage] = &found[..] else { panic!("{found:?}") };
    assert_eq!((checked.index, damage.kind), (IndexVerdict::Differs, DamageKind::Index));
    assert!(damage.what.contains("cannot be opened"), "{damage}");
    disk.remove(&companion(".index")).unwrap();
    let (checked, found) = try_check(&disk, false).unwrap();
    assert_eq!((checked.index, found), (IndexVerdict::None, vec![]));
}

#[test]
fn of_many_objects_that_the_index_has_elsewhere_a_hundred_are_told_one_by_one() {
    let index_without = |disk: &MemoryDisk, objects: u64| {
        let storage = open(disk.clone());
        for n in 0..objects {
            commit(&storage, stores(tid(n + 1), &[(n, b"data")])).unwrap();
        }
        storage.close().unwrap();
        drop(storage);
        let index = disk.bytes(&companion(".index")).unwrap();
        // The same objects again: the index of before has another place for each.
        let all: Vec<(u64, &[u8])> = (0..objects).map(|oid| (oid, &b"later"[..])).collect();
        let storage = open(disk.clone());
        commit(&storage, stores(tid(objects + 1), &all)).unwrap();
        drop(storage);
        let end = data_of(disk).len() as i32;
        // An index that covers all of the file: its first number is the end of what it covers.
        let at = index.iter().position(|byte| b"MJ".contains(byte)).unwrap();
        let width = if index[at] == b'M' { 2 } else { 4 };
        [&index[..at], b"J", &end.to_le_bytes(), &index[at + 1 + width..]].concat()
    };
    for (objects, told, rest) in [(100, 100, None), (101, 101, Some(1)), (150, 101, Some(50))] {
        let disk = MemoryDisk::new();
        let index = index_without(&disk, objects);
        disk.put(&companion(".index"), index);
        let (checked, found) = try_check(&disk, false).unwrap();
        assert_eq!(checked.index, IndexVerdict::Differs);
        assert_eq!(found.len(), told, "{objects}");
        let last = &found.last().unwrap().what;
        let expected =
            rest.map(|rest| format!("{rest} more objects that the index file has elsewhere"));
        assert_eq!(last.contains("more objects"), rest.is_some(), "{last}");
        assert!(expected.is_none_or(|expected| *last == expected), "{last}");
    }
}

/// A pack that runs meanwhile.
#[test]
fn an_index_is_compared_with_the_file_that_it_lies_beside() {
    let [old, new] = [2_u64, 3].map(|objects| {
        let disk = MemoryDisk::new();
        let storage = open(disk.clone());
        for n in 0..objects {
            commit(&storage, stores(tid(n + 1), &[(n, b"data")])).unwrap();
        }
        storage.close().unwrap();
        disk
    });
    let disk = FaultyDisk::new(old.clone());
    let replaced = data_of(&new);
    let mut opened = 0;
    disk.after_each(move |operation, files| {
        opened += u32::from(operation == Operation::Open);
        // The index was opened, the file was not.
        if opened == 1 && operation == Operation::Open {
            files.put(data_file(), replaced.clone());
            files.put(&companion(".index"), new.bytes(&companion(".index")).unwrap());
        }
    });
    let (checked, found) = check_patiently(&disk, false, Duration::ZERO).unwrap();
    assert_eq!((checked.index, found), (IndexVerdict::Agrees, vec![]));
}

/// The file is another one each time that the check looks at it.
#[test]
fn an_index_of_a_file_that_is_replaced_again_and_again_is_not_compared() {
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    commit(&storage, stores(tid(1), &[(1, b"data")])).unwrap();
    storage.close().unwrap();
    drop(storage);
    let bytes = data_of(&disk);
    let disk = FaultyDisk::new(disk);
    disk.after_each(move |_, files| files.put(data_file(), bytes.clone()));
    let (checked, found) = check_patiently(&disk, false, Duration::ZERO).unwrap();
    assert_eq!((checked.index, found), (IndexVerdict::None, vec![]));
}

#[test]
fn references_that_lead_nowhere_and_data_that_are_no_pickles_are_found() {
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    // What an object referred to once does not count.
    commit(&storage, stores(tid(1), &[(0, &referring([77]))])).unwrap();
    let objects =
        [(0, &referring([1, 2, 3])[..]), (1, &referring([0])), (3, &referring([1, 4, 4]))];
    commit(&storage, stores(tid(2), &objects)).unwrap();
    commit(&storage, stores(tid(3), &[(5, b"\x80\x03not"), (6, b"N.N.")])).unwrap();
    let (_, found) = try_check(&disk, true).unwrap();
    let found: Vec<_> = found.iter().map(|d| (d.kind, d.oid.unwrap().0, d.what.as_str())).collect();
    let missing = |oid| {
        format!(
            "a reference from a persistent.mapping.PersistentMapping to object {oid:016x}, \
             which does not exist"
        )
    };
    assert_eq!(found.len(), 4, "{found:?}");
    assert_eq!(found[0], (DamageKind::Reference, 0, &missing(2)[..]));
    assert_eq!(found[1], (DamageKind::Reference, 3, &missing(4)[..]));
    assert_eq!((found[2].0, found[2].1), (DamageKind::Pickle, 5));
    assert_eq!(found[3], (DamageKind::Pickle, 6, "data that begin with no class"));
}

#[test]
fn compressed_data_are_told_once_and_are_no_damage() {
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    let (root, compressed) = (&referring([1, 7])[..], b".zx\x9c");
    commit(&storage, stores(tid(1), &[(0, root), (1, compressed), (2, compressed)])).unwrap();
    let (checked, found) = try_check(&disk, true).unwrap();
    let kinds: Vec<_> = found.iter().map(|damage| damage.kind).collect();
    assert_eq!(kinds, [DamageKind::Reference, DamageKind::Compressed]);
    assert_eq!((found[1].oid, checked.damages), (Some(Oid(1)), 1));
    assert!(found[1].what.contains("That is no damage"), "{}", found[1]);
}

#[test]
fn references_are_looked_for_without_pickles_and_pickles_without_references() {
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    commit(&storage, stores(tid(1), &[(0, &referring([7])), (1, b"N.N.")])).unwrap();
    let kinds = |references, pickles| {
        let (_, found) = check_with(&disk, &looking_for(references, pickles)).unwrap();
        found.into_iter().map(|damage| damage.kind).collect::<Vec<_>>()
    };
    assert_eq!(kinds(true, true), [DamageKind::Reference, DamageKind::Pickle]);
    assert_eq!(kinds(true, false), [DamageKind::Reference]);
    assert_eq!(kinds(false, true), [DamageKind::Pickle]);
    assert_eq!(kinds(false, false), []);
}

#[test]
fn deletion_that_two_undos_brought_back_counts() {
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    let change = |number, body| {
        commit(&storage, (tid(number), transaction(vec![NewRecord { oid: Oid(1), body }])))
            .unwrap();
        let (_, found) = try_check(&disk, true).unwrap();
        found.into_iter().map(|damage| damage.what).collect::<Vec<_>>()
    };
    commit(&storage, stores(tid(1), &[(0, &referring([1])), (1, &referring([]))])).unwrap();
    let missing = "a reference from a persistent.mapping.PersistentMapping to object \
                   0000000000000001, which is deleted";
    assert_eq!(change(2, NewBody::Deleted), [missing]);
    assert!(change(3, NewBody::SameAs(tid(1))).is_empty());
    assert_eq!(change(4, NewBody::SameAs(tid(2))), [missing]);
    // This pointer leads to the record of the deletion only through another pointer.
    assert_eq!(change(5, NewBody::SameAs(tid(4))), [missing]);
    assert!(change(6, NewBody::SameAs(tid(1))).is_empty());
}
