//! Merges two changed lists of entries with their common base.
//!
//! The rules are those of BTrees. A change by only one transaction is taken. A key changed by both
//! is a conflict, unless both change the value to the same one. Deleting the first key is a
//! conflict if the other transaction has further keys, because it may change the parent node.

use std::cmp::Ordering;
use std::iter::Peekable;
use std::vec::IntoIter;

use crate::Reason;
use crate::compare::compare;
use crate::entry::Entry;

/// An iterator over the entries of one state.
struct Cursor<'a> {
    entries: Peekable<IntoIter<Entry<'a>>>,
    taken: usize,
}

struct Merge<'a> {
    old: Cursor<'a>,
    committed: Cursor<'a>,
    new: Cursor<'a>,
    merged: Vec<Entry<'a>>,
}

/// One of the two transactions.
#[derive(Clone, Copy)]
enum Side {
    Committed,
    New,
}

pub(crate) fn merge<'a>(
    old: Vec<Entry<'a>>,
    committed: Vec<Entry<'a>>,
    new: Vec<Entry<'a>>,
) -> Result<Vec<Entry<'a>>, Reason> {
    let merged = Vec::with_capacity(committed.len().max(new.len()));
    let mut merge = Merge {
        old: Cursor::new(old),
        committed: Cursor::new(committed),
        new: Cursor::new(new),
        merged,
    };
    while merge.step()? {}
    Ok(merge.merged)
}

impl<'a> Merge<'a> {
    /// Merges the next entry or entries; returns `false` at the end.
    fn step(&mut self) -> Result<bool, Reason> {
        match (self.old.is_left(), self.committed.is_left(), self.new.is_left()) {
            (true, true, true) => self.step_all()?,
            (false, true, true) => self.insert_first()?,
            (true, true, false) => self.step_after_end_of(Side::New)?,
            (true, false, true) => self.step_after_end_of(Side::Committed)?,
            (true, false, false) => return contradiction("both deleted the last keys"),
            (false, true, false) => self.keep(Side::Committed),
            (false, false, true) => self.keep(Side::New),
            (false, false, false) => return Ok(false),
        }
        Ok(true)
    }

    fn step_all(&mut self) -> Result<(), Reason> {
        let by_committed = compare_keys(&mut self.old, &mut self.committed)?;
        let by_new = compare_keys(&mut self.old, &mut self.new)?;
        match (by_committed, by_new) {
            (Ordering::Equal, Ordering::Equal) => self.merge_values(),
            (Ordering::Equal, Ordering::Greater) => {
                self.keep(Side::New);
                Ok(())
            }
            (Ordering::Equal, Ordering::Less) => self.delete(Side::New),
            (Ordering::Greater, Ordering::Equal) => {
                self.keep(Side::Committed);
                Ok(())
            }
            (Ordering::Less, Ordering::Equal) => self.delete(Side::Committed),
            (by_committed, by_new) => self.step_apart(by_committed, by_new),
        }
    }

    /// Neither transaction has the old key next.
    fn step_apart(&mut self, by_committed: Ordering, by_new: Ordering) -> Result<(), Reason> {
        let between = compare_keys(&mut self.committed, &mut self.new)?;
        if between == Ordering::Equal {
            return contradiction("both inserted a key, or deleted the keys before it");
        }
        match (by_committed, by_new) {
            (Ordering::Greater, _) if between == Ordering::Less => self.keep(Side::Committed),
            (Ordering::Greater, _) | (_, Ordering::Greater) => self.keep(Side::New),
            _ => return contradiction("both deleted a key"),
        }
        Ok(())
    }

    /// All three have the key.
    fn merge_values(&mut self) -> Result<(), Reason> {
        if same_values(&mut self.old, &mut self.committed)? {
            self.keep(Side::New);
            self.committed.take();
        } else if same_values(&mut self.old, &mut self.new)? {
            self.keep(Side::Committed);
            self.new.take();
        } else {
            return contradiction("both changed a value");
        }
        self.old.take();
        Ok(())
    }

    /// One side lacks the old key: it is deleted, if the other side left it unchanged.
    fn delete(&mut self, by: Side) -> Result<(), Reason> {
        let (deleter, other) = match by {
            Side::Committed => (&mut self.committed, &mut self.new),
            Side::New => (&mut self.new, &mut self.committed),
        };
        if !same_values(&mut self.old, other)? {
            return contradiction("one deleted a key whose value the other changed");
        }
        if deleter.taken == 0 {
            return contradiction("one deleted the first key, which the tree may have to know");
        }
        self.old.take();
        other.take();
        Ok(())
    }

    /// No old entries are left: both sides insert.
    fn insert_first(&mut self) -> Result<(), Reason> {
        match compare_keys(&mut self.committed, &mut self.new)? {
            Ordering::Less => self.keep(Side::Committed),
            Ordering::Greater => self.keep(Side::New),
            Ordering::Equal => return contradiction("both inserted a key"),
        }
        Ok(())
    }

    /// One side has no more entries: it has deleted all remaining old ones.
    fn step_after_end_of(&mut self, ended: Side) -> Result<(), Reason> {
        let (rest, other) = match ended {
            Side::Committed => (&mut self.new, Side::New),
            Side::New => (&mut self.committed, Side::Committed),
        };
        match compare_keys(&mut self.old, rest)? {
            Ordering::Greater => self.keep(other),
            Ordering::Equal if same_values(&mut self.old, rest)? => {
                self.old.take();
                rest.take();
            }
            _ => return contradiction("one deleted a key that the other deleted or changed"),
        }
        Ok(())
    }

    /// Copies the next entry of a side to the result.
    fn keep(&mut self, side: Side) {
        let cursor = match side {
            Side::Committed => &mut self.committed,
            Side::New => &mut self.new,
        };
        self.merged.extend(cursor.take());
    }
}

impl<'a> Cursor<'a> {
    fn new(entries: Vec<Entry<'a>>) -> Cursor<'a> {
        Cursor { entries: entries.into_iter().peekable(), taken: 0 }
    }

    fn is_left(&mut self) -> bool {
        self.entries.peek().is_some()
    }

    fn take(&mut self) -> Option<Entry<'a>> {
        self.taken += 1;
        self.entries.next()
    }
}

fn compare_keys(one: &mut Cursor<'_>, other: &mut Cursor<'_>) -> Result<Ordering, Reason> {
    match (one.entries.peek(), other.entries.peek()) {
        (Some(one), Some(other)) => compare(&one.key, &other.key),
        _ => contradiction("a state has ended"),
    }
}

fn same_values(one: &mut Cursor<'_>, other: &mut Cursor<'_>) -> Result<bool, Reason> {
    match (one.entries.peek(), other.entries.peek()) {
        (Some(one), Some(other)) => Ok(compare(&one.value, &other.value)? == Ordering::Equal),
        _ => contradiction("a state has ended"),
    }
}

fn contradiction<T>(what: &'static str) -> Result<T, Reason> {
    Err(Reason::Contradiction(what))
}
