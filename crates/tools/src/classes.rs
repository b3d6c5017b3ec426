//! The classes of records, as texts and numbers.
//!
//! A class is never imported: a record names it at its start, and nothing else of it is decoded
//! where the name stands in plain text.

use std::borrow::Cow;

use rustc_hash::FxHashMap;
use zodium_pickle::class_of_record;

/// The dotted name of the class of a record, as ZODB's own tools print it: `.` for a record whose
/// first pickle cannot be read.
pub fn class_of(data: &[u8]) -> Cow<'_, str> {
    match plain_names(data) {
        Some((names, module)) => {
            let (module, name) = (&names[..module], &names[module + 1..]);
            let (module, name) = (String::from_utf8_lossy(module), String::from_utf8_lossy(name));
            format!("{module}.{name}").into()
        }
        None => match class_of_record(data) {
            Some(class) => class.to_string().into(),
            None => ".".into(),
        },
    }
}

/// Whether a record is that of a blob, whose bytes are elsewhere.
pub fn is_blob(data: &[u8]) -> bool {
    plain_names(data).is_some_and(|(names, _)| names == b"ZODB.blob\nBlob")
}

/// Module and name, with a line feed between them, and the length of the module, if the record
/// begins with the opcode of a class.
fn plain_names(data: &[u8]) -> Option<(&[u8], usize)> {
    let pickle = match data {
        [0x80, _, rest @ ..] => rest,
        rest => rest,
    };
    let names = pickle.strip_prefix(b"(c").or_else(|| pickle.strip_prefix(b"c"))?;
    let module = names.iter().position(|byte| *byte == b'\n')?;
    let name = names[module + 1..].iter().position(|byte| *byte == b'\n')?;
    Some((&names[..module + 1 + name], module))
}

/// Numbers classes in the order in which they are seen.
#[derive(Debug, Default)]
pub struct Classes {
    /// By the bytes of the record, which need no text to be made.
    by_names: FxHashMap<Box<[u8]>, u32>,
    by_text: FxHashMap<Box<str>, u32>,
    texts: Vec<Box<str>>,
}

impl Classes {
    /// The number of the class of a record.
    pub fn number(&mut self, data: &[u8]) -> u32 {
        let names = plain_names(data).map(|(names, _)| names);
        if let Some(number) = names.and_then(|names| self.by_names.get(names)) {
            return *number;
        }
        let text = class_of(data);
        let number = match self.by_text.get(&*text) {
            Some(number) => *number,
            None => {
                let number = self.texts.len() as u32;
                self.by_text.insert(Box::from(&*text), number);
                self.texts.push(Box::from(&*text));
                number
            }
        };
        if let Some(names) = names {
            self.by_names.insert(Box::from(names), number);
        }
        number
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
            (b"K\x01.}.", "."),
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
}
