//! Tests of the pieces that a walk gives: where each begins, and what it says of the damage.

use super::*;
use crate::format::{Crafted, Holds, Watched};

const HEADER: u64 = TRANSACTION_HEADER_BYTES as u64;
const RECORD: u64 = DATA_HEADER_BYTES as u64;

fn pieces(data: &Crafted) -> Vec<Piece> {
    let mut walk = Walk::new(Crafted::path(), &data.file(), data.end());
    std::iter::from_fn(|| walk.step()).collect()
}

/// All damage: its kind, its position, and what it says.
fn damage(data: &Crafted) -> Vec<(DamageKind, u64, String)> {
    let all = pieces(data).into_iter().flat_map(|piece| piece.damage);
    all.map(|damage| (damage.kind, damage.position, damage.what)).collect()
}

/// The only damage.
fn only_damage(data: &Crafted) -> (DamageKind, u64, String) {
    let found = damage(data);
    let [one] = &found[..] else { panic!("{found:?}") };
    one.clone()
}

#[test]
fn transaction_with_bytes_that_cannot_be_read_is_not_whole_and_the_others_are() {
    let mut data = Crafted::new();
    let starts = [1, 2, 3, 4, 5].map(|n| data.add(n, &[(n, &[b'x'; 10_000])]));
    // In the middle of the third's data.
    let file: Arc<dyn DiskFile> = Watched::of(&data.bytes, Some(starts[2] + 5_000));
    let mut walk = Walk::new(Crafted::path(), &file, data.end());
    let mut whole = Vec::new();
    while let Some(piece) = walk.step() {
        whole.push(piece.is_whole());
    }
    assert_eq!(whole, [true, true, false, true, true]);
}

#[test]
fn whole_transactions_are_pieces_with_their_records() {
    let (data, [first, second, third]) = Crafted::three();
    let found = pieces(&data);
    assert!(found.iter().all(|piece| piece.is_whole() && piece.damage.is_empty()));
    let places: Vec<_> = found.iter().map(|piece| (piece.start, piece.end)).collect();
    assert_eq!(places, [(first, second), (second, third), (third, data.end())]);
    let tids: Vec<_> = found.iter().map(|piece| piece.tid.unwrap().0).collect();
    assert_eq!(tids, [1, 2, 3]);
    let records = found[1].records.iter().map(|it| (it.entry.position, it.back));
    let two = second + HEADER + RECORD + 6;
    assert_eq!(records.collect::<Vec<_>>(), [(second + HEADER, None), (two, None)]);
    let walk = |position| {
        let mut walk = Walk::starting_at(Crafted::path(), &data.file(), data.end(), position);
        walk.step().map(|piece| piece.start)
    };
    assert_eq!([second, data.end(), data.end() + 9].map(walk), [Some(second), None, None]);
}

#[test]
fn what_a_vote_leaves_at_the_end_is_a_tail_and_elsewhere_a_damaged_transaction() {
    let (data, [_, second, third]) = Crafted::three();
    let with = |position| {
        let mut changed = data.clone();
        changed.put(position + 16, &[STATUS_CHECKPOINT]);
        changed
    };
    let length = data.end() - third;
    let what = format!(
        "an unfinished tail of {length} bytes: a transaction that was voted and not finished"
    );
    assert_eq!(only_damage(&with(third)), (DamageKind::Tail, third, what));
    assert!(pieces(&with(third))[2].transaction.is_none());
    let (kind, position, what) = only_damage(&with(second));
    assert_eq!((kind, position), (DamageKind::Transaction, second));
    assert!(what.contains("status 'c'"), "{what}");
    assert_eq!(pieces(&with(second))[1].records.len(), 2);
}

#[test]
fn the_reason_of_a_gap_is_told_with_its_length() {
    let (data, [_, second, third]) = Crafted::three();
    let bytes = third - second;
    let length = bytes - POINTER_BYTES;
    for (number, reason) in [
        (length + 1, "a transaction whose two lengths differ"),
        (HEADER, "a transaction whose two lengths differ"),
        (HEADER - 1, "a transaction of 22 bytes"),
        (data.end() - second - POINTER_BYTES, "a transaction whose two lengths differ"),
        (
            data.end() - second - POINTER_BYTES + 1,
            "a transaction that reaches past the end of the file",
        ),
        (u64::MAX, "a transaction that reaches past the end of the file"),
    ] {
        // The last length is no copy of this one.
        let changed = data.with_number(second + 8, number);
        let what = format!("{reason}; {bytes} bytes up to the next whole transaction");
        let expected = (DamageKind::Transaction, second, what);
        assert_eq!(only_damage(&changed), expected, "{number}");
        let gap = &pieces(&changed)[1];
        assert_eq!((gap.start, gap.end), (second, third));
    }
    let mut cut = data.clone();
    cut.bytes.truncate((third + HEADER - 1) as usize);
    let what = "an unfinished tail of 22 bytes: the file ends within a transaction header";
    assert_eq!(only_damage(&cut), (DamageKind::Tail, third, what.to_owned()));
    // Written to its end, but for a bit of its second length.
    let copy = data.end() - POINTER_BYTES;
    let last = data.with_number(copy, (copy - third) ^ 1);
    assert_eq!(only_damage(&last).0, DamageKind::Transaction);
}

#[test]
fn a_gap_before_a_transaction_is_no_tail_whatever_the_tid_of_that() {
    let mut data = Crafted::new();
    data.add(9, &[(1, b"data")]);
    let gap = data.end();
    data.append(&[0xff; 100]);
    data.add(5, &[(1, b"earlier")]);
    let found = damage(&data);
    assert_eq!((found[0].0, found[0].1), (DamageKind::Transaction, gap));
}

#[test]
fn a_gap_that_cannot_be_read_says_so() {
    let (data, [_, second, third]) = Crafted::three();
    let mut long = Crafted { bytes: data.bytes[..third as usize].to_vec() };
    let gap = long.end();
    long.append(&[0xff; 9_000]);
    let next = long.add(3, &[(3, b"third")]);
    let file: Arc<dyn DiskFile> = Watched::of(&long.bytes, Some(gap + 5_000));
    let mut walk = Walk::starting_at(Crafted::path(), &file, long.end(), second);
    let found: Vec<_> = std::iter::from_fn(|| walk.step()).collect();
    assert_eq!((found[1].start, found[1].end), (gap, next));
    assert_eq!(found[1].damage[0].what, "9000 bytes of which some cannot be read");
}

#[test]
fn the_tid_of_a_gap_is_that_of_its_header_if_it_lies_between_those_around() {
    let of_gap = |tid, next: Option<u64>| {
        let mut data = Crafted::new();
        data.add(5, &[(1, b"before")]);
        let start = data.add(tid, &[(1, b"damaged")]);
        data.put_number(data.end() - POINTER_BYTES, 3);
        if let Some(next) = next {
            data.add(next, &[(1, b"behind")]);
        }
        let gap = pieces(&data).into_iter().find(|piece| piece.start == start).unwrap();
        assert!(gap.transaction.is_none());
        gap.tid.map(|tid| tid.0)
    };
    for (tid, next, expected) in [
        (7, Some(9), Some(7)),
        (5, Some(9), None),
        (4, Some(9), None),
        (9, Some(9), None),
        (10, Some(9), None),
        (7, None, Some(7)),
        (5, None, None),
    ] {
        assert_eq!(of_gap(tid, next), expected, "{tid} before {next:?}");
    }
}

#[test]
fn a_transaction_whose_description_is_too_long_still_has_its_records() {
    let (data, [_, second, third]) = Crafted::three();
    let mut changed = data.clone();
    // The high byte of the description's length.
    changed.put(second + 19, &[1]);
    let what = "user, description and extension longer than their transaction".to_owned();
    assert_eq!(only_damage(&changed), (DamageKind::Transaction, second, what));
    let piece = &pieces(&changed)[1];
    assert_eq!((piece.end, piece.records.len()), (third, 2));
    // So has one without records, of which both lengths say the same.
    let mut empty = Crafted::new();
    let start = empty.add(1, &[]);
    empty.add(2, &[(1, b"data")]);
    assert_eq!(damage(&empty), []);
    empty.put(start + 20, &[1]);
    assert_eq!(only_damage(&empty).0, DamageKind::Transaction);
    assert!(pieces(&empty)[0].transaction.is_some());
    empty.put_number(start + HEADER, 24);
    let (_, _, what) = only_damage(&empty);
    assert!(what.starts_with("a transaction of 23 bytes; 31 bytes"), "{what}");
    // One of 22 bytes is none, though its lengths agree.
    let mut short = data.with_number(second + 8, HEADER - 1);
    short.put_number(second + HEADER - 1, HEADER - 1);
    let found = damage(&short);
    assert!(found[0].2.starts_with("a transaction of 22 bytes"), "{found:?}");
}

#[test]
fn each_wrong_field_of_a_record_is_told() {
    let (data, [_, second, third]) = Crafted::three();
    let one = second + HEADER;
    // Bytes of data up to the end of the transaction.
    let all = third - POINTER_BYTES - one - RECORD;
    let field = DamageKind::RecordField;
    for (at, number, kind, what) in [
        (one + 8, 7, field, "a record with the tid 0000000000000007"),
        (one + 24, 9, field, "a record of a transaction at 9"),
        (one + 16, one, DamageKind::Previous, "which is not before it"),
        (one + 34, all + 1, DamageKind::Record, "reaches past its transaction"),
    ] {
        let changed = data.with_number(at, number);
        let piece = &pieces(&changed)[1];
        let [damage] = &piece.damage[..] else { panic!("{:?}", piece.damage) };
        assert_eq!((damage.kind, damage.position), (kind, one), "{what}");
        assert!(damage.what.contains(what), "{}", damage.what);
        assert_eq!(damage.oid, Some(zodium_types::Oid(1)), "{what}");
        // A record without a plausible length is not there; the one behind it is.
        let records = piece.records.len();
        assert_eq!(records, if kind == DamageKind::Record { 1 } else { 2 });
    }
    assert_eq!(damage(&data.with_number(one + 16, one - 1)), []);
    let swallowed = data.with_number(one + 34, all);
    assert_eq!((damage(&swallowed), pieces(&swallowed)[1].records.len()), (vec![], 1));
    let both = data.with_number(one + 8, 7).with_number(one + 24, 9);
    let piece = &pieces(&both)[1];
    assert_eq!((piece.damage[0].kind, piece.damage[0].oid), (DamageKind::Record, None));
    assert_eq!(piece.records.len(), 1);
    let mut version = data.clone();
    version.put(one + 33, &[1]);
    assert!(only_damage(&version).2.contains("version"));
    // One byte less than a header is left.
    let short = data.with_number(one + 34, all - (RECORD - 1));
    assert!(only_damage(&short).2.contains("ends inside a record"));
}

#[test]
fn a_back_pointer_leads_to_an_earlier_position() {
    let mut data = Crafted::new();
    let first = data.add(1, &[(1, b"data")]) + HEADER;
    let start = data.add_holding(2, &[(1, Holds::Back(first)), (2, Holds::Back(0))]);
    let record = start + HEADER;
    let backs: Vec<_> = pieces(&data)[1].records.iter().map(|record| record.back).collect();
    assert_eq!(backs, [Some(first), Some(0)]);
    for (back, sound) in [(record - 1, true), (record, false), (record + 1, false)] {
        let found = damage(&data.with_number(record + RECORD, back));
        assert_eq!(found.is_empty(), sound, "{back}");
        assert!(found.iter().all(|damage| damage.0 == DamageKind::BackPointer));
    }
}

/// The tid and the kinds of damage of a transaction with this tid whose records have other tids,
/// between two others.
fn judged(before: u64, tid: u64, records: &[u64], next: u64) -> (u64, Vec<DamageKind>) {
    let mut data = Crafted::new();
    data.add(before, &[(1, b"before")]);
    let contents: Vec<(u64, &[u8])> = records.iter().map(|_| (1, &b"data"[..])).collect();
    let start = data.add(tid, &contents);
    for (number, tid) in (0..).zip(records) {
        data.put_number(start + HEADER + number * (RECORD + 4) + 8, *tid);
    }
    data.add(next, &[(1, b"behind")]);
    let piece = &pieces(&data)[1];
    let mut kinds: Vec<_> = piece.damage.iter().map(|damage| damage.kind).collect();
    kinds.sort_unstable();
    (piece.tid.unwrap().0, kinds)
}

#[test]
fn the_tid_of_a_transaction_is_the_one_that_fits() {
    let (tid, field, transaction) =
        (DamageKind::Tid, DamageKind::RecordField, DamageKind::Transaction);
    for (case, expected) in [
        ((1, 5, &[5, 5][..], 9), (5, vec![])),
        // Two records are more than one header, and one record is not.
        ((1, 6, &[5, 5], 9), (5, vec![tid])),
        ((1, 6, &[5], 9), (6, vec![field])),
        ((1, 6, &[5, 6], 9), (6, vec![field])),
        ((1, 6, &[5, 7], 9), (6, vec![field, field])),
        // A header that does not fit what is around it is wrong.
        ((1, 20, &[5], 9), (5, vec![tid])),
        ((1, 9, &[5], 9), (5, vec![tid])),
        ((3, 2, &[5], 9), (5, vec![tid])),
        ((3, 3, &[5], 9), (5, vec![tid])),
        // Not later than the one before.
        ((5, 5, &[5], 9), (5, vec![tid])),
        ((5, 4, &[4], 9), (4, vec![tid])),
        ((5, 6, &[6], 9), (6, vec![])),
        // Records confirm a tid that is not before the next.
        ((5, 9, &[9], 9), (9, vec![])),
        // Nothing confirms one without records.
        ((5, 7, &[], 9), (7, vec![])),
        ((5, 9, &[], 9), (9, vec![transaction])),
        ((5, 10, &[], 9), (10, vec![transaction])),
        ((5, 5, &[], 9), (5, vec![tid])),
        // What is not later than the last says nothing of what is between.
        ((5, 7, &[], 5), (7, vec![])),
        ((5, 7, &[], 4), (7, vec![])),
        ((5, 7, &[], 6), (7, vec![transaction])),
    ] {
        let (before, header, records, next) = case;
        assert_eq!(judged(before, header, records, next), expected, "{case:?}");
    }
}

#[test]
fn what_else_is_wrong_is_told_beside_the_tid() {
    let (data, [_, second, _]) = Crafted::three();
    let one = second + HEADER;
    let changed = data.with_number(second, 9).with_number(one + 16, one);
    // The third transaction has the tid 3, so that of the header does not fit.
    let mut kinds: Vec<_> = damage(&changed).into_iter().map(|damage| damage.0).collect();
    kinds.sort_unstable();
    assert_eq!(kinds, [DamageKind::Tid, DamageKind::Previous]);
    // Tids are compared with that of the last transaction that is whole.
    assert_eq!(pieces(&changed)[1].tid, Some(Tid(2)));
    assert!(pieces(&changed).iter().all(Piece::is_whole));
}

#[test]
fn a_transaction_without_records_at_the_end_needs_no_later_one() {
    let mut data = Crafted::new();
    data.add(5, &[(1, b"data")]);
    data.add(7, &[]);
    assert_eq!(damage(&data), []);
    // What follows is no transaction.
    let mut garbage = data.clone();
    garbage.append(&[0; 100]);
    assert_eq!(damage(&garbage).len(), 1);
    garbage.put_number(data.end(), 6);
    assert_eq!(damage(&garbage).len(), 1);
}
