//! Numbers in requests and answers: what counts as one, and how one is written.

use super::hexadecimal;

/// Fractional digits of a sum of decimals.
const DECIMALS: usize = 17;
/// Exponents at which a double is still written without one.
const PLAIN_ZEROS_MAX: i32 = 7;
/// Integers of at most this size are written as such.
const INTEGER_MAX: f64 = (i64::MAX / 2) as f64;

/// A 64-bit integer, written without `+`, leading zeros or spaces.
#[must_use]
pub fn parse_integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    match digits {
        [] => return None,
        [b'0'] if digits.len() == text.len() => return Some(0),
        [b'1'..=b'9', rest @ ..] if rest.iter().all(u8::is_ascii_digit) && rest.len() < 19 => {}
        _ => return None,
    }
    let is_negative = digits.len() != text.len();
    let mut number: i64 = 0;
    for digit in digits {
        let digit = i64::from(digit - b'0');
        number = number.checked_mul(10)?;
        number = match is_negative {
            true => number.checked_sub(digit)?,
            false => number.checked_add(digit)?,
        };
    }
    Some(number)
}

/// A double as C reads it, as scores and increments are given: in decimal or hexadecimal digits, or
/// `inf` and `-inf`, but not `nan`.
#[must_use]
pub fn parse_double(text: &[u8]) -> Option<f64> {
    signed(std::str::from_utf8(text).ok()?, |size| {
        // A number that is too large is infinite in Rust, and an error in C.
        let decimal = size.parse().ok().filter(|size: &f64| size.is_finite());
        decimal.or_else(|| hexadecimal::parse(size))
    })
}

/// A double as C reads it where errors of its size are not looked at, as limits of scores are
/// given: what is too large is infinite, and what is too small is zero. Spaces may be in front, a
/// zero byte ends it, and nothing is zero.
#[must_use]
pub fn parse_limit(text: &[u8]) -> Option<f64> {
    let text = text.split(|byte| *byte == 0).next()?;
    if text.is_empty() {
        return Some(0.0);
    }
    let is_space = |letter: char| matches!(letter, ' ' | '\t'..='\r');
    let text = std::str::from_utf8(text).ok()?.trim_start_matches(is_space);
    signed(text, |size| size.parse().ok().or_else(|| hexadecimal::parse_any(size)))
}

/// A double with a sign or none, whose digits are read by a function.
fn signed(text: &str, read: impl FnOnce(&str) -> Option<f64>) -> Option<f64> {
    let (is_negative, size) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let size = match size.as_bytes().first()? {
        b'0'..=b'9' | b'.' => read(size)?,
        _ if size.eq_ignore_ascii_case("inf") || size.eq_ignore_ascii_case("infinity") => {
            f64::INFINITY
        }
        _ => return None,
    };
    Some(if is_negative { -size } else { size })
}

/// The shortest text that is read as this double; without an exponent where that is short too.
#[must_use]
pub fn format_double(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    if number == 0.0 {
        return if number.is_sign_negative() { "-0" } else { "0" }.to_owned();
    }
    if number.abs() <= INTEGER_MAX && number.fract() == 0.0 {
        return format!("{}", number as i64);
    }
    let scientific = format!("{:e}", number.abs());
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let sign = if number < 0.0 { "-" } else { "" };
    format!("{sign}{}", with_exponent(&digits, exponent))
}

/// Digits of which the first stands for `10^exponent`.
fn with_exponent(digits: &str, exponent: i32) -> String {
    let count = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    // Power of ten of the last digit.
    let last = exponent - (count - 1);
    if last >= 0 && exponent.abs() < count + PLAIN_ZEROS_MAX {
        return format!("{digits}{}", "0".repeat(usize::try_from(last).unwrap_or(0)));
    }
    if last < 0 && (last > -PLAIN_ZEROS_MAX || exponent.abs() < 4) {
        if exponent < 0 {
            let zeros = usize::try_from(-exponent - 1).unwrap_or(0);
            return format!("0.{}{digits}", "0".repeat(zeros));
        }
        let whole = usize::try_from(exponent + 1).unwrap_or(0);
        return format!("{}.{}", &digits[..whole], &digits[whole..]);
    }
    let (first, rest) = digits.split_at(1);
    let point = if rest.is_empty() { "" } else { "." };
    format!("{first}{point}{rest}e{exponent:+}")
}

/// The exact sum of two decimals with up to 17 fractional digits, written without an exponent or
/// trailing zeros. `None` if one of them has an exponent, or is too long for that.
#[must_use]
pub fn add_decimals(one: &[u8], other: &[u8]) -> Option<String> {
    let sum = decimal(one)?.checked_add(decimal(other)?)?;
    let sign = if sum < 0 { "-" } else { "" };
    let digits = format!("{:0>width$}", sum.unsigned_abs(), width = DECIMALS + 1);
    let (whole, fraction) = digits.split_at(digits.len() - DECIMALS);
    Some(trim_decimal(&format!("{sign}{whole}.{fraction}")).to_owned())
}

/// A decimal without trailing zeros behind its point.
#[must_use]
pub fn trim_decimal(text: &str) -> &str {
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => text,
    }
}

/// A decimal in units of 10^-17.
fn decimal(text: &[u8]) -> Option<i128> {
    let text = std::str::from_utf8(text).ok()?;
    let (is_negative, size) = match text.strip_prefix('-') {
        Some(size) => (true, size),
        None => (false, text),
    };
    let (whole, fraction) = size.split_once('.').unwrap_or((size, ""));
    let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let is_empty = whole.is_empty() && fraction.is_empty();
    if is_empty || !is_number(whole) || !is_number(fraction) || fraction.len() > DECIMALS {
        return None;
    }
    let size: i128 = format!("{whole}{fraction:0<DECIMALS$}").parse().ok()?;
    Some(if is_negative { -size } else { size })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_one_spelling() {
        for number in [0, 1, -1, 10, i64::MAX, i64::MIN] {
            assert_eq!(parse_integer(number.to_string().as_bytes()), Some(number));
        }
        for wrong in
            ["", "-", "+1", "01", "-0", " 1", "1 ", "1.0", "9223372036854775808", "a", "--1"]
        {
            assert_eq!(parse_integer(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn doubles_are_read_as_scores_are() {
        for (text, number) in [
            ("1.5", 1.5),
            ("-.5", -0.5),
            ("1e3", 1000.0),
            ("+inf", f64::INFINITY),
            ("-0x1F", -31.0),
        ] {
            assert_eq!(parse_double(text.as_bytes()), Some(number));
        }
        for wrong in ["", "nan", " 1", "1 ", "e1", "--1", "1.5a", "1e400", "--0x1", "0x"] {
            assert_eq!(parse_double(wrong.as_bytes()), None, "{wrong}");
        }
    }

    /// What `strtod` of glibc answers.
    #[test]
    fn limits_may_be_infinite_and_have_spaces_in_front() {
        for (text, number) in [
            ("1.5", 1.5),
            (" \t\n\x0b\x0c\r-0x1F", -31.0),
            ("0x1p99999", f64::INFINITY),
            ("-1e400", f64::NEG_INFINITY),
            ("0x1p-99999", 0.0),
            ("1e-400", 0.0),
            ("", 0.0),
            ("\0a", 0.0),
            (" 1\0a", 1.0),
            ("+INFINITY", f64::INFINITY),
        ] {
            assert_eq!(parse_limit(text.as_bytes()), Some(number), "{text}");
        }
        for wrong in [" ", "nan", "1 ", "- 1", "+-1", "-", " \0", "1.5a", "0xp1", "\u{85}1"] {
            assert_eq!(parse_limit(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn doubles_are_written_as_briefly_as_possible() {
        for (number, text) in [
            (3.0, "3"),
            (1.1, "1.1"),
            (-0.001, "-0.001"),
            (17_179_869_184.0, "17179869184"),
            (1e20, "1e+20"),
            (1.5e-9, "1.5e-9"),
            (f64::NEG_INFINITY, "-inf"),
            (0.0, "0"),
            (123.456, "123.456"),
            (1e15, "1000000000000000"),
            (1e16, "10000000000000000"),
            (-1.7e18, "-1700000000000000000"),
            (1e19, "1e+19"),
            (9.869_604_401_089_358, "9.869604401089358"),
            (1_234.000_000_1, "1234.0000001"),
            (41_631.759_756, "41631.759756"),
            (41_631.759_756_02, "4.163175975602e+4"),
        ] {
            assert_eq!(format_double(number), text);
        }
    }

    #[test]
    fn decimals_are_added_exactly() {
        for (one, other, sum) in
            [("0.1", "0.2", "0.3"), ("3", "1.1", "4.1"), ("-1.5", "1.5", "0"), ("5", "-6", "-1")]
        {
            assert_eq!(add_decimals(one.as_bytes(), other.as_bytes()).as_deref(), Some(sum));
        }
        assert_eq!(add_decimals(b"1e5", b"1"), None);
        assert_eq!(add_decimals(b"", b"1"), None);
    }
}
