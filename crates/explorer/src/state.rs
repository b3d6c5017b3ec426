//! Decoded states, as HTML and as lines of text.
//!
//! Invariant: no more than a fixed number of values is shown, whatever a pickle holds.

mod html;
mod lines;
mod target;

pub(crate) use html::StateView;
pub(crate) use lines::lines_of;
pub(crate) use target::{Reach, Target};

use std::borrow::Cow;

use zodium_pickle::{Global, Limits, Object, Objects, PickleError, Value, decode_record_to_show};
use zodium_tools::text::{bytes_repr, str_repr, utf8_repr};

use crate::words;

/// Longest text that is shown, in characters.
const TEXT_CHARACTERS: usize = 2000;
/// Most bytes of a value that are shown.
const BYTES_MAX: usize = 400;
/// More values than any page shows. All are decoded, which takes 64 MiB at most.
const LIMITS: Limits = Limits { nesting: 100, nodes: 1 << 20, objects: Objects::Allowed };

/// A decoded record.
#[derive(PartialEq)]
pub(crate) struct Decoded<'a> {
    /// Arguments of the class's `__new__`, if the record has some.
    pub(crate) arguments: Option<Value<'a>>,
    pub(crate) state: Value<'a>,
}

/// Decodes a record, without importing or executing anything.
pub(crate) fn decode(data: &[u8]) -> Result<Decoded<'_>, PickleError> {
    let (metadata, state) = decode_record_to_show(data, &LIMITS)?;
    let arguments = match metadata {
        Value::Tuple(parts) => parts.into_iter().nth(1).filter(|value| !is_empty(value)),
        _ => None,
    };
    Ok(Decoded { arguments, state })
}

fn is_empty(value: &Value<'_>) -> bool {
    matches!(value, Value::None) || value.as_sequence().is_some_and(<[_]>::is_empty)
}

/// A value without parts, as Python prints it, and the kind of it; `None` for others.
fn leaf(value: &Value<'_>) -> Option<(String, &'static str)> {
    Some(match value {
        Value::None => ("None".to_owned(), "constant"),
        Value::Bool(true) => ("True".to_owned(), "constant"),
        Value::Bool(false) => ("False".to_owned(), "constant"),
        Value::Int(number) => (number.to_string(), "number"),
        Value::BigInt(bytes) => (integer_text(bytes), "number"),
        Value::Float(number) => (format!("{number:?}"), "number"),
        Value::Str(text) => (str_repr(&shortened(text)), "text"),
        Value::Bytes(bytes) => (bytes_text(bytes), "bytes"),
        Value::Global(global) => (name_of_global(global), "class"),
        Value::List(items) if items.is_empty() => ("[]".to_owned(), "constant"),
        Value::Tuple(items) if items.is_empty() => ("()".to_owned(), "constant"),
        Value::Dict(entries) if entries.is_empty() => ("{}".to_owned(), "constant"),
        Value::Object(object) => match object.cycle_levels() {
            Some(levels) => (cycle_text(levels), "constant"),
            None => (surrogates_text(object)?, "text"),
        },
        _ => return None,
    })
}

fn shortened(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(TEXT_CHARACTERS) {
        Some((end, _)) => {
            format!("{}\u{2026} ({} characters)", &text[..end], text.chars().count()).into()
        }
        None => text.into(),
    }
}

/// Is shown where an object is within itself, with so many others between.
fn cycle_text(levels: usize) -> String {
    match levels {
        0 => "(an object that this is part of)".to_owned(),
        _ => format!("(an object that this is part of, {levels} further out)"),
    }
}

/// The text that a record has as a call, since it has surrogates.
fn surrogates_text(call: &Object<'_>) -> Option<String> {
    let function = call.class()?;
    match (function.module(), function.name(), call.arguments.as_sequence()?) {
        ("codecs", "decode", [Value::Bytes(bytes), Value::Str(codec), Value::Str(errors)])
            if codec == "utf-8" && errors == "surrogatepass" =>
        {
            Some(match bytes.get(..TEXT_CHARACTERS) {
                Some(start) if bytes.len() > TEXT_CHARACTERS => {
                    format!("{}\u{2026} ({} bytes of UTF-8)", utf8_repr(start), bytes.len())
                }
                _ => utf8_repr(bytes),
            })
        }
        _ => None,
    }
}

fn bytes_text(bytes: &[u8]) -> String {
    match bytes.get(..BYTES_MAX) {
        Some(start) if bytes.len() > BYTES_MAX => {
            format!("{}\u{2026} ({} bytes)", bytes_repr(start), bytes.len())
        }
        _ => bytes_repr(bytes),
    }
}

/// An integer beyond 128 bits: two's complement, little-endian.
fn integer_text(bytes: &[u8]) -> String {
    if bytes.len() > BYTES_MAX {
        return format!("an integer of {} bytes", bytes.len());
    }
    let is_negative = bytes.last().is_some_and(|last| *last >= 0x80);
    let mut carries = is_negative;
    let mut digits = String::new();
    for byte in bytes {
        let byte = if is_negative { !byte } else { *byte };
        let (byte, carried) = byte.overflowing_add(carries.into());
        carries = carried;
        digits.insert_str(0, &format!("{byte:02x}"));
    }
    let sign = if is_negative { "-" } else { "" };
    format!("{sign}0x{}", digits.trim_start_matches('0'))
}

/// The name of a class. What a long one has beyond the limit is not even copied: thousands of
/// instances may share it.
fn name_of_global(global: &Global<'_>) -> String {
    let most = words::NAME_CHARACTERS;
    words::name(&format!("{:.most$}.{:.most$}", global.module(), global.name()))
}

/// The name of an instance's class, or of the callable that makes it.
fn name_of(object: &Object<'_>) -> String {
    match &object.callable {
        Value::Global(global) => name_of_global(global),
        _ => "an unnamed callable".to_owned(),
    }
}

/// The arguments that are worth showing. `copy_reg._reconstructor` and `__newobj__` only repeat the
/// class.
fn shown_arguments<'v, 'a>(object: &'v Object<'a>) -> Option<&'v Value<'a>> {
    Some(&object.arguments).filter(|arguments| !is_empty(arguments))
}

/// The class that a value names, also with arguments.
fn class_name(value: &Value<'_>) -> Option<String> {
    match value {
        Value::Global(global) => Some(name_of_global(global)),
        Value::Tuple(parts) => parts.first().and_then(class_name),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_of_many_values_is_decoded() {
        let record = [b"N.](", &b"N".repeat(600_000)[..], b"e."].concat();
        let state = decode(&record).unwrap().state;
        assert_eq!(state.as_sequence().map(<[_]>::len), Some(600_000));
    }

    #[test]
    fn objects_within_themselves_and_texts_with_surrogates_are_shown_as_data() {
        let record = b"cm\nC\n.}q\x01(X\x02\0\0\0meh\x01X\x01\0\0\0tX\x05\0\0\0'\xed\xa0\x80\\u.";
        let decoded = decode(record).unwrap();
        let (lines, _) = lines_of("m.C", &decoded);
        assert_eq!(lines, [&format!("'me': {}", cycle_text(0)), "'t': \"'\\ud800\\\\\""]);
    }

    #[test]
    fn cycles_to_different_objects_differ() {
        // A list in a dict in a list, which contains one of these.
        let nearest = decode(b"cm\nC\n.]q\x01}X\x01\0\0\0a]q\x02h\x02asa.").unwrap();
        let outermost = decode(b"cm\nC\n.]q\x01}X\x01\0\0\0a]q\x02h\x01asa.").unwrap();
        assert!(nearest != outermost);
        let shown = |decoded| lines_of("m.C", decoded).0.join("\n");
        assert!(shown(&nearest).contains(&cycle_text(0)), "{}", shown(&nearest));
        assert!(shown(&outermost).contains(&cycle_text(2)), "{}", shown(&outermost));
    }

    #[test]
    fn long_integers_are_written_in_full() {
        let shown = |bytes: &[u8]| leaf(&Value::from_twos_complement(bytes)).map(|(text, _)| text);
        let positive = [&[0x34; 15][..], &[0x12, 0x80, 0]].concat();
        let expected = format!("0x8012{}", "34".repeat(15));
        assert_eq!(shown(&positive), Some(expected.clone()));
        let negative = [&[0xcc; 1][..], &[0xcb; 14], &[0xed, 0x7f, 0xff]].concat();
        assert_eq!(shown(&negative), Some(format!("-{expected}")));
        assert_eq!(shown(&[0; 16][..15]), Some("0".to_owned()));
    }
}
