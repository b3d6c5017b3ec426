//! The bytes of a data file, held against the example of the FileStorage format: an object
//! stored, stored again, undone, deleted, and a second object. Each transaction goes the way that
//! the engine takes, so what is compared is what a server writes.

use crate::support::{Undoing, commit, data_of, disk_of, open, undo_record};
use bytes::Bytes;
use zodium_disk::MemoryDisk;
use zodium_filestorage::FileStorage;
use zodium_storage::{NewBody, NewRecord, NewTransaction};
use zodium_types::{Oid, Tid, TransactionMetadata, TransactionStatus};

/// 429 bytes that ZODB 6.4 wrote, one item a line.
const EXAMPLE: &str = "
    46533330
    03f5945817777777 000000000000004a 20 0003 0002 0000 6a6f65 6869
        0000000000000001 03f5945817777777 0000000000000000 0000000000000004 0000
        0000000000000004 41414141
    000000000000004a
    03f594581bbbbbbb 000000000000004b 20 0003 0002 0000 6a6f65 6869
        0000000000000001 03f594581bbbbbbb 0000000000000020 0000000000000056 0000
        0000000000000005 4242424242
    000000000000004b
    03f5945820000000 000000000000005e 20 0000 0004 0011 756e646f
        80037d710058010000006b71014b01732e
        0000000000000001 03f5945820000000 0000000000000072 00000000000000a9 0000
        0000000000000000 0000000000000020
    000000000000005e
    03f5945824444444 000000000000004c 20 0000 0003 0000 64656c
        0000000000000001 03f5945824444444 00000000000000d5 000000000000010f 0000
        0000000000000000 0000000000000000
    000000000000004c
    03f5945828888888 0000000000000042 20 0000 0000 0000
        0000000000000002 03f5945828888888 0000000000000000 0000000000000163 0000
        0000000000000001 78
    0000000000000042";

/// The index file of the example, as ZODB 6.4 wrote it.
const INDEX: &str = "
    80034dad012e
    8003 4306 000000000000 4310 0001 0002 000000000129 00000000017a 862e
    80034e2e";

#[test]
fn an_empty_storage_is_four_bytes() {
    let disk = MemoryDisk::new();
    open(disk.clone());
    assert_eq!(data_of(&disk), b"FS30");
}

#[test]
fn the_example_is_written_byte_for_byte() {
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    write_example(&storage);
    assert_eq!(to_hex(&data_of(&disk)), to_hex(&example()));
    storage.close().unwrap();
    assert_eq!(
        to_hex(&disk.bytes(&crate::support::companion(".index")).unwrap()),
        to_hex(&hex(INDEX))
    );
}

#[test]
fn one_batch_gives_the_same_bytes_as_one_transaction_at_a_time() {
    let objects = [(1, b"first".as_slice()), (2, b"second")];
    let transactions =
        || objects.map(|(n, data)| crate::support::stores(crate::support::tid(n), &[(n, data)]));
    let (together, apart) = (MemoryDisk::new(), MemoryDisk::new());
    crate::support::commit_all(&open(together.clone()), transactions().into()).unwrap();
    let storage = open(apart.clone());
    for new in transactions() {
        commit(&storage, new).unwrap();
    }
    assert_eq!(data_of(&together), data_of(&apart));
}

#[test]
fn a_file_of_python_2_keeps_its_magic() {
    let mut bytes = example();
    bytes[..4].copy_from_slice(b"FS21");
    let disk = disk_of(&bytes);
    let storage = open(disk.clone());
    assert_eq!(storage.magic(), zodium_filestorage::Magic::Fs21);
    commit(&storage, crate::support::stores(Tid::MAX, &[(1, b"new")])).unwrap();
    assert_eq!(&data_of(&disk)[..4], b"FS21");
}

#[test]
fn file_whose_magic_was_torn_is_begun_again() {
    for length in 0..4 {
        let disk = disk_of(&b"FS30"[..length]);
        crate::support::open_read_only(disk.clone()).err().expect("a reader cannot begin a file");
        let storage = open(disk.clone());
        commit(&storage, crate::support::stores(crate::support::tid(1), &[(1, b"first")])).unwrap();
        assert_eq!(&data_of(&disk)[..4], b"FS30");
    }
}

#[test]
fn what_is_no_data_file_is_refused_and_left_alone() {
    for bytes in [b"FS2".as_slice(), b"fs2 ", b"FS31", b"\0\0\0\0", b"PK\x03\x04 and so on"] {
        let disk = disk_of(bytes);
        let refused = crate::support::try_open(disk.clone(), 0);
        assert!(
            matches!(refused, Err(zodium_filestorage::FileStorageError::NotFileStorage { .. })),
            "{bytes:?}"
        );
        assert_eq!(data_of(&disk), bytes);
    }
}

fn write_example(storage: &FileStorage) {
    let store = |oid, data: &'static str| NewRecord {
        oid: Oid(oid),
        body: NewBody::Data(Bytes::from_static(data.as_bytes())),
    };
    let commit = |tid, user: &str, description: &str, extension: Vec<u8>, records| {
        let (user, description) = (user.into(), description.into());
        let metadata = TransactionMetadata { user, description, extension };
        let (tid, status) = (Tid(tid), TransactionStatus::Normal);
        commit(storage, (tid, NewTransaction { status, metadata, records })).unwrap();
    };
    commit(0x03f5_9458_1777_7777, "joe", "hi", vec![], vec![store(1, "AAAA")]);
    commit(0x03f5_9458_1bbb_bbbb, "joe", "hi", vec![], vec![store(1, "BBBBB")]);

    let undone = storage.reader().records_to_undo(Tid(0x03f5_9458_1bbb_bbbb)).unwrap();
    let mut undoing = Undoing::default();
    let undone = undone.into_iter().map(|record| {
        let body = undo_record(storage, Tid(0x03f5_9458_1bbb_bbbb), record, &mut undoing).unwrap();
        NewRecord { oid: record.oid, body: body.expect("it is current") }
    });
    let extension = hex("80037d710058010000006b71014b01732e");
    commit(0x03f5_9458_2000_0000, "", "undo", extension, undone.collect());

    let deleted = vec![NewRecord { oid: Oid(1), body: NewBody::Deleted }];
    commit(0x03f5_9458_2444_4444, "", "del", vec![], deleted);
    commit(0x03f5_9458_2888_8888, "", "", vec![], vec![store(2, "x")]);
}

fn example() -> Vec<u8> {
    let bytes = hex(EXAMPLE);
    assert_eq!(bytes.len(), 429);
    bytes
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let pairs = digits.chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
    pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

/// One line for each 16 bytes, so that a difference can be seen.
fn to_hex(bytes: &[u8]) -> Vec<String> {
    let line = |chunk: &[u8]| chunk.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.chunks(16).map(line).collect()
}
