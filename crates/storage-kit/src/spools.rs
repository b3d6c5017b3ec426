//! Transactions that are too large for memory.

use bytes::Bytes;
use zodium_storage::{NewBody, NewRecord};
use zodium_types::Oid;

use crate::Tester;

fn spooled(tester: &Tester, data: &[Bytes]) -> Vec<NewRecord> {
    let mut spool = tester.storage.new_spool().unwrap();
    let records = data.iter().zip(0..).map(|(data, oid)| {
        let body = NewBody::Spooled(spool.append(data).unwrap());
        NewRecord { oid: Oid(oid), body }
    });
    let records = records.collect();
    spool.flush().unwrap();
    records
}

fn stored(tester: &Tester, oid: u64) -> Bytes {
    let serial = tester.storage.current_serial(Oid(oid)).unwrap().unwrap();
    tester.storage.load_serial(Oid(oid), serial).unwrap().unwrap()
}

pub fn spooled_data_come_back(tester: &Tester) {
    tester.commit(spooled(tester, &[Bytes::from_static(b"spooled")]));
    assert_eq!(stored(tester, 0), "spooled");
}

pub fn many_spooled_records_of_one_transaction(tester: &Tester) {
    let data: Vec<Bytes> = (1..200_usize).map(|n| vec![n as u8; n * 37].into()).collect();
    tester.commit(spooled(tester, &data));
    for (oid, data) in (0..).zip(&data) {
        assert!(stored(tester, oid) == *data, "object {oid}");
    }
}

pub fn spooled_data_of_ten_megabytes(tester: &Tester) {
    let large: Bytes = (0..10 << 20).map(|n: u32| (n % 251) as u8).collect::<Vec<u8>>().into();
    tester.commit(spooled(tester, &[large.clone(), Bytes::from_static(b"small")]));
    assert!(stored(tester, 0) == large);
    assert_eq!(stored(tester, 1), "small");
}

pub fn spool_is_readable_before_the_commit(tester: &Tester) {
    let mut spool = tester.storage.new_spool().unwrap();
    let first = spool.append(&Bytes::from_static(b"first")).unwrap();
    let second = spool.append(&Bytes::from_static(b"the second")).unwrap();
    spool.flush().unwrap();
    assert_eq!((first.length(), second.length()), (5, 10));
    assert_eq!(second.read().unwrap(), "the second");
    assert_eq!(first.read().unwrap(), "first");
}
