//! Quoted bytes of the dump format.
//!
//! Printable ASCII and characters of UTF-8 that are letters, numbers, punctuation or symbols stand
//! for themselves. Any other byte is escaped, so a dump is text wherever the data are.

use unicode_properties::{GeneralCategoryGroup, UnicodeGeneralCategory};

/// Appends `bytes` in double quotes to `out`.
pub fn quote(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            quote_character(out, character);
        }
        chunk.invalid().iter().for_each(|byte| escape(out, *byte));
    }
    out.push(b'"');
}

fn quote_character(out: &mut Vec<u8>, character: char) {
    match character {
        '\\' | '"' => out.extend([b'\\', character as u8]),
        '\t' => out.extend(b"\\t"),
        '\n' => out.extend(b"\\n"),
        '\r' => out.extend(b"\\r"),
        ' '..='~' => out.push(character as u8),
        _ => {
            let mut buffer = [0; 4];
            let bytes = character.encode_utf8(&mut buffer).as_bytes();
            match is_kept(character) {
                true => out.extend(bytes),
                false => bytes.iter().for_each(|byte| escape(out, *byte)),
            }
        }
    }
}

fn is_kept(character: char) -> bool {
    matches!(
        character.general_category_group(),
        GeneralCategoryGroup::Letter
            | GeneralCategoryGroup::Number
            | GeneralCategoryGroup::Punctuation
            | GeneralCategoryGroup::Symbol
    )
}

fn escape(out: &mut Vec<u8>, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let (high, low) = (usize::from(byte >> 4), usize::from(byte & 15));
    out.extend([b'\\', b'x', DIGITS[high], DIGITS[low]]);
}

/// The bytes of a quoted text; `None` if it is not one.
pub fn unquote(text: &[u8]) -> Option<Vec<u8>> {
    let mut rest = text.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    let mut bytes = Vec::with_capacity(rest.len());
    loop {
        let (byte, after) = match rest {
            [] => return Some(bytes),
            [b'\\', b'x', high, low, after @ ..] => (hex(*high)? << 4 | hex(*low)?, after),
            [b'\\', letter, after @ ..] => (escaped(*letter)?, after),
            // An end that is escaped, or an end in the middle.
            [b'\\' | b'"', ..] => return None,
            [byte, after @ ..] => (*byte, after),
        };
        bytes.push(byte);
        rest = after;
    }
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

fn escaped(letter: u8) -> Option<u8> {
    Some(match letter {
        b'\\' | b'"' => letter,
        b'a' => 7,
        b'b' => 8,
        b't' => b'\t',
        b'n' => b'\n',
        b'v' => 11,
        b'f' => 12,
        b'r' => b'\r',
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quoted(bytes: &[u8]) -> String {
        let mut out = Vec::new();
        quote(&mut out, bytes);
        assert_eq!(unquote(&out).as_deref(), Some(bytes));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn categories_decide_which_characters_stay() {
        for (text, expected) in [
            ("", r#""""#),
            ("a b~", r#""a b~""#),
            ("\\\"'", r#""\\\"'""#),
            ("\t\n\r\x07\x7f\0", r#""\t\n\r\x07\x7f\x00""#),
            // Letters, numbers, punctuation, symbols, and the replacement character.
            ("é日½«€\u{fffd}😀", "\"é日½«€\u{fffd}😀\""),
            // Marks, separators, control, format, private use and unassigned characters.
            ("\u{301}", r#""\xcc\x81""#),
            ("\u{a0}\u{2028}", r#""\xc2\xa0\xe2\x80\xa8""#),
            ("\u{85}\u{200d}", r#""\xc2\x85\xe2\x80\x8d""#),
            ("\u{e000}\u{378}", r#""\xee\x80\x80\xcd\xb8""#),
        ] {
            assert_eq!(quoted(text.as_bytes()), expected);
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_escaped_one_by_one() {
        assert_eq!(quoted(b"\xff\xfea"), r#""\xff\xfea""#);
        // A surrogate, an overlong form, and a character that is cut.
        assert_eq!(quoted(b"\xed\xa0\x80"), r#""\xed\xa0\x80""#);
        assert_eq!(quoted(b"\xc0\x80"), r#""\xc0\x80""#);
        assert_eq!(quoted(b"\xe2\x82z"), r#""\xe2\x82z""#);
    }

    #[test]
    fn only_whole_quoted_texts_are_read() {
        assert_eq!(unquote(br#""\a\b\t\n\v\f\r\x41""#).unwrap(), b"\x07\x08\t\n\x0b\x0c\rA");
        for wrong in [
            &b""[..],
            b"\"",
            b"a",
            b"\"a",
            b"a\"",
            b"\"a\"b\"",
            b"\"\\\"",
            b"\"\\x4\"",
            b"\"\\xzz\"",
            b"\"\\101\"",
            b"\"\\u0041\"",
        ] {
            assert_eq!(unquote(wrong), None, "{}", wrong.escape_ascii());
        }
    }
}
