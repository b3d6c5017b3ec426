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
    let delimiter = delimiter(content.contains('\''), content.contains('"'));
    let mut text = delimiter.to_string();
    for character in content.chars() {
        match escape(character) {
            _ if character == delimiter => text.extend(['\\', character]),
            Some(escaped) => text += escaped,
            None if is_printable(character) => text.push(character),
            None => hexadecimal(&mut text, u32::from(character)),
        }
    }
    text.push(delimiter);
    text
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
}
