//! Pages of the log: some transactions before or after a place, in a log that is read forwards.
//!
//! Key decision: a window before the place is read, which grows until it holds enough, and shrinks
//! where it holds too many. So the cost depends on the page, not on the log.

use std::ops::ControlFlow;

use zodium_storage::{LogItem, Read, StorageError, Transaction};
use zodium_tools::classes::class_of;
use zodium_types::{Oid, Tid};

use crate::words;

/// Transactions of a window that are read at most.
const WINDOW_MAX: usize = 2048;
/// The first window: a second.
const FIRST_WINDOW: u64 = (1 << 32) / 60;
/// Bytes of records that are read at most for the sizes of a page.
const SIZES_BYTES_MAX: u64 = 16 << 20;

/// Some transactions, the newest first.
#[derive(Debug, Default)]
pub(crate) struct LogPage {
    pub(crate) transactions: Vec<Transaction>,
    /// Whether there are older ones.
    pub(crate) has_older: bool,
}

/// The newest transactions before `before`, the newest first.
pub(crate) fn newest_before(
    storage: &dyn Read,
    before: Tid,
    count: usize,
) -> Result<LogPage, StorageError> {
    let (mut found, mut window) = (Vec::new(), FIRST_WINDOW);
    let mut end = before.0.checked_sub(1);
    while let Some(last) = end.filter(|_| found.len() <= count) {
        let first = last.saturating_sub(window);
        match read_window(storage, Tid(first), Tid(last))? {
            Some(mut transactions) => {
                transactions.reverse();
                found.append(&mut transactions);
                end = first.checked_sub(1);
                window = window.saturating_mul(8);
            }
            None => window /= 16,
        }
    }
    let has_older = found.len() > count;
    found.truncate(count);
    fill_sizes(storage, &mut found)?;
    Ok(LogPage { transactions: found, has_older })
}

/// The oldest transactions after `after`, the newest of them first.
pub(crate) fn oldest_after(
    storage: &dyn Read,
    after: Tid,
    last: Tid,
    count: usize,
) -> Result<LogPage, StorageError> {
    let mut found = Vec::new();
    if after < last {
        let mut cursor = storage.iterate(Some(after.next()), Some(last))?;
        while found.len() < count {
            let Some(transaction) = cursor.step()? else { break };
            found.push(transaction);
        }
    }
    found.reverse();
    fill_sizes(storage, &mut found)?;
    Ok(LogPage { transactions: found, has_older: true })
}

/// One transaction.
pub(crate) fn transaction(
    storage: &dyn Read,
    tid: Tid,
) -> Result<Option<Transaction>, StorageError> {
    storage.iterate(Some(tid), Some(tid))?.step()
}

/// All transactions of a window; `None` if there are too many.
fn read_window(
    storage: &dyn Read,
    first: Tid,
    last: Tid,
) -> Result<Option<Vec<Transaction>>, StorageError> {
    let mut cursor = storage.iterate(Some(first), Some(last))?;
    let mut found = Vec::new();
    while let Some(transaction) = cursor.step()? {
        // A window of one tid has one transaction.
        if found.len() >= WINDOW_MAX && first < last {
            return Ok(None);
        }
        found.push(transaction);
    }
    Ok(Some(found))
}

/// Counts the bytes of transactions where the storage does not know them: those of a server.
fn fill_sizes(storage: &dyn Read, newest_first: &mut [Transaction]) -> Result<(), StorageError> {
    let (Some(last), Some(first)) = (newest_first.first(), newest_first.last()) else {
        return Ok(());
    };
    if newest_first.iter().any(|transaction| transaction.length > 0) {
        return Ok(());
    }
    let mut cursor = storage.iterate(Some(first.tid), Some(last.tid))?;
    let (mut current, mut total) = (newest_first.len(), 0);
    loop {
        let is_over = cursor.read(true, &mut |item| {
            match item {
                LogItem::Transaction { .. } => current = current.saturating_sub(1),
                LogItem::Record { data, .. } => {
                    let bytes = data.map_or(0, <[u8]>::len) as u64;
                    total += bytes;
                    if let Some(transaction) = newest_first.get_mut(current) {
                        transaction.length += bytes;
                    }
                }
                LogItem::Skipped => {}
            }
            match total > SIZES_BYTES_MAX {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })?;
        if is_over {
            return Ok(());
        }
        if total > SIZES_BYTES_MAX {
            // That one was not read to its end.
            newest_first.iter_mut().take(current + 1).for_each(|unread| unread.length = 0);
            return Ok(());
        }
    }
}

/// A record of a transaction, without its data.
#[derive(Clone, Debug)]
pub(crate) struct RecordHead {
    pub(crate) oid: Oid,
    pub(crate) class: String,
    /// Bytes of data; `None` for a deletion.
    pub(crate) size: Option<u64>,
    /// The transaction whose data these are.
    pub(crate) data_tid: Option<Tid>,
}

/// Records `from..from + count` of a transaction, and whether there are more.
pub(crate) fn records(
    storage: &dyn Read,
    tid: Tid,
    from: usize,
    count: usize,
) -> Result<(Vec<RecordHead>, bool), StorageError> {
    let (mut found, mut place) = (Vec::new(), 0);
    let end = from.saturating_add(count);
    let mut cursor = storage.iterate(Some(tid), Some(tid))?;
    loop {
        let is_over = cursor.read(true, &mut |item| {
            if let LogItem::Record { oid, data, data_tid } = item {
                if place >= end {
                    place += 1;
                    return ControlFlow::Break(());
                }
                if place >= from {
                    let class = data.map(|data| words::name(&class_of(data)));
                    let size = data.map(|data| data.len() as u64);
                    let class = class.unwrap_or_default();
                    found.push(RecordHead { oid, class, size, data_tid });
                }
                place += 1;
            }
            ControlFlow::Continue(())
        })?;
        let has_more = place > end;
        if is_over || has_more {
            return Ok((found, has_more));
        }
    }
}

/// A storage with transactions of these tids, each with as many records as its place says.
#[cfg(test)]
pub(crate) fn test_storage(tids: &[u64]) -> zodium_memorystorage::MemoryStorage {
    use zodium_storage::Applier;
    use zodium_types::TransactionStatus;

    let storage = zodium_memorystorage::MemoryStorage::new();
    let mut applier = Applier::new(&storage);
    let (status, data) = (TransactionStatus::Normal, b"cm\nC\n.N.");
    for (place, tid) in tids.iter().enumerate() {
        let (user, description, extension) = (b"u", b"d", b"");
        let tid = Tid(*tid);
        let head = LogItem::Transaction { tid, status, user, description, extension };
        applier.apply(head).unwrap();
        for oid in 0..=place as u64 % 5 {
            let data = Some(&data[..]);
            applier.apply(LogItem::Record { oid: Oid(oid), data, data_tid: None }).unwrap();
        }
    }
    applier.finish().unwrap();
    storage
}

#[cfg(test)]
mod tests {
    use super::{test_storage as storage, *};

    fn tids(page: &LogPage) -> Vec<u64> {
        page.transactions.iter().map(|transaction| transaction.tid.0).collect()
    }

    /// Bursts and gaps of all lengths.
    fn uneven(count: usize) -> Vec<u64> {
        let (mut tid, mut random) = (1 << 40, 7_u64);
        (0..count)
            .map(|_| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                tid += 1 + (random >> 33 >> ((random >> 59) & 31)) * (random >> 60);
                tid
            })
            .collect()
    }

    #[test]
    fn pages_backwards_are_the_whole_log() {
        let all = uneven(3000);
        let storage = storage(&all);
        let (mut before, mut seen) = (Tid::MAX, Vec::new());
        loop {
            let page = newest_before(&storage, before, 50).unwrap();
            let found = tids(&page);
            before = Tid(*found.last().unwrap());
            seen.extend(found);
            assert_eq!(page.has_older, seen.len() < all.len());
            if !page.has_older {
                break;
            }
        }
        seen.reverse();
        assert_eq!(seen, all);
    }

    #[test]
    fn pages_forwards_are_the_whole_log_up_to_the_last() {
        let all = uneven(300);
        let storage = storage(&all);
        let (last, mut after, mut seen) = (Tid(all[249]), Tid::ZERO, Vec::new());
        while after < last {
            let page = oldest_after(&storage, after, last, 40).unwrap();
            after = page.transactions[0].tid;
            seen.extend(tids(&page).into_iter().rev());
        }
        assert_eq!(seen, all[..250]);
        assert!(oldest_after(&storage, last, last, 40).unwrap().transactions.is_empty());
    }

    #[test]
    fn a_burst_behind_a_long_gap_is_found() {
        let burst: Vec<u64> = (0..2 * WINDOW_MAX as u64).map(|tid| (1 << 40) + tid).collect();
        let storage = storage(&[burst.as_slice(), &[1 << 58]].concat());
        let page = newest_before(&storage, Tid::MAX, 3).unwrap();
        let last = burst[burst.len() - 1];
        assert_eq!(tids(&page), [1 << 58, last, last - 1]);
        assert!(newest_before(&storage, Tid(5), 3).unwrap().transactions.is_empty());
        assert!(newest_before(&storage, Tid::ZERO, 3).unwrap().transactions.is_empty());
    }

    #[test]
    fn records_come_in_pages() {
        let storage = storage(&[10, 20, 30, 40, 50]);
        let oids = |from, count| {
            let (heads, has_more) = records(&storage, Tid(50), from, count).unwrap();
            (heads.iter().map(|head| head.oid.0).collect::<Vec<_>>(), has_more)
        };
        assert_eq!(oids(0, 2), (vec![0, 1], true));
        assert_eq!(oids(2, 3), (vec![2, 3, 4], false));
        assert_eq!(oids(9, 3), (vec![], false));
        assert_eq!(oids(usize::MAX, 3), (vec![], false));
        let (heads, _) = records(&storage, Tid(10), 0, 9).unwrap();
        assert_eq!((heads.len(), heads[0].class.as_str(), heads[0].size), (1, "m.C", Some(8)));
    }
}
