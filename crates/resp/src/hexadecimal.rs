//! Doubles in hexadecimal digits, as C reads them: `0x1F`, `0x.8`, `0x1.8p-3`.

/// Bits of the digits that are kept. What is behind them only counts in the lowest bit, for the
/// rounding: a double has 53.
const KEPT_BITS: u32 = 60;
/// Exponent of the smallest double, the unit of those without a leading one.
const EXPONENT_MIN: i64 = -1074;
/// Doubles below two to this have no leading one.
const NORMAL_EXPONENT_MIN: i64 = -1022;
/// No double reaches two to this.
const EXPONENT_MAX: i64 = 1024;

/// A number behind its sign. `None` also for one that is too large, or too small and not zero, as
/// an error of C.
pub(crate) fn parse(text: &str) -> Option<f64> {
    let (number, is_zero) = read(text)?;
    (number.is_finite() && (number != 0.0 || is_zero)).then_some(number)
}

/// As [`parse`]; what is too large is infinite, and what is too small is zero.
pub(crate) fn parse_any(text: &str) -> Option<f64> {
    read(text).map(|(number, _)| number)
}

/// The nearest double to a number, and whether the number is zero.
fn read(text: &str) -> Option<(f64, bool)> {
    let text = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))?;
    let (digits, exponent) = match text.split_once(['p', 'P']) {
        Some((digits, exponent)) => (digits, parse_exponent(exponent)?),
        None => (text, 0),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let (mut kept, mut power): (u64, i64) = (0, 0);
    for digit in whole.chars().chain(fraction.chars()) {
        let digit = u64::from(digit.to_digit(16)?);
        match kept >> KEPT_BITS {
            0 => kept = kept << 4 | digit,
            _ => {
                kept |= u64::from(digit != 0);
                power += 4;
            }
        }
    }
    power -= 4 * i64::try_from(fraction.len()).ok()?;
    if kept == 0 {
        return Some((0.0, true));
    }
    Some((scaled(kept, power.saturating_add(exponent)), false))
}

fn parse_exponent(text: &str) -> Option<i64> {
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let size = digits.parse().unwrap_or(i64::MAX / 4).min(i64::MAX / 4);
    Some(if is_negative { -size } else { size })
}

/// The nearest double to `number` times two to `power`.
fn scaled(number: u64, power: i64) -> f64 {
    let end = i64::from(u64::BITS - number.leading_zeros()).saturating_add(power);
    if end > EXPONENT_MAX {
        return f64::INFINITY;
    }
    if end <= NORMAL_EXPONENT_MIN {
        // The bits of such a double are its multiple of the smallest one.
        let power = end.saturating_sub(i64::from(u64::BITS));
        let shift = u32::try_from(EXPONENT_MIN.saturating_sub(power)).unwrap_or(u32::MAX);
        return f64::from_bits(shifted(number << number.leading_zeros(), shift));
    }
    // Each step is exact but for the rounding of the number. The power is one of a double's.
    let power = i32::try_from(power).unwrap_or(0);
    number as f64 * 2f64.powi(power / 2) * 2f64.powi(power - power / 2)
}

/// A number shifted to the right, rounded to the nearest, at a tie to the even one.
fn shifted(number: u64, shift: u32) -> u64 {
    match shift {
        0 => number,
        1..64 => {
            let (kept, half) = (number >> shift, 1 << (shift - 1));
            let rest = number & ((1 << shift) - 1);
            kept + u64::from(rest > half || rest == half && kept & 1 == 1)
        }
        _ => u64::from(shift == u64::BITS && number > 1 << 63),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `strtod` of glibc answers.
    #[test]
    fn numbers_are_those_of_c() {
        for (text, number) in [
            ("0x10", 16.0),
            ("0XaF", 175.0),
            ("0x.8p1", 1.0),
            ("0x1.8", 1.5),
            ("0x1.", 1.0),
            ("0x1p-3", 0.125),
            ("0x1P+3", 8.0),
            ("0x0", 0.0),
            ("0x0p99999999999999999999", 0.0),
            ("0x1.123456789abcdef12p3", 8.568_888_888_888_889),
            ("0x1fffffffffffff8", (1_u64 << 57) as f64),
            ("0x1.00000000000008", 1.0),
            ("0x1.000000000000080000000000000000001", 1.000_000_000_000_000_2),
            ("0x1.fffffffffffffp1023", f64::MAX),
            ("0x1p-1022", f64::MIN_POSITIVE),
            ("0x1p-1023", f64::from_bits(1 << 51)),
            ("0x1p-1074", f64::from_bits(1)),
            ("0x1.8p-1074", f64::from_bits(2)),
            ("0x1.4p-1074", f64::from_bits(1)),
            ("0x1.8p-1075", f64::from_bits(1)),
            ("0x1.fffffffffffffp-1023", f64::MIN_POSITIVE),
            ("0x0.0000000000000000000000000000001p124", 1.0),
        ] {
            assert_eq!(parse(text), Some(number), "{text}");
        }
    }

    #[test]
    fn what_is_none_is_refused() {
        for wrong in [
            "",
            "10",
            "0x",
            "0x.",
            "0x+1",
            "0xg",
            " 0x1",
            "0x1 ",
            "0x1p",
            "0x1p+",
            "0x1p1.5",
            "0x1..2",
            "0x1p1024",
            "0x1.fffffffffffff8p1023",
            "0x1p99999999999999999999",
            "0x1p-1080",
            "0x1p-1075",
            "0x1p-99999999999999999999",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
