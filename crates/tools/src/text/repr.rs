//! How Python prints bytes and texts.

use std::fmt::Write;

use unicode_properties::{GeneralCategoryGroup, UnicodeGeneralCategory};

/// `bytes` as `repr()` prints them: `b'...'`.
pub fn bytes_repr(bytes: &[u8]) -> String {
    let delimiter = delimiter(bytes.contains(&b'\''), bytes.contains(&b'"'));
    let mut text = format!("b{delimiter}");
    for byte in bytes {
        match char::from(*byte) {
            character if character == delimiter => text.extend(['\\', character]),
            character => match escape(character) {
                Some(escaped) => text += escaped,
                None if (' '..='~').contains(&character) => text.push(character),
                None => hexadecimal(&mut text, u32::from(*byte)),
            },
        }
    }
    text.push(delimiter);
    text
}

/// A text as `repr()` prints it: `'...'`.
pub fn str_repr(content: &str) -> String {
    utf8_repr(content.as_bytes())
}

/// As [`str_repr`], of UTF-8 that may hold surrogates. Other bytes that are no UTF-8 stay escaped
/// bytes.
pub fn utf8_repr(content: &[u8]) -> String {
    let delimiter = delimiter(content.contains(&b'\''), content.contains(&b'"'));
    let mut text = delimiter.to_string();
    let mut rest = content;
    while !rest.is_empty() {
        if let [0xed, second @ 0xa0..=0xbf, third @ 0x80..=0xbf, after @ ..] = rest {
            let low = u32::from(second & 0x3f) << 6 | u32::from(third & 0x3f);
            hexadecimal(&mut text, 0xd000 | low);
            rest = after;
            continue;
        }
        let Some(chunk) = rest.utf8_chunks().next() else { break };
        chunk.valid().chars().for_each(|character| push_printed(&mut text, character, delimiter));
        rest = &rest[chunk.valid().len()..];
        if !matches!(rest, [0xed, 0xa0..=0xbf, 0x80..=0xbf, ..]) {
            chunk.invalid().iter().for_each(|byte| hexadecimal(&mut text, u32::from(*byte)));
            rest = &rest[chunk.invalid().len()..];
        }
    }
    text.push(delimiter);
    text
}

fn push_printed(text: &mut String, character: char, delimiter: char) {
    match escape(character) {
        _ if character == delimiter => text.extend(['\\', character]),
        Some(escaped) => text.push_str(escaped),
        None if is_printable(character) => text.push(character),
        None => hexadecimal(text, u32::from(character)),
    }
}

/// A float as `repr()` prints it: the shortest digits that give it back.
pub fn float_repr(number: f64) -> String {
    if !number.is_finite() {
        // A nan has no sign in Python.
        return if number.is_nan() { "nan".to_owned() } else { number.to_string() };
    }
    let text = format!("{number:?}");
    let Some((digits, exponent)) = text.split_once('e') else { return text };
    match exponent.strip_prefix('-') {
        Some(exponent) => format!("{digits}e-{exponent:0>2}"),
        None => format!("{digits}e+{exponent:0>2}"),
    }
}

/// A text whose unprintable characters are escaped, as `repr()` does: a terminal would obey them.
pub fn printable(text: String) -> String {
    if text.chars().all(is_printable) {
        return text;
    }
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match is_printable(character) {
            true => shown.push(character),
            false => hexadecimal(&mut shown, u32::from(character)),
        }
    }
    shown
}

fn delimiter(has_single: bool, has_double: bool) -> char {
    if has_single && !has_double { '"' } else { '\'' }
}

fn escape(character: char) -> Option<&'static str> {
    match character {
        '\\' => Some("\\\\"),
        '\t' => Some("\\t"),
        '\n' => Some("\\n"),
        '\r' => Some("\\r"),
        _ => None,
    }
}

fn is_printable(character: char) -> bool {
    let group = character.general_category_group();
    let is_blank = matches!(group, GeneralCategoryGroup::Separator | GeneralCategoryGroup::Other);
    character == ' ' || !is_blank
}

fn hexadecimal(text: &mut String, code: u32) {
    // Writing to a string does not fail.
    let _ = match code {
        0..=0xff => write!(text, "\\x{code:02x}"),
        0x100..=0xffff => write!(text, "\\u{code:04x}"),
        _ => write!(text, "\\U{code:08x}"),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_as_python_prints_them() {
        for (bytes, expected) in [
            (&b""[..], "b''"),
            (b"a'b", "b\"a'b\""),
            (b"a'\"b", "b'a\\'\"b'"),
            (b"\\\t\n\r\x00\x7f\xe9", "b'\\\\\\t\\n\\r\\x00\\x7f\\xe9'"),
        ] {
            assert_eq!(bytes_repr(bytes), expected);
        }
        for (text, expected) in [
            ("é'", "\"é'\""),
            ("'\"", "'\\'\"'"),
            ("\u{a0}\u{200b}\u{e0001}\u{1}", "'\\xa0\\u200b\\U000e0001\\x01'"),
        ] {
            assert_eq!(str_repr(text), expected);
        }
    }

    #[test]
    fn surrogates_and_other_bytes_are_escaped() {
        for (bytes, expected) in [
            (&b"a\xed\xa0\xbd\xed\xb8\x80b"[..], "'a\\ud83d\\ude00b'"),
            (b"\xff\xed\xa0", "'\\xff\\xed\\xa0'"),
            ("\u{d7ff}x".as_bytes(), "'\\ud7ffx'"),
        ] {
            assert_eq!(utf8_repr(bytes), expected);
        }
    }

    #[test]
    fn floats_are_as_python_prints_them() {
        for (number, expected) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (0.1, "0.1"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (-2.5e-100, "-2.5e-100"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
        ] {
            assert_eq!(float_repr(number), expected);
        }
    }
}
