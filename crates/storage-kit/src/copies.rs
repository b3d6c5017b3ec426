//! Copies: whole transactions that bring their tids.

use std::ops::ControlFlow;

use zodium_storage::{Applier, LogItem};
use zodium_types::{Oid, Tid, TransactionStatus};

use crate::Tester;

/// A transaction as a cursor shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Whole {
    tid: Tid,
    status: TransactionStatus,
    user: Vec<u8>,
    records: Vec<(Oid, Option<Vec<u8>>, Option<Tid>)>,
}

fn whole(tid: u64, records: &[(u64, Option<&str>, Option<u64>)]) -> Whole {
    let record = |(oid, data, data_tid): &(u64, Option<&str>, Option<u64>)| {
        (Oid(*oid), data.map(|text| text.as_bytes().to_vec()), data_tid.map(Tid))
    };
    Whole {
        tid: Tid(tid),
        status: TransactionStatus::Normal,
        user: format!("user of {tid}").into_bytes(),
        records: records.iter().map(record).collect(),
    }
}

fn apply(applier: &mut Applier<'_>, transaction: &Whole) {
    let Whole { tid, status, user, records } = transaction;
    let (tid, status) = (*tid, *status);
    let (description, extension) = (b"", b"");
    applier.apply(LogItem::Transaction { tid, status, user, description, extension }).unwrap();
    for (oid, data, data_tid) in records {
        let (oid, data, data_tid) = (*oid, data.as_deref(), *data_tid);
        applier.apply(LogItem::Record { oid, data, data_tid }).unwrap();
    }
}

fn copy(tester: &Tester, transactions: &[Whole]) -> Tid {
    let mut applier = Applier::new(tester.storage.as_ref());
    transactions.iter().for_each(|transaction| apply(&mut applier, transaction));
    applier.finish().unwrap()
}

fn all(tester: &Tester) -> Vec<Whole> {
    let mut found: Vec<Whole> = Vec::new();
    let mut cursor = tester.storage.iterate(None, None).unwrap();
    let is_end = cursor.read(true, &mut |item| {
        match item {
            LogItem::Transaction { tid, status, user, .. } => {
                let (user, records) = (user.to_vec(), Vec::new());
                found.push(Whole { tid, status, user, records });
            }
            LogItem::Record { oid, data, data_tid } => {
                let record = (oid, data.map(<[u8]>::to_vec), data_tid);
                found.last_mut().unwrap().records.push(record);
            }
            LogItem::Skipped => panic!("a record was passed over"),
        }
        ControlFlow::Continue(())
    });
    assert!(is_end.unwrap());
    found
}

pub fn empty_copy_changes_nothing(tester: &Tester) {
    assert_eq!(copy(tester, &[]), Tid::ZERO);
    let tid = tester.store(1, "x");
    assert_eq!(copy(tester, &[]), tid);
}

pub fn applied_transactions_come_back_as_they_were(tester: &Tester) {
    let packed = Whole { status: TransactionStatus::Packed, ..whole(5, &[(1, Some("a"), None)]) };
    let transactions = [
        packed,
        whole(70, &[(1, Some("b"), None), (2, Some("c"), None)]),
        whole(71, &[]),
        whole(1 << 50, &[(2, None, None), (1 << 40, Some("d"), None)]),
    ];
    assert_eq!(copy(tester, &transactions), Tid(1 << 50));
    assert_eq!(all(tester), transactions);
    assert_eq!(tester.load(1, Tid(70)).unwrap().0, "a");
    assert_eq!(tester.current(1).unwrap(), "b");
    assert_eq!(tester.current(2), None);
}

pub fn many_revisions_of_one_object_are_applied_in_order(tester: &Tester) {
    let texts: Vec<String> = (0..300).map(|number| format!("revision {number}")).collect();
    let transactions: Vec<Whole> = (0..300)
        .map(|number| {
            let other = (number as u64 + 10, Some("other"), None);
            whole(1000 + number as u64, &[(1, Some(&texts[number]), None), other])
        })
        .collect();
    assert_eq!(copy(tester, &transactions), Tid(1299));
    assert_eq!(all(tester), transactions);
    assert_eq!(tester.current(1).unwrap(), "revision 299");
}

pub fn applied_back_pointer_is_one_where_its_record_is_there(tester: &Tester) {
    let transactions = [
        whole(10, &[(1, Some("a"), None)]),
        whole(20, &[(1, Some("b"), None)]),
        whole(30, &[(1, Some("a"), Some(10))]),
    ];
    copy(tester, &transactions);
    assert_eq!(all(tester), transactions);
    // One whose source was not copied.
    copy(tester, &[whole(40, &[(2, Some("c"), Some(15))])]);
    assert_eq!(all(tester)[3], whole(40, &[(2, Some("c"), None)]));
}

pub fn copy_goes_on_where_the_last_one_ended(tester: &Tester) {
    let transactions = [10, 20, 30, 40].map(|tid| whole(tid, &[(tid, Some("x"), None)]));
    assert_eq!(copy(tester, &transactions[..2]), Tid(20));
    assert_eq!(copy(tester, &transactions[2..]), Tid(40));
    assert_eq!(all(tester), transactions);
}

pub fn older_transaction_is_not_applied(tester: &Tester) {
    copy(tester, &[whole(10, &[(1, Some("x"), None)])]);
    for tid in [9, 10] {
        let mut applier = Applier::new(tester.storage.as_ref());
        let (tid, status) = (Tid(tid), TransactionStatus::Normal);
        let (user, description, extension) = (b"", b"", b"");
        let item = LogItem::Transaction { tid, status, user, description, extension };
        let error = applier.apply(item).unwrap_err();
        assert!(error.to_string().contains("not newer"), "{error}");
    }
    assert_eq!(all(tester).len(), 1);
}

pub fn unfinished_copy_leaves_nothing_prepared(tester: &Tester) {
    let mut applier = Applier::new(tester.storage.as_ref());
    apply(&mut applier, &whole(10, &[(1, Some("x"), None)]));
    apply(&mut applier, &whole(20, &[(2, Some("y"), None)]));
    drop(applier);
    assert_eq!(all(tester), []);
    let tid = tester.store(1, "z");
    assert_eq!(tester.load(1, Tid::MAX), Some(("z".to_owned(), tid, None)));
}
