//! What a storage needs to know about a data record: its class and its references.
//!
//! A record is two pickles, class metadata and state (`ZODB/serialize.py` describes both), with a
//! common memo: the state may use the metadata's memo. The class is decoded as data. References are
//! found by running the pickle machine on items that keep only what a reference can consist of,
//! since a pack does this for every record. An item takes 8 bytes, so that a scan takes no more
//! memory than one by Python's pickle.

use std::borrow::Cow;
use std::{fmt, iter};

use zodium_types::Oid;

use crate::memo::Memo;
use crate::operation::{Operation, Reader};
use crate::{Limits, PickleError, Value, decode, is_compressed};

/// More stack items, or marks, than any real record needs: half a GiB.
const STACK_LENGTH_MAX: usize = 1 << 26;

/// Sequences that nothing leads to are first sought when there are so many.
const SEQUENCES_SPARE: usize = 1024;

/// The class of a record's object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassName<'a> {
    /// The dotted module.
    pub module: Cow<'a, str>,
    /// The name within the module.
    pub name: Cow<'a, str>,
}

impl fmt::Display for ClassName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.module, self.name)
    }
}

/// A reference to another object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reference<'a> {
    /// Keeps the object alive.
    Strong(Oid),
    /// Does not keep the object alive.
    Weak(Oid),
    /// Refers to an object of another database, so to no object of this one.
    CrossDatabase {
        /// The name of the other database.
        database: &'a str,
        /// The object in it.
        oid: Oid,
        /// Whether the reference is a weak one.
        weak: bool,
    },
}

/// Returns the class named by a data record's first pickle; `None` if it names none.
///
/// The three forms are the class itself, `(class, arguments)`, and the old
/// `((module, name), arguments)`.
pub fn class_of_record(data: &[u8]) -> Option<ClassName<'_>> {
    let (metadata, _) = decode(data, &Limits::OBJECTS).ok()?;
    let class = match metadata {
        Value::Tuple(parts) => parts.into_iter().next()?,
        class => class,
    };
    match class {
        Value::Global(global) => {
            let (module, name) = global.into_parts();
            Some(ClassName { module, name })
        }
        Value::Tuple(names) => match <[Value<'_>; 2]>::try_from(names).ok()? {
            [module, name] => {
                Some(ClassName { module: into_text(module)?, name: into_text(name)? })
            }
        },
        _ => None,
    }
}

fn into_text(value: Value<'_>) -> Option<Cow<'_, str>> {
    match value {
        Value::Str(text) => Some(text),
        Value::Bytes(Cow::Borrowed(bytes)) => std::str::from_utf8(bytes).ok().map(Cow::Borrowed),
        Value::Bytes(Cow::Owned(bytes)) => String::from_utf8(bytes).ok().map(Cow::Owned),
        _ => None,
    }
}

/// Calls `found` for each reference in a data record, in order, including repeated ones.
///
/// Fails for a record that is damaged or has a reference of an unknown form. The references of such
/// a record are unknown, so no object may be taken for garbage.
pub fn references_of_record<'a>(
    data: &'a [u8],
    found: &mut impl FnMut(Reference<'a>),
) -> Result<(), PickleError> {
    if is_compressed(data) {
        return Err(PickleError::Compressed);
    }
    let mut scanner = Scanner::new(data);
    scanner.run(found)?;
    scanner.run(found)
}

/// Whether `data` are exactly the two complete pickles of a record.
#[must_use]
pub fn is_whole_record(data: &[u8]) -> bool {
    let mut scanner = Scanner::new(data);
    let mut run = || scanner.run(&mut |_| {}).is_ok();
    run() && run() && scanner.reader.position() == data.len()
}

/// Whether `data` are exactly one complete pickle, of whatever values.
#[must_use]
pub fn is_whole_pickle(data: &[u8]) -> bool {
    let mut scanner = Scanner::new(data);
    scanner.run(&mut |_| {}).is_ok() && scanner.reader.position() == data.len()
}

/// What the scanner keeps of a value.
#[derive(Clone, Copy, Debug)]
enum Item {
    /// A value that is no part of a reference.
    Opaque,
    /// Bytes or text: their place in the record.
    Text { start: u32, length: u16 },
    /// A list or tuple: an index of [`Scanner::sequences`].
    Sequence(u32),
}

const _: () = assert!(size_of::<Option<Item>>() == 8);

/// The first items of a list or tuple; no reference has more than three.
#[derive(Clone, Copy, Debug)]
struct Sequence {
    is_list: bool,
    /// Four stands for all greater lengths.
    length: u8,
    head: [Item; 3],
}

impl Sequence {
    fn new(is_list: bool) -> Sequence {
        Sequence { is_list, length: 0, head: [Item::Opaque; 3] }
    }

    fn extend(&mut self, items: &[Item]) {
        for (slot, item) in self.head.iter_mut().skip(self.length.into()).zip(items) {
            *slot = *item;
        }
        self.length = (usize::from(self.length) + items.len()).min(4) as u8;
    }

    fn items(&self) -> Option<&[Item]> {
        self.head.get(..self.length.into())
    }

    /// Whether it can become a reference: its first or second item is an oid, or it is a list that
    /// may still get one.
    fn is_referable(&self) -> bool {
        let [first, second, _] = self.head;
        let is_oid = |item: &Item| matches!(item, Item::Text { length: 8, .. });
        let has_oid = [first, second].iter().any(is_oid);
        let is_kind = matches!(first, Item::Text { length: 1, .. });
        has_oid && self.length <= 3 || self.is_list && (is_kind || self.length == 0)
    }
}

struct Scanner<'a> {
    record: &'a [u8],
    reader: Reader<'a>,
    stack: Vec<Item>,
    marks: Vec<usize>,
    memo: Memo<Item>,
    sequences: Vec<Sequence>,
    /// Indexes of sequences that nothing leads to.
    free_sequences: Vec<u32>,
    /// How many sequences there may be before free ones are sought.
    sequences_allowed: usize,
}

impl<'a> Scanner<'a> {
    fn new(record: &'a [u8]) -> Scanner<'a> {
        Scanner {
            record,
            reader: Reader::new(record),
            stack: Vec::with_capacity(32),
            marks: Vec::with_capacity(8),
            memo: Memo::with_capacity(32),
            sequences: Vec::with_capacity(16),
            free_sequences: Vec::new(),
            sequences_allowed: SEQUENCES_SPARE,
        }
    }

    /// Scans one pickle, up to its STOP.
    fn run(&mut self, found: &mut impl FnMut(Reference<'a>)) -> Result<(), PickleError> {
        loop {
            match self.reader.next()? {
                Operation::Stop => {
                    self.pop(1)?;
                    self.stack.clear();
                    self.marks.clear();
                    return Ok(());
                }
                Operation::Persistent => {
                    let id = self.top()?;
                    found(self.reference(id)?);
                    self.replace(1, Item::Opaque)?;
                }
                Operation::PersistentLine(line) => {
                    found(self.reference(self.text(line, 1))?);
                    self.push(Item::Opaque)?;
                }
                operation => self.step(operation)?,
            }
        }
    }

    #[inline(always)]
    fn step(&mut self, operation: Operation<'a>) -> Result<(), PickleError> {
        match operation {
            Operation::Mark => self.mark(),
            Operation::Put(number) => {
                let item = self.top()?;
                self.memo.put(number, item);
                Ok(())
            }
            Operation::Memoize => {
                let item = self.top()?;
                self.memo.push(item);
                Ok(())
            }
            Operation::Fetch(number) => match self.memo.fetch(number) {
                Some(item) => self.push(item),
                None => Err(self.reader.malformed("nothing is memoized under this number")),
            },
            Operation::Bytes(text) | Operation::Text(text) => self.push(self.text(text, 0)),
            Operation::QuotedBytes(literal) => self.push(self.unescaped(literal)),
            Operation::EscapedText(text) if !text.contains(&b'\\') => self.push(self.text(text, 1)),
            Operation::Tuple(count) => {
                let start = self.stack.len().saturating_sub(count);
                self.push_sequence(false, start, count)
            }
            Operation::TupleFromMark => {
                let (start, count) = self.close_mark()?;
                self.push_sequence(false, start, count)
            }
            Operation::ListFromMark => {
                let (start, count) = self.close_mark()?;
                self.push_sequence(true, start, count)
            }
            Operation::EmptyList => self.push_sequence(true, self.stack.len(), 0),
            Operation::Append => self.append(self.stack.len().saturating_sub(1), 1),
            Operation::Appends => {
                let (start, count) = self.close_mark()?;
                self.append(start, count)
            }
            _ => self.step_opaque(operation),
        }
    }

    /// Operations of which only the effect on the stack's height matters.
    #[inline(always)]
    fn step_opaque(&mut self, operation: Operation<'a>) -> Result<(), PickleError> {
        match operation {
            Operation::Nothing => Ok(()),
            Operation::Pop => self.discard(),
            Operation::PopMark | Operation::SetItems | Operation::AddItems => {
                let (_, count) = self.close_mark()?;
                self.pop(count)
            }
            Operation::Duplicate => self.top().and_then(|item| self.push(item)),
            Operation::SetItem => self.pop(2),
            Operation::Build => self.pop(1),
            Operation::Reduce | Operation::New | Operation::StackGlobal => {
                self.replace(2, Item::Opaque)
            }
            Operation::NewWithKeywords => self.replace(3, Item::Opaque),
            Operation::DictFromMark
            | Operation::FrozenSetFromMark
            | Operation::Instance { .. }
            | Operation::InstanceFromMark => {
                let (_, count) = self.close_mark()?;
                self.replace(count, Item::Opaque)
            }
            _ => self.push(Item::Opaque),
        }
    }

    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn push(&mut self, item: Item) -> Result<(), PickleError> {
        if self.stack.len() >= STACK_LENGTH_MAX {
            return Err(PickleError::TooManyNodes { limit: STACK_LENGTH_MAX });
        }
        self.stack.push(item);
        Ok(())
    }

    fn pop(&mut self, count: usize) -> Result<(), PickleError> {
        match self.stack.len().checked_sub(count) {
            Some(height) if height >= self.floor() => {
                self.stack.truncate(height);
                Ok(())
            }
            _ => Err(self.reader.malformed("the stack has too few items")),
        }
    }

    fn replace(&mut self, count: usize, item: Item) -> Result<(), PickleError> {
        self.pop(count)?;
        self.push(item)
    }

    fn top(&self) -> Result<Item, PickleError> {
        match self.stack.last() {
            Some(item) if self.stack.len() > self.floor() => Ok(*item),
            _ => Err(self.reader.malformed("the stack has too few items")),
        }
    }

    fn mark(&mut self) -> Result<(), PickleError> {
        if self.marks.len() >= STACK_LENGTH_MAX {
            return Err(PickleError::TooDeep { limit: STACK_LENGTH_MAX });
        }
        self.marks.push(self.stack.len());
        Ok(())
    }

    /// Removes the last mark; returns its height and the number of items above it.
    fn close_mark(&mut self) -> Result<(usize, usize), PickleError> {
        match self.marks.pop() {
            Some(start) => Ok((start, self.stack.len().saturating_sub(start))),
            None => Err(self.reader.malformed("there is no mark")),
        }
    }

    fn discard(&mut self) -> Result<(), PickleError> {
        if self.marks.last() == Some(&self.stack.len()) {
            self.marks.pop();
            return Ok(());
        }
        self.pop(1)
    }

    /// Replaces the topmost `count` items, which begin at `start`, by a sequence of them.
    fn push_sequence(
        &mut self,
        is_list: bool,
        start: usize,
        count: usize,
    ) -> Result<(), PickleError> {
        let mut sequence = Sequence::new(is_list);
        sequence.extend(self.stack.get(start..).unwrap_or_default());
        let item = if sequence.is_referable() { self.keep(sequence) } else { Item::Opaque };
        self.replace(count, item)
    }

    /// Keeps a sequence; returns the item that stands for it.
    fn keep(&mut self, sequence: Sequence) -> Item {
        if self.sequences.len() >= self.sequences_allowed && self.free_sequences.is_empty() {
            self.find_free_sequences();
        }
        if let Some(number) = self.free_sequences.pop() {
            self.sequences[number as usize] = sequence;
            return Item::Sequence(number);
        }
        // The stack and the memo lead to fewer than this.
        let Ok(number) = u32::try_from(self.sequences.len()) else { return Item::Opaque };
        self.sequences.push(sequence);
        Item::Sequence(number)
    }

    /// Finds the sequences that no item leads to any more. What is within a sequence within a
    /// sequence does not count: no reference goes so deep.
    #[cold]
    fn find_free_sequences(&mut self) {
        let mut is_used = vec![false; self.sequences.len()];
        for item in self.stack.iter().chain(self.memo.items()) {
            let Item::Sequence(number) = item else { continue };
            let head = self.sequences.get(*number as usize).map(|sequence| &sequence.head);
            for item in iter::once(item).chain(head.into_iter().flatten()) {
                if let Item::Sequence(number) = item {
                    is_used[*number as usize] = true;
                }
            }
        }
        let free = (0..).zip(&is_used).filter(|(_, is_used)| !**is_used);
        self.free_sequences.extend(free.map(|(number, _)| number));
        // As many can be kept before the next search as this one has looked at.
        let used = self.sequences.len() - self.free_sequences.len();
        self.sequences_allowed = used + self.stack.len() + self.memo.slot_count() + SEQUENCES_SPARE;
    }

    /// Moves the topmost `count` items, which begin at `start`, into the list below them.
    fn append(&mut self, start: usize, count: usize) -> Result<(), PickleError> {
        let below = start.checked_sub(1).and_then(|index| self.stack.get(index));
        if let Some(Item::Sequence(index)) = below.copied()
            && let Some(sequence) = self.sequences.get_mut(index as usize)
        {
            sequence.extend(self.stack.get(start..).unwrap_or_default());
        }
        self.pop(count)
    }

    fn reference(&self, id: Item) -> Result<Reference<'a>, PickleError> {
        self.strong(id)
            .map(Reference::Strong)
            .or_else(|| self.listed(id))
            .ok_or(PickleError::UnknownReference { offset: self.reader.offset() })
    }

    /// Parses `oid` or `(oid, class)`.
    fn strong(&self, id: Item) -> Option<Oid> {
        match id {
            Item::Text { .. } => self.oid(id),
            Item::Sequence(_) => match self.items(id, false)? {
                [oid, _] => self.oid(*oid),
                _ => None,
            },
            Item::Opaque => None,
        }
    }

    /// Parses `[kind, arguments]`, or `[oid]` for an old form of weak references.
    fn listed(&self, id: Item) -> Option<Reference<'a>> {
        let (kind, arguments) = match self.items(id, true)? {
            [oid] => return self.oid(*oid).map(Reference::Weak),
            [kind, arguments] => (self.bytes(*kind)?, self.items(*arguments, false)?),
            _ => return None,
        };
        let (database, oid) = match (kind, arguments) {
            (b"w", [oid]) => return self.oid(*oid).map(Reference::Weak),
            (b"w", [oid, database]) | (b"n", [database, oid]) | (b"m", [database, oid, _]) => {
                (self.bytes(*database)?, self.oid(*oid)?)
            }
            _ => return None,
        };
        let database = std::str::from_utf8(database).ok()?;
        Some(Reference::CrossDatabase { database, oid, weak: kind == b"w" })
    }

    fn items(&self, item: Item, is_list: bool) -> Option<&[Item]> {
        match item {
            Item::Sequence(index) => {
                self.sequences.get(index as usize).filter(|s| s.is_list == is_list)?.items()
            }
            _ => None,
        }
    }

    fn oid(&self, item: Item) -> Option<Oid> {
        Oid::from_slice(self.bytes(item)?)
    }

    /// The bytes of a text.
    fn bytes(&self, item: Item) -> Option<&'a [u8]> {
        match item {
            Item::Text { start, length } => {
                self.record.get(start as usize..)?.get(..usize::from(length))
            }
            _ => None,
        }
    }

    /// A text of the operation that was read last, of which so many bytes are behind the text. One
    /// that is longer than any name, or beyond 4 GiB, is no part of a reference.
    #[inline(always)]
    fn text(&self, text: &[u8], behind: usize) -> Item {
        let start = self.reader.position() - behind - text.len();
        match (u32::try_from(start), u16::try_from(text.len())) {
            (Ok(start), Ok(length)) => Item::Text { start, length },
            _ => Item::Opaque,
        }
    }

    /// A quoted string without escapes; references in real records have no escapes.
    fn unescaped(&self, literal: &[u8]) -> Item {
        match literal {
            [b'\'', text @ .., b'\''] | [b'"', text @ .., b'"'] if !text.contains(&b'\\') => {
                self.text(text, 2)
            }
            _ => Item::Opaque,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn references(record: &[u8]) -> Result<Vec<Reference<'_>>, PickleError> {
        let mut found = Vec::new();
        references_of_record(record, &mut |reference| found.push(reference))?;
        Ok(found)
    }

    fn strong(oids: &[u64]) -> Vec<Reference<'static>> {
        oids.iter().map(|oid| Reference::Strong(Oid(*oid))).collect()
    }

    fn class(record: &[u8]) -> Option<String> {
        class_of_record(record).map(|class| class.to_string())
    }

    /// A state with this persistent id, pickled by protocol 3 or by Python 2.
    fn record_of(id: &[u8]) -> Vec<u8> {
        [b"cm\nC\nq\0.}q\x01U\x01ar\x02\0\0\0", id, b"Qs."].concat()
    }

    // Written by ZODB 6.4.
    const MAPPING: &[u8] = b"\x80\x03cpersistent.mapping\nPersistentMapping\nq\x00.\x80\x03}q\x01\
        X\x04\x00\x00\x00dataq\x02}q\x03(X\x01\x00\x00\x00aq\x04C\x08\x00\x00\x00\x00\x00\x00\r\x9d\
        q\x05cfixture\nP\nq\x06\x86q\x07QX\x01\x00\x00\x00bq\x08C\x08\x00\x00\x00\x00\x00\x00\r\x9e\
        q\tcpersistent.list\nPersistentList\nq\n\x86q\x0bQus.";
    const SHARED: &[u8] = b"\x80\x03cfixture\nP\nq\x00.\x80\x03}q\x01(X\x01\x00\x00\x00qq\x02C\x08\
        \x00\x00\x00\x00\x00\x00\r\xa5q\x03h\x00\x86q\x04QX\x04\x00\x00\x00selfq\x05C\x08\x00\x00\
        \x00\x00\x00\x00\r\xa1q\x06h\x00\x86q\x07QX\x06\x00\x00\x00sharedq\x08]q\t(h\x03h\x00\x86\
        q\nQh\x03h\x00\x86q\x0bQh\x03h\x00\x86q\x0cQh\x03h\x00\x86q\rQ\x86q\x0eeu.";
    const NEWARGS: &[u8] = b"\x80\x03cfixture\nNA\nq\x00X\x01\x00\x00\x00xq\x01}q\x02X\x01\x00\x00\
        \x00yq\x03K\x01s\x86q\x04\x86q\x05.\x80\x03}q\x06X\x05\x00\x00\x00otherq\x07C\x08\x00\x00\
        \x00\x00\x00\x00\r\xa6q\x08Qs.";
    const WEAK: &[u8] = b"\x80\x03cfixture\nP\nq\x00.\x80\x03}q\x01(X\x04\x00\x00\x00weakq\x02]q\
        \x03(X\x01\x00\x00\x00wq\x04C\x08\x00\x00\x00\x00\x00\x00\r\xa1q\x05\x85q\x06eQX\x05\x00\
        \x00\x00weak2q\x07]q\x08(h\x04h\x05\x85q\teQX\x02\x00\x00\x00roq\n]q\x0b(h\x04C\x08\x00\
        \x00\x00\x00\x00\x00\x00\x01q\x0cX\x05\x00\x00\x00otherq\r\x86q\x0eeQX\x01\x00\x00\x00xq\
        \x0f]q\x10(X\x01\x00\x00\x00mq\x11h\rh\x0ch\x00\x87q\x12eQu.";
    const BLOB: &[u8] = b"\x80\x03cZODB.blob\nBlob\nq\x00.\x80\x03N.";

    #[test]
    fn references_of_real_records_are_those_that_zodb_finds() {
        assert_eq!(references(MAPPING), Ok(strong(&[0xd9d, 0xd9e])));
        let (q, own) = (0xda5, 0xda1);
        assert_eq!(references(SHARED), Ok(strong(&[q, own, q, q, q, q])));
        assert_eq!(references(NEWARGS), Ok(strong(&[0xda6])));
        assert_eq!(references(BLOB), Ok(Vec::new()));
        let other = |weak| Reference::CrossDatabase { database: "other", oid: Oid(1), weak };
        let weak = Reference::Weak(Oid(own));
        assert_eq!(references(WEAK), Ok(vec![weak, weak, other(true), other(false)]));
    }

    #[test]
    fn every_form_of_reference_is_known() {
        let other = |weak| Reference::CrossDatabase { database: "db", oid: Oid(9), weak };
        let forms: [(&[u8], Reference<'_>); 11] = [
            (b"S'\0\0\0\0\0\0\0\x09'\nq\x03", Reference::Strong(Oid(9))),
            (b"V\0\0\0\0\0\0\0\x09\nq\x03", Reference::Strong(Oid(9))),
            (b"(U\x08\0\0\0\0\0\0\0\x09q\x03cm\nC\ntq\x04", Reference::Strong(Oid(9))),
            (b"(U\x08\0\0\0\0\0\0\0\x09(U\x01mU\x01Ctt", Reference::Strong(Oid(9))),
            (b"U\x08\0\0\0\0\0\0\0\x09q\x03", Reference::Strong(Oid(9))),
            (b"X\x08\0\0\0\0\0\0\0\0\0\0\x09", Reference::Strong(Oid(9))),
            (b"](U\x01m(U\x02dbU\x08\0\0\0\0\0\0\0\x09cm\nC\nte", other(false)),
            (b"](U\x01nU\x02dbC\x08\0\0\0\0\0\0\0\x09\x86e", other(false)),
            (b"]U\x01waC\x08\0\0\0\0\0\0\0\x09\x85a", Reference::Weak(Oid(9))),
            (b"(U\x01wC\x08\0\0\0\0\0\0\0\x09U\x02db\x86l", other(true)),
            (b"]U\x08\0\0\0\0\0\0\0\x09a", Reference::Weak(Oid(9))),
        ];
        for (id, reference) in forms {
            assert_eq!(references(&record_of(id)), Ok(vec![reference]), "{id:?}");
        }
    }

    #[test]
    fn an_unknown_form_of_reference_is_an_error() {
        for id in [
            &b"N"[..],
            b"K\x01",
            b"]",
            b")",
            b"U\x07\0\0\0\0\0\0\x09",
            b"](U\x01xC\x08\0\0\0\0\0\0\0\x09\x85e",
            b"(C\x08\0\0\0\0\0\0\0\x09NNt",
            b"]C\x08\0\0\0\0\0\0\0\x09aNa",
            b"C\x08\0\0\0\0\0\0\0\x09\x85",
        ] {
            let record = record_of(id);
            let offset = record.len() - 3;
            assert_eq!(
                references(&record),
                Err(PickleError::UnknownReference { offset }),
                "{id:?}"
            );
        }
    }

    #[test]
    fn compressed_data_are_told_from_damaged_ones() {
        assert_eq!(references(b".zx\x9c"), Err(PickleError::Compressed));
        assert!(matches!(references(b".x"), Err(PickleError::Malformed { .. })));
        assert!(!is_compressed(MAPPING) && !is_compressed(b"."));
    }

    #[test]
    fn a_record_cut_anywhere_is_an_error() {
        for record in [MAPPING, SHARED, NEWARGS, WEAK, BLOB] {
            for length in 0..record.len() {
                assert!(references(&record[..length]).is_err(), "{length} of {record:?}");
            }
        }
    }

    #[test]
    fn a_whole_record_is_neither_cut_nor_followed_by_anything() {
        for record in [MAPPING, SHARED, NEWARGS, WEAK, BLOB] {
            assert!(is_whole_record(record), "{record:?}");
            assert!(!is_whole_record(&record[..record.len() - 1]), "{record:?}");
            assert!(!is_whole_record(&[record, b"."].concat()), "{record:?}");
        }
    }

    #[test]
    fn deep_nesting_needs_no_recursion() {
        let state = [b"]".repeat(100_000), b"a".repeat(99_999), b".".to_vec()].concat();
        assert_eq!(references(&[b"N.", &state[..]].concat()), Ok(Vec::new()));
    }

    #[test]
    fn sequences_that_nothing_leads_to_take_no_memory() {
        let oid = b"U\x08\0\0\0\0\0\0\0\x09";
        let weak = [b"]q\x05(U\x01w", &oid[..], b"\x85e0"].concat();
        let on_stack = [b"]U\x01wa", &oid[..], b"\x85"].concat();
        for dropped in [&b"]0"[..], b"]]b0", b"]q\x060", &[oid, &b"\x850"[..]].concat()] {
            let state = [&weak, &on_stack, &dropped.repeat(20_000)[..], b"ah\x05Q0Q."].concat();
            let mut scanner = Scanner::new(&state);
            let mut found = Vec::new();
            scanner.run(&mut |reference| found.push(reference)).unwrap();
            assert_eq!(found, [Reference::Weak(Oid(9)); 2], "{dropped:?}");
            assert!(scanner.sequences.len() < 3000, "{}", scanner.sequences.len());
        }
    }

    #[test]
    fn long_texts_are_no_references() {
        let long = [&b"X\0\0\x01\0"[..], &[b'd'; 1 << 16]].concat();
        let id = [b"](U\x01n", &long[..], b"C\x08\0\0\0\0\0\0\0\x09\x86e"].concat();
        let record = record_of(&id);
        assert!(matches!(references(&record), Err(PickleError::UnknownReference { .. })));
    }

    #[test]
    fn a_tuple_of_many_values_is_sound() {
        let state = [b"(", &b"N".repeat((1 << 24) + 1)[..], b"t."].concat();
        assert!(is_whole_pickle(&state));
    }

    #[test]
    fn the_class_is_found_in_all_its_forms() {
        let mapping = "persistent.mapping.PersistentMapping";
        assert_eq!(class(MAPPING).as_deref(), Some(mapping));
        assert_eq!(class(NEWARGS).as_deref(), Some("fixture.NA"));
        assert_eq!(class(BLOB).as_deref(), Some("ZODB.blob.Blob"));
        assert_eq!(class(b"((U\x01mq\x01U\x01Ctq\x02Nt.").as_deref(), Some("m.C"));
        assert_eq!(class(b"(cm\nC\nq\x01)t.").as_deref(), Some("m.C"));
    }

    #[test]
    fn no_class_is_found_where_there_is_none() {
        for record in [&b""[..], b"N.", b"K\x01.", b").", b"(K\x01K\x02t.", b"(U\x01mt.", b"cm\nC"]
        {
            assert_eq!(class(record), None, "{record:?}");
        }
    }
}
