//! What a record of the log holds: a time, then items that take effect together.
//!
//! docs/format.md describes the bytes.

use zodium_keyspace::{Tie, ValueRef};
use zodium_rdb::STRING;
use zodium_resp::{Arguments, OwnedRequest};
use zodium_types::Tid;

use crate::commands::{self, Keys};

const COMMAND: u8 = 1;
const VALUE: u8 = 2;
const REMOVAL: u8 = 3;
const TIE: u8 = 4;
const PARKED: u8 = 5;
const UNPARKED: u8 = 6;

/// In place of a length of four bytes: it is in the eight bytes behind.
const LONG: u32 = u32::MAX;

/// A part of a record.
#[derive(Debug)]
pub(crate) enum Item<'a> {
    /// A command, with its database.
    Command(usize, OwnedRequest),
    /// A key has this value: the bytes of one as RDB writes it.
    Value { database: usize, key: &'a [u8], expires_at: Option<u64>, value: &'a [u8] },
    /// A key is gone.
    Removal(usize, &'a [u8]),
    /// A key is tied to objects.
    Tie { database: usize, key: &'a [u8], origin: &'a [u8] },
    /// Commands wait for their transaction.
    Parked {
        token: &'a [u8],
        database: usize,
        since: Vec<(&'a [u8], Tid)>,
        commands: Vec<OwnedRequest>,
    },
    /// The commands of this token wait no longer.
    Unparked(&'a [u8]),
}

/// The time of a record, and its items; `None` if the bytes make no sense.
pub(crate) fn read(record: &[u8]) -> Option<(u64, Vec<Item<'_>>)> {
    let mut bytes = Bytes(record);
    let now = bytes.long()?;
    let mut items = Vec::new();
    while !bytes.0.is_empty() {
        items.push(bytes.item()?);
    }
    Some((now, items))
}

/// A record of one item, which is about one key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OneKey<'a> {
    /// The time of the record.
    pub(crate) now: u64,
    pub(crate) database: usize,
    pub(crate) key: &'a [u8],
    pub(crate) change: Change<'a>,
}

/// What becomes of the only key of a record.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change<'a> {
    /// It gets this string, which does not expire.
    String(&'a [u8]),
    /// It has a string: the bytes that RDB writes for it behind its kind.
    SavedString { expires_at: Option<u64>, string: &'a [u8] },
    /// Something else, which its item tells.
    Other,
}

/// What a record is about, if that is one key, as for most of them; `None` if there are several, or
/// if that is not quickly seen.
pub(crate) fn one_key(record: &[u8]) -> Option<OneKey<'_>> {
    let mut bytes = Bytes(record);
    let (now, kind, database) = (bytes.long()?, bytes.byte()?, bytes.database()?);
    let (key, change) = match kind {
        COMMAND => {
            let (words, name) = (bytes.count()?, bytes.bytes()?);
            // Most commands are this one: it need not be looked up.
            let is_set = words == 3 && name.eq_ignore_ascii_case(b"set");
            let has_one_key = || {
                let command = commands::named(name);
                command.is_some_and(|command| matches!(command.keys, Keys::Range(1, 1, _)))
            };
            if words < 2 || !is_set && !has_one_key() {
                return None;
            }
            let (key, mut last) = (bytes.bytes()?, None);
            for _ in 2..words {
                last = Some(bytes.bytes()?);
            }
            let string = last.filter(|_| is_set);
            (key, string.map_or(Change::Other, Change::String))
        }
        VALUE => {
            let key = bytes.bytes()?;
            let expires_at = Some(bytes.long()?).filter(|at| *at != 0);
            let change = match bytes.bytes()? {
                [STRING, string @ ..] => Change::SavedString { expires_at, string },
                _ => Change::Other,
            };
            (key, change)
        }
        REMOVAL => (bytes.bytes()?, Change::Other),
        _ => return None,
    };
    bytes.0.is_empty().then_some(OneKey { now, database, key, change })
}

/// Appends the time that a record begins with.
pub(crate) fn write_time(out: &mut Vec<u8>, now: u64) {
    out.extend_from_slice(&now.to_be_bytes());
}

pub(crate) fn write_command(out: &mut Vec<u8>, database: usize, arguments: Arguments) {
    out.push(COMMAND);
    write_database(out, database);
    write_words(out, arguments);
}

pub(crate) fn write_removal(out: &mut Vec<u8>, database: usize, key: &[u8]) {
    out.push(REMOVAL);
    write_database(out, database);
    write_bytes(out, key);
}

pub(crate) fn write_tie(out: &mut Vec<u8>, database: usize, key: &[u8], tie: &Tie) {
    out.push(TIE);
    write_database(out, database);
    write_bytes(out, key);
    write_bytes(out, tie.origin());
}

/// Appends what a key has.
pub(crate) fn write_entry(
    out: &mut Vec<u8>,
    database: usize,
    key: &[u8],
    value: ValueRef<'_>,
    expires_at: Option<u64>,
    ties: &[Tie],
) {
    let start = begin_entry(out, database, key, expires_at);
    zodium_rdb::write_value(out, value);
    end_entry(out, start, database, key, ties);
}

/// Appends what comes before the value of a key; returns the place of its length.
pub(crate) fn begin_entry(
    out: &mut Vec<u8>,
    database: usize,
    key: &[u8],
    expires_at: Option<u64>,
) -> usize {
    out.push(VALUE);
    write_database(out, database);
    write_bytes(out, key);
    out.extend_from_slice(&expires_at.unwrap_or(0).to_be_bytes());
    out.extend_from_slice(&[0; 4]);
    out.len() - 4
}

/// Sets the length of a value that was appended, and appends the ties of its key.
pub(crate) fn end_entry(
    out: &mut Vec<u8>,
    start: usize,
    database: usize,
    key: &[u8],
    ties: &[Tie],
) {
    set_length(out, start, out.len() - start - 4);
    ties.iter().for_each(|tie| write_tie(out, database, key, tie));
}

pub(crate) fn write_parked<'a>(
    out: &mut Vec<u8>,
    token: &[u8],
    database: usize,
    since: &[(String, Tid)],
    commands: impl ExactSizeIterator<Item = Arguments<'a>>,
) {
    out.push(PARKED);
    write_bytes(out, token);
    write_database(out, database);
    write_count(out, since.len());
    for (name, tid) in since {
        write_bytes(out, name.as_bytes());
        out.extend_from_slice(&tid.0.to_be_bytes());
    }
    write_count(out, commands.len());
    commands.for_each(|arguments| write_words(out, arguments));
}

pub(crate) fn write_unparked(out: &mut Vec<u8>, token: &[u8]) {
    out.push(UNPARKED);
    write_bytes(out, token);
}

fn write_database(out: &mut Vec<u8>, database: usize) {
    out.push(u8::try_from(database).unwrap_or(0));
}

fn write_count(out: &mut Vec<u8>, count: usize) {
    out.extend_from_slice(&u32::try_from(count).unwrap_or(u32::MAX).to_be_bytes());
}

pub(crate) fn write_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    set_length(out, start, bytes.len());
    out.extend_from_slice(bytes);
}

/// Sets the length of a string, for which there are four bytes.
fn set_length(out: &mut Vec<u8>, start: usize, length: usize) {
    let short = u32::try_from(length).unwrap_or(LONG);
    out[start..start + 4].copy_from_slice(&short.to_be_bytes());
    if short == LONG {
        out.splice(start + 4..start + 4, (length as u64).to_be_bytes());
    }
}

fn write_words(out: &mut Vec<u8>, arguments: Arguments) {
    write_count(out, arguments.len());
    arguments.iter().for_each(|word| write_bytes(out, word));
}

/// Bytes that are being read.
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    pub(crate) fn long(&mut self) -> Option<u64> {
        Some(u64::from_be_bytes(self.take(8)?.try_into().ok()?))
    }

    pub(crate) fn count(&mut self) -> Option<usize> {
        let count = u32::from_be_bytes(self.take(4)?.try_into().ok()?);
        usize::try_from(count).ok()
    }

    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let short = u32::from_be_bytes(self.take(4)?.try_into().ok()?);
        let length = if short == LONG { self.long()? } else { short.into() };
        self.take(usize::try_from(length).ok()?)
    }

    fn database(&mut self) -> Option<usize> {
        Some(usize::from(self.byte()?)).filter(|number| *number < zodium_keyspace::DATABASES)
    }

    fn request(&mut self) -> Option<OwnedRequest> {
        (0..self.count()?).map(|_| self.bytes()).collect()
    }

    fn item(&mut self) -> Option<Item<'a>> {
        Some(match self.byte()? {
            COMMAND => Item::Command(self.database()?, self.request()?),
            VALUE => {
                let (database, key) = (self.database()?, self.bytes()?);
                let expires_at = Some(self.long()?).filter(|at| *at != 0);
                Item::Value { database, key, expires_at, value: self.bytes()? }
            }
            REMOVAL => Item::Removal(self.database()?, self.bytes()?),
            TIE => {
                Item::Tie { database: self.database()?, key: self.bytes()?, origin: self.bytes()? }
            }
            PARKED => {
                let (token, database) = (self.bytes()?, self.database()?);
                let mut since = Vec::new();
                for _ in 0..self.count()? {
                    since.push((self.bytes()?, Tid(self.long()?)));
                }
                let mut commands = Vec::new();
                for _ in 0..self.count()? {
                    commands.push(self.request()?);
                }
                Item::Parked { token, database, since, commands }
            }
            UNPARKED => Item::Unparked(self.bytes()?),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_shorter() {
        let request: OwnedRequest = [&b"set"[..], b"", b"value"].into_iter().collect();
        let mut record = Vec::new();
        write_time(&mut record, 12);
        write_command(&mut record, 3, request.arguments());
        write_removal(&mut record, 15, b"key");
        write_tie(&mut record, 0, b"key", &Tie::new(b"origin"));
        let commands = [request.arguments(), request.arguments()];
        write_parked(&mut record, b"t", 1, &[("main".to_owned(), Tid(9))], commands.into_iter());
        write_unparked(&mut record, b"t");
        let (now, items) = read(&record).unwrap();
        assert_eq!((now, items.len()), (12, 5));
        let Item::Command(3, command) = &items[0] else { panic!("{items:?}") };
        assert_eq!(command.arguments().iter().collect::<Vec<_>>(), [&b"set"[..], b"", b"value"]);
        assert!(matches!(items[1], Item::Removal(15, b"key")));
        assert!(matches!(items[2], Item::Tie { database: 0, key: b"key", origin: b"origin" }));
        let Item::Parked { token: b"t", database: 1, since, commands } = &items[3] else {
            panic!("{items:?}")
        };
        assert_eq!((since[0], commands.len()), ((&b"main"[..], Tid(9)), 2));
        assert!(matches!(items[4], Item::Unparked(b"t")));
        assert_eq!(only_key_of(&record), None);
        let ends: Vec<usize> =
            (0..record.len()).filter(|end| read(&record[..*end]).is_some()).collect();
        assert_eq!(ends.len(), 5, "records that end behind an item");
    }

    fn only_key_of(record: &[u8]) -> Option<&[u8]> {
        one_key(record).map(|one| one.key)
    }

    #[test]
    fn a_string_may_be_longer_than_four_bytes_can_tell() {
        let mut bytes = b"before\0\0\0\0value".to_vec();
        set_length(&mut bytes, 6, 5);
        assert_eq!(bytes, b"before\0\0\0\x05value");
        for length in [LONG as usize - 1, LONG as usize, (5 << 32) + 7] {
            set_length(&mut bytes, 6, length);
            let is_long = length >= LONG as usize;
            assert_eq!(bytes.len(), if is_long { 23 } else { 15 });
            assert!(bytes.starts_with(b"before") && bytes.ends_with(b"value"));
            if is_long {
                assert_eq!(Bytes(&bytes[10..18]).long(), Some(length as u64));
                bytes.drain(10..18);
            }
        }
        let long = [&LONG.to_be_bytes()[..], &5_u64.to_be_bytes(), b"value and more"].concat();
        let mut read = Bytes(&long);
        assert_eq!((read.bytes(), read.0), (Some(&b"value"[..]), &b" and more"[..]));
        assert_eq!(Bytes(&long[..16]).bytes(), None);
    }

    #[test]
    fn the_only_key_of_a_record_is_seen_without_reading_all_of_it() {
        let record = |write: &dyn Fn(&mut Vec<u8>)| {
            let mut record = Vec::new();
            write_time(&mut record, 12);
            write(&mut record);
            record
        };
        let command = |words: &[&[u8]]| {
            let request: OwnedRequest = words.iter().copied().collect();
            record(&|out| write_command(out, 3, request.arguments()))
        };
        let set = command(&[b"SET", b"key", b"value", b"PX", b"5"]);
        assert_eq!(only_key_of(&set), Some(&b"key"[..]));
        assert!((0..set.len()).all(|end| only_key_of(&set[..end]).is_none()));
        assert!(matches!(one_key(&set), Some(OneKey { change: Change::Other, .. })));
        let plain = command(&[b"SET", b"key", b"value"]);
        let OneKey { now: 12, database: 3, change: Change::String(b"value"), .. } =
            one_key(&plain).unwrap()
        else {
            panic!("{:?}", one_key(&plain))
        };
        let other = command(&[b"append", b"key", b"value"]);
        assert!(matches!(one_key(&other), Some(OneKey { change: Change::Other, .. })));
        assert_eq!(only_key_of(&command(&[b"incr", b"key"])), Some(&b"key"[..]));
        let value = ValueRef::String(zodium_keyspace::Text::Packed(b"value"));
        let value = record(&|out| write_entry(out, 1, b"key", value, None, &[]));
        assert_eq!(only_key_of(&value), Some(&b"key"[..]));
        assert_eq!(only_key_of(&record(&|out| write_removal(out, 1, b"key"))), Some(&b"key"[..]));
        for several in [&[&b"del"[..], b"one", b"two"][..], &[b"rename", b"one", b"two"], &[b"get"]]
        {
            assert_eq!(only_key_of(&command(several)), None, "{several:?}");
        }
        let twice = [&set[..], &set[8..]].concat();
        assert_eq!(only_key_of(&twice), None);
    }
}
