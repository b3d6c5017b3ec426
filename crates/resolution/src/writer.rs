//! Writes a data record with a memo, as ZODB's pickler does: what is one object in Python is
//! written once and fetched from the memo afterwards.
//!
//! These values are one object:
//!
//! - classes with the same name, and references with the same id;
//! - text and bytes from the same place of a record, or so short that Python has only one of them.
//!
//! Tuples are written at every mention, which loses nothing. Lists, dicts and instances that are
//! mentioned twice were refused before.

use std::borrow::Cow;
use std::collections::HashMap;

use zodium_pickle::{BATCH_LENGTH, Construction, Object, Value, encode_body, opcode};

/// Writes class and state; `size` is an estimate of their size.
pub(crate) fn record(metadata: &Value<'_>, state: &Value<'_>, size: usize) -> Vec<u8> {
    let mut writer =
        Writer { out: Vec::with_capacity(size + size / 8 + 64), memo: HashMap::new(), count: 0 };
    for value in [metadata, state] {
        writer.out.extend([opcode::PROTO, 3]);
        writer.write(value);
        writer.out.push(opcode::STOP);
    }
    writer.out
}

struct Writer<'v> {
    out: Vec<u8>,
    memo: HashMap<Identity<'v>, u32>,
    /// Number of objects memoized so far, including those that are never fetched.
    count: u32,
}

/// The identity of a value in Python.
#[derive(PartialEq, Eq, Hash)]
enum Identity<'v> {
    /// Address and length of borrowed text or bytes.
    Place(usize, usize),
    ShortText(&'v str),
    ShortBytes(&'v [u8]),
    Class(&'v str, &'v str),
    /// The pickle of a reference's id.
    Reference(Vec<u8>),
}

impl<'v> Writer<'v> {
    fn write(&mut self, value: &'v Value<'_>) {
        match value {
            Value::Str(_) | Value::Bytes(_) | Value::Global(_) => self.write_shared(value),
            Value::Tuple(items) => self.write_tuple(items),
            Value::List(items) => {
                self.out.push(opcode::EMPTY_LIST);
                self.memoize(None);
                self.write_items(items);
            }
            Value::Dict(entries) => {
                self.out.push(opcode::EMPTY_DICT);
                self.memoize(None);
                self.write_entries(entries);
            }
            Value::Object(object) => self.write_object(object),
            Value::Persistent(id) => self.write_reference(id),
            Value::None | Value::Bool(_) | Value::Int(_) | Value::BigInt(_) | Value::Float(_) => {
                encode_body(value, &mut self.out)
            }
        }
    }

    fn write_shared(&mut self, value: &'v Value<'_>) {
        let identity = identity(value);
        if !self.fetch(identity.as_ref()) {
            encode_body(value, &mut self.out);
            self.memoize(identity);
        }
    }

    fn write_tuple(&mut self, items: &'v [Value<'_>]) {
        let end = match items.len() {
            0 => {
                self.out.push(opcode::EMPTY_TUPLE);
                return;
            }
            1 => opcode::TUPLE1,
            2 => opcode::TUPLE2,
            3 => opcode::TUPLE3,
            _ => {
                self.out.push(opcode::MARK);
                opcode::TUPLE
            }
        };
        for item in items {
            self.write(item);
        }
        self.out.push(end);
        self.memoize(None);
    }

    /// Writes items in the batches of the C pickler.
    fn write_items(&mut self, items: &'v [Value<'_>]) {
        if let [item] = items {
            self.write(item);
            self.out.push(opcode::APPEND);
            return;
        }
        for batch in items.chunks(BATCH_LENGTH) {
            self.out.push(opcode::MARK);
            for item in batch {
                self.write(item);
            }
            self.out.push(opcode::APPENDS);
        }
    }

    fn write_entries(&mut self, entries: &'v [(Value<'_>, Value<'_>)]) {
        if let [(key, value)] = entries {
            self.write(key);
            self.write(value);
            self.out.push(opcode::SETITEM);
            return;
        }
        for batch in entries.chunks(BATCH_LENGTH) {
            self.out.push(opcode::MARK);
            for (key, value) in batch {
                self.write(key);
                self.write(value);
            }
            self.out.push(opcode::SETITEMS);
        }
        if !entries.is_empty() && entries.len().is_multiple_of(BATCH_LENGTH) {
            self.out.extend([opcode::MARK, opcode::SETITEMS]);
        }
    }

    fn write_object(&mut self, object: &'v Object<'_>) {
        self.write(&object.callable);
        self.write(&object.arguments);
        self.out.push(match object.construction {
            Construction::Call => opcode::REDUCE,
            Construction::New => opcode::NEWOBJ,
        });
        self.memoize(None);
        self.write_items(&object.items);
        self.write_entries(&object.entries);
        if let Some(state) = &object.state {
            self.write(state);
            self.out.push(opcode::BUILD);
        }
    }

    /// Python keeps one reference object for each id, and with it the id.
    fn write_reference(&mut self, id: &'v Value<'_>) {
        let mut pickle = Vec::new();
        encode_body(id, &mut pickle);
        let identity = Identity::Reference(pickle);
        if !self.fetch(Some(&identity)) {
            let before = self.count;
            self.write(id);
            // A list is memoized before its items, a tuple after them.
            let number = match id {
                Value::List(_) => Some(before),
                Value::Tuple(items) if !items.is_empty() => Some(self.count - 1),
                _ => None,
            };
            self.memo.extend(number.map(|number| (identity, number)));
        }
        self.out.push(opcode::BINPERSID);
    }

    /// Writes an opcode that memoizes the top of the stack.
    fn memoize(&mut self, identity: Option<Identity<'v>>) {
        match u8::try_from(self.count) {
            Ok(number) => self.out.extend([opcode::BINPUT, number]),
            Err(_) => {
                self.out.push(opcode::LONG_BINPUT);
                self.out.extend(self.count.to_le_bytes());
            }
        }
        if let Some(identity) = identity {
            self.memo.insert(identity, self.count);
        }
        self.count += 1;
    }

    /// Writes an opcode that fetches the identical value; returns `false` if there is none.
    fn fetch(&mut self, identity: Option<&Identity<'v>>) -> bool {
        let Some(number) = identity.and_then(|identity| self.memo.get(identity)) else {
            return false;
        };
        match u8::try_from(*number) {
            Ok(number) => self.out.extend([opcode::BINGET, number]),
            Err(_) => {
                self.out.push(opcode::LONG_BINGET);
                self.out.extend(number.to_le_bytes());
            }
        }
        true
    }
}

fn identity<'v>(value: &'v Value<'_>) -> Option<Identity<'v>> {
    match value {
        Value::Global(global) => Some(Identity::Class(global.module(), global.name())),
        Value::Str(text) if is_latin1_character(text) => Some(Identity::ShortText(text)),
        Value::Str(Cow::Borrowed(text)) => Some(place(text.as_bytes())),
        Value::Bytes(bytes) if bytes.len() <= 1 => Some(Identity::ShortBytes(bytes)),
        Value::Bytes(Cow::Borrowed(bytes)) => Some(place(bytes)),
        _ => None,
    }
}

fn place<'v>(bytes: &[u8]) -> Identity<'v> {
    Identity::Place(bytes.as_ptr().addr(), bytes.len())
}

/// Text that exists only once in Python: the empty string, and single Latin-1 characters.
fn is_latin1_character(text: &str) -> bool {
    let mut characters = text.chars();
    let first = characters.next();
    characters.next().is_none() && first.is_none_or(|character| u32::from(character) < 256)
}

#[cfg(test)]
mod tests {
    use zodium_pickle::{Limits, decode_record};

    /// Decodes a record and writes it again.
    fn rewritten(record: &[u8]) -> Vec<u8> {
        let (metadata, state) = decode_record(record, &Limits::OBJECTS).unwrap();
        super::record(&metadata, &state, record.len())
    }

    // Written by ZODB's pickler: shared text and class, one reference twice, a weak one, long and
    // short containers.
    const GOLDEN: &[u8] =
        b"\x80\x03cBTrees.Length\nLength\nq\x00.\x80\x03(X\x02\x00\x00\x00abq\x01\
        h\x01C\x08\x00\x00\x00\x00\x00\x00\x00\x01q\x02h\x00\x86q\x03Qh\x03Q]q\x04(X\x01\x00\x00\
        \x00wq\x05h\x02\x85q\x06eQ}q\x07h\x01)s]q\x08K\x01a(NNNNtq\ttq\n.";

    #[test]
    fn what_zodb_wrote_is_written_again() {
        assert_eq!(rewritten(GOLDEN), GOLDEN);
    }

    #[test]
    fn an_id_of_a_strange_form_is_kept() {
        for id in [&b")"[..], b"]", b"N", b"X\x02\0\0\0abq\x02"] {
            let record = [b"\x80\x03cm\nC\nq\0.\x80\x03", id, b"Q", id, b"Q\x86."].concat();
            let (metadata, state) = decode_record(&record, &Limits::OBJECTS).unwrap();
            let again = super::record(&metadata, &state, 0);
            assert_eq!(decode_record(&again, &Limits::OBJECTS), Ok((metadata, state)));
        }
    }
}
