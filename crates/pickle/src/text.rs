//! The text forms of protocol 0: decimal numbers, quoted byte strings, escaped Unicode.

use std::borrow::Cow;

use crate::Value;

/// Most digits of an integer, as in CPython: the conversion is quadratic.
const DIGITS_MAX: usize = 4300;
/// Digits that are converted at once: so many are less than 2^64.
const DIGITS_AT_ONCE: usize = 19;

/// Parses the integer of an INT or LONG line, without its trailing `L`.
pub(crate) fn parse_decimal(digits: &[u8]) -> Option<Value<'static>> {
    let text = std::str::from_utf8(digits).ok()?.trim();
    if let Ok(number) = text.parse::<i128>() {
        return Some(Value::Int(number));
    }
    let (negative, magnitude) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let all_digits = magnitude.bytes().all(|byte| byte.is_ascii_digit());
    if magnitude.is_empty() || magnitude.len() > DIGITS_MAX || !all_digits {
        return None;
    }
    Some(Value::from_twos_complement(&twos_complement(magnitude, negative)).into_owned())
}

/// Little-endian two's complement of a decimal magnitude, with room for the sign.
fn twos_complement(magnitude: &str, negative: bool) -> Vec<u8> {
    let mut limbs: Vec<u64> = Vec::with_capacity(magnitude.len() / DIGITS_AT_ONCE + 1);
    for digits in magnitude.as_bytes().chunks(DIGITS_AT_ONCE) {
        let number = digits.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0'));
        let (mut carry, scale) = (number, 10_u64.pow(digits.len() as u32));
        for limb in &mut limbs {
            let product = u128::from(*limb) * u128::from(scale) + u128::from(carry);
            (*limb, carry) = (product as u64, (product >> 64) as u64);
        }
        if carry > 0 {
            limbs.push(carry);
        }
    }
    limbs.push(0);
    let mut bytes: Vec<u8> = limbs.iter().flat_map(|limb| limb.to_le_bytes()).collect();
    if negative {
        let mut carry = true;
        for byte in &mut bytes {
            (*byte, carry) = (!*byte).overflowing_add(u8::from(carry));
        }
    }
    bytes
}

/// Parses the float of a FLOAT line, as written by Python's `repr`.
pub(crate) fn parse_float(text: &[u8]) -> Option<f64> {
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}

/// Parses the bytes of a STRING line: a Python 2 `repr` of a `str`, quotes included.
pub(crate) fn unquote(literal: &[u8]) -> Option<Cow<'_, [u8]>> {
    let inner = match literal.trim_ascii_end() {
        [b'\'', inner @ .., b'\''] | [b'"', inner @ .., b'"'] => inner,
        _ => return None,
    };
    if !inner.contains(&b'\\') {
        return Some(Cow::Borrowed(inner));
    }
    let mut out = Vec::with_capacity(inner.len());
    let mut rest = inner;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = if byte == b'\\' { unescape_byte(tail, &mut out)? } else { tail };
        if byte != b'\\' {
            out.push(byte);
        }
    }
    Some(Cow::Owned(out))
}

/// Parses an escape after its backslash; returns the rest.
fn unescape_byte<'a>(escape: &'a [u8], out: &mut Vec<u8>) -> Option<&'a [u8]> {
    let (&kind, tail) = escape.split_first()?;
    let plain = match kind {
        b'\\' | b'\'' | b'"' => kind,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'a' => 0x07,
        b'b' => 0x08,
        b'f' => 0x0c,
        b'v' => 0x0b,
        b'x' => {
            let (value, tail) = take_hex(tail, 2)?;
            out.push(value as u8);
            return Some(tail);
        }
        b'0'..=b'7' => return unescape_octal(escape, out),
        _ => {
            out.extend_from_slice(&[b'\\', kind]);
            return Some(tail);
        }
    };
    out.push(plain);
    Some(tail)
}

fn unescape_octal<'a>(digits: &'a [u8], out: &mut Vec<u8>) -> Option<&'a [u8]> {
    let length = digits.iter().take(3).take_while(|byte| matches!(byte, b'0'..=b'7')).count();
    let (octal, tail) = digits.split_at_checked(length)?;
    let value = octal.iter().fold(0_u32, |value, digit| value * 8 + u32::from(digit - b'0'));
    out.push((value & 0xff) as u8);
    Some(tail)
}

/// Parses the text of a UNICODE line: Latin-1 with `\uXXXX` and `\UXXXXXXXX`.
pub(crate) fn unescape_unicode(line: &[u8]) -> Option<Cow<'_, str>> {
    if line.is_ascii() && !line.contains(&b'\\') {
        return std::str::from_utf8(line).ok().map(Cow::Borrowed);
    }
    String::from_utf8(unescape_utf8(line)?).ok().map(Cow::Owned)
}

/// As [`unescape_unicode`], as UTF-8. Surrogates that are no pair are in it as Python writes them.
pub(crate) fn unescape_utf8(line: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(line.len());
    let mut high_surrogate: Option<u32> = None;
    let mut rest = line;
    while !rest.is_empty() {
        let (code, tail) = take_code_point(rest)?;
        rest = tail;
        let code = match (high_surrogate.take(), code) {
            // Python 2 on a narrow build writes characters beyond U+FFFF as surrogate pairs.
            (Some(high), 0xdc00..=0xdfff) => 0x1_0000 + ((high - 0xd800) << 10) + (code - 0xdc00),
            (high, _) => {
                high.into_iter().for_each(|high| push_surrogate(high, &mut out));
                code
            }
        };
        match char::from_u32(code) {
            Some(character) => {
                out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            }
            None => match code {
                0xd800..=0xdbff => high_surrogate = Some(code),
                0xdc00..=0xdfff => push_surrogate(code, &mut out),
                _ => return None,
            },
        }
    }
    high_surrogate.into_iter().for_each(|high| push_surrogate(high, &mut out));
    Some(out)
}

fn push_surrogate(code: u32, out: &mut Vec<u8>) {
    out.extend([0xed, 0x80 | (code >> 6 & 0x3f) as u8, 0x80 | (code & 0x3f) as u8]);
}

/// Whether bytes are UTF-8 with surrogates, as Python writes a text that has some.
pub(crate) fn has_surrogates(bytes: &[u8]) -> bool {
    let (mut rest, mut has_some) = (bytes, false);
    while let Err(error) = std::str::from_utf8(rest) {
        match rest.get(error.valid_up_to()..) {
            Some([0xed, 0xa0..=0xbf, 0x80..=0xbf, after @ ..]) => (rest, has_some) = (after, true),
            _ => return false,
        }
    }
    has_some
}

fn take_code_point(text: &[u8]) -> Option<(u32, &[u8])> {
    match text {
        [b'\\', b'u', tail @ ..] => take_hex(tail, 4),
        [b'\\', b'U', tail @ ..] => take_hex(tail, 8),
        [byte, tail @ ..] => Some((u32::from(*byte), tail)),
        [] => None,
    }
}

fn take_hex(text: &[u8], length: usize) -> Option<(u32, &[u8])> {
    let (digits, tail) = text.split_at_checked(length)?;
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let value = u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    Some((value, tail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_beyond_128_bits_become_big_integers() {
        let power = "340282366920938463463374607431768211456"; // 2^128
        let mut bytes = vec![0; 16];
        bytes.push(1);
        assert_eq!(parse_decimal(power.as_bytes()), Some(Value::BigInt(bytes.into())));
        let mut bytes = vec![0; 16];
        bytes.push(0xff);
        let negative = format!("-{power}");
        assert_eq!(parse_decimal(negative.as_bytes()), Some(Value::BigInt(bytes.into())));
    }

    /// The two's complement of a decimal magnitude, one digit after the other.
    fn slow_twos_complement(magnitude: &str, negative: bool) -> Vec<u8> {
        let mut bytes = vec![0_u8; magnitude.len() / 2 + 2];
        for digit in magnitude.bytes() {
            let mut carry = u16::from(digit - b'0');
            for byte in &mut bytes {
                let product = u16::from(*byte) * 10 + carry;
                (*byte, carry) = (product as u8, product >> 8);
            }
        }
        let mut carry = negative;
        for byte in bytes.iter_mut().filter(|_| negative) {
            (*byte, carry) = (!*byte).overflowing_add(u8::from(carry));
        }
        bytes
    }

    #[test]
    fn decimals_of_all_lengths_are_right() {
        let digits: String =
            (0..4300_u32).map(|n| char::from(b'0' + (n * n % 97 % 10) as u8)).collect();
        let zeros = format!("{}1{}", "0".repeat(60), "0".repeat(60));
        let lengths = (1..=80).chain([152, 1000, DIGITS_MAX]);
        let texts = lengths.flat_map(|length| [digits[..length].to_owned(), "9".repeat(length)]);
        for text in texts.chain([zeros, "0".repeat(50)]) {
            for negative in [false, true] {
                let value = |bytes: &[u8]| Value::from_twos_complement(bytes).into_owned();
                let expected = value(&slow_twos_complement(&text, negative));
                assert_eq!(value(&twos_complement(&text, negative)), expected, "{text}");
            }
        }
    }

    #[test]
    fn decimals_refuse_what_is_no_number() {
        for text in ["", "-", "1x", "0x10", "--1", &"9".repeat(DIGITS_MAX + 1)] {
            assert_eq!(parse_decimal(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn quoted_strings_undo_every_python_2_escape() {
        let text = br#"'a\x00\'\"\\\n\r\t\a\b\f\v\101\7\q'"#;
        let bytes = b"a\x00'\"\\\n\r\t\x07\x08\x0c\x0bA\x07\\q";
        assert_eq!(unquote(text).as_deref(), Some(&bytes[..]));
        assert_eq!(unquote(b"\"it's\"").as_deref(), Some(&b"it's"[..]));
        for bad in [&b"'"[..], b"'a", b"a'", b"'a\"", b"'\\x1'", b"'\\'"] {
            assert_eq!(unquote(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn unicode_lines_join_surrogate_pairs() {
        let text = unescape_unicode(b"\xe9\\u20ac\\ud83d\\ude00\\U0001f600");
        assert_eq!(text.as_deref(), Some("\u{e9}\u{20ac}\u{1f600}\u{1f600}"));
        assert_eq!(unescape_unicode(b"\\ud83d"), None);
        assert_eq!(unescape_unicode(b"\\ud83dx"), None);
        assert_eq!(unescape_unicode(b"\\u+123"), None);
    }

    #[test]
    fn unicode_lines_with_lone_surrogates_are_as_python_writes_them() {
        for (line, bytes) in [
            (&b"a\\ud83db"[..], &b"a\xed\xa0\xbdb"[..]),
            (b"\\ude00\\ud83d", b"\xed\xb8\x80\xed\xa0\xbd"),
            (b"\\ud83d\\ud83d\\ude00", b"\xed\xa0\xbd\xf0\x9f\x98\x80"),
        ] {
            let text = unescape_utf8(line).unwrap();
            assert_eq!(text, bytes);
            assert!(has_surrogates(&text));
            assert_eq!(unescape_unicode(line), None);
        }
        assert_eq!(unescape_utf8(b"\\U00110000"), None);
    }
}
