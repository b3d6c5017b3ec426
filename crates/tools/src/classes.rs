//! The classes of records, as texts and numbers.
//!
//! A class is never imported: a record names it at its start, and nothing else of it is decoded
//! where the name stands in plain text.

use rustc_hash::FxHashMap;
use zodium_pickle::{Limits, Value, class_of_record, decode};

use crate::text::{printable, value_repr};

/// The dotted name of the class of a record, as ZODB's own tools print it. It is `.` if the first
/// pickle cannot be read. If that names no class, its value is printed, with a dot. Characters that
/// are not printable are escaped: the client that stores a record chooses its class.
pub fn class_of(data: &[u8]) -> String {
    printable(match plain_names(data) {
        Some((names, module)) => {
            let (module, name) = (&names[..module], &names[module + 1..]);
            let (module, name) = (String::from_utf8_lossy(module), String::from_utf8_lossy(name));
            format!("{module}.{name}")
        }
        // ZODB's tools read a record of any protocol.
        None => {
            let pickle = without_protocol(data);
            match class_of_record(data).or_else(|| class_of_record(pickle)) {
                Some(class) => class.to_string(),
                None => unusual_class(pickle).unwrap_or(".".to_owned()),
            }
        }
    })
}

/// What ZODB's tools print for `(module, name)`, and for what names no class.
fn unusual_class(pickle: &[u8]) -> Option<String> {
    let (metadata, _) = decode(pickle, &Limits::OBJECTS).ok()?;
    let Value::Tuple(parts) = &metadata else { return Some(value_repr(&metadata)? + ".") };
    let names = match parts.first()? {
        Value::Tuple(names) => names,
        _ => parts,
    };
    let [module, name] = names.as_slice() else { return None };
    Some(format!("{}.{}", part_of_name(module)?, part_of_name(name)?))
}

fn part_of_name(value: &Value<'_>) -> Option<String> {
    match value {
        Value::Str(text) => Some(text.to_string()),
        Value::Bytes(bytes) => std::str::from_utf8(bytes).ok().map(str::to_owned),
        other => value_repr(other),
    }
}

/// Whether a record is that of a blob, whose bytes are elsewhere.
pub fn is_blob(data: &[u8]) -> bool {
    plain_names(data).is_some_and(|(names, _)| names == b"ZODB.blob\nBlob")
}

/// Module and name, with a line feed between them, and the length of the module, if the record
/// begins with the opcode of a class.
fn plain_names(data: &[u8]) -> Option<(&[u8], usize)> {
    let pickle = without_protocol(data);
    let names = pickle.strip_prefix(b"(c").or_else(|| pickle.strip_prefix(b"c"))?;
    let module = names.iter().position(|byte| *byte == b'\n')?;
    let name = names[module + 1..].iter().position(|byte| *byte == b'\n')?;
    Some((&names[..module + 1 + name], module))
}

/// A pickle without the mark of its protocol.
fn without_protocol(pickle: &[u8]) -> &[u8] {
    match pickle {
        [0x80, _, rest @ ..] => rest,
        rest => rest,
    }
}

/// Numbers classes in the order in which they are seen.
#[derive(Debug, Default)]
pub struct Classes {
    /// By the bytes of the record, which need no text to be made.
    by_names: FxHashMap<Box<[u8]>, u32>,
    by_text: FxHashMap<Box<str>, u32>,
    texts: Vec<Box<str>>,
    /// The bytes of all texts.
    text_bytes: usize,
}

impl Classes {
    /// The number of the class of a record.
    pub fn number(&mut self, data: &[u8]) -> u32 {
        self.number_within(data, u32::MAX, usize::MAX).unwrap_or(u32::MAX)
    }

    /// As [`Classes::number`], with at most so many classes, whose names have so many bytes in all;
    /// `None` for one that does not fit.
    pub fn number_within(
        &mut self,
        data: &[u8],
        classes_max: u32,
        bytes_max: usize,
    ) -> Option<u32> {
        let names = plain_names(data).map(|(names, _)| names);
        if let Some(number) = names.and_then(|names| self.by_names.get(names)) {
            return Some(*number);
        }
        let text = class_of(data);
        let number = match self.by_text.get(&*text) {
            Some(number) => *number,
            None => {
                let number = self.texts.len() as u32;
                if number >= classes_max || self.text_bytes.saturating_add(text.len()) > bytes_max {
                    return None;
                }
                self.text_bytes += text.len();
                self.by_text.insert(Box::from(&*text), number);
                self.texts.push(Box::from(&*text));
                number
            }
        };
        if let Some(names) = names {
            self.by_names.insert(Box::from(names), number);
        }
        Some(number)
    }

    /// The name of a class.
    pub fn name(&self, number: u32) -> &str {
        self.texts.get(number as usize).map_or(".", |text| text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_named_without_being_imported() {
        for (record, expected) in [
            (&b"\x80\x03cm.n\nC\nq\x01.}."[..], "m.n.C"),
            (b"cm\nC\n.}.", "m.C"),
            (b"(cm\nC\nq\x01Nt.}.", "m.C"),
            // ((module, name), arguments), as old versions wrote it.
            (b"((U\x01mU\x01CtNt.}.", "m.C"),
            // Protocol 4.
            (b"\x80\x04\x8c\x01m\x8c\x01C\x93.}.", "m.C"),
            // (module, name).
            (b"\x80\x02(U\x01mU\x01Ct.}.", "m.C"),
            (b"(X\x01\x00\x00\x00mX\x01\x00\x00\x00Ct.}.", "m.C"),
            (b"\x80\x05((U\x01mU\x01CtNt.}.", "m.C"),
            // What a terminal would obey.
            (b"cm\x1b[2J\nC\x07\n.}.", "m\\x1b[2J.C\\x07"),
            (
                "((X\x04\0\0\0\u{9b}\u{e9}X\x03\0\0\0\u{202e}tNt.}.".as_bytes(),
                "\\x9b\u{e9}.\\u202e",
            ),
            // No class, and no pickle.
            (b"K\x01.}.", "1."),
            (b"\x80\x03}U\x01a](N\x88es.}.", "{'a': [None, True]}."),
            (b"(U\x01mt.}.", "."),
            (b"K\x01", "."),
            (b"", "."),
            (b"c", "."),
        ] {
            assert_eq!(class_of(record), expected, "{}", record.escape_ascii());
        }
    }

    #[test]
    fn a_class_has_one_number() {
        let mut classes = Classes::default();
        let numbers = [&b"cm\nC\n."[..], b"cm\nD\n.", b"\x80\x03cm\nC\n.", b"((U\x01mU\x01CtNt."]
            .map(|record| classes.number(record));
        assert_eq!(numbers, [0, 1, 0, 0]);
        assert_eq!((classes.name(0), classes.name(1), classes.name(9)), ("m.C", "m.D", "."));
    }

    #[test]
    fn classes_that_do_not_fit_have_no_number() {
        let mut classes = Classes::default();
        let long = [&b"cm\n"[..], &[b'C'; 100], b"\n."].concat();
        let records = [&b"cm\nC\n."[..], &long, b"cm\nD\n.", b"cm\nC\n.", b"cm\nE\n.", b"cm\nD\n."];
        let numbers = records.map(|record| classes.number_within(record, 2, 50));
        assert_eq!(numbers, [Some(0), None, Some(1), Some(0), None, Some(1)]);
        assert_eq!(classes.name(2), ".");
    }
}
