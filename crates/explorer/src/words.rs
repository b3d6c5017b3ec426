//! How numbers, times and texts are written on the pages.

use zodium_tools::text::{id_repr, printable, str_repr, time_of};
use zodium_types::{Oid, Tid};

/// Longest user or description in a table, in characters.
const TEXT_CHARACTERS: usize = 160;
/// Longest name of a class or a database, in characters.
pub(crate) const NAME_CHARACTERS: usize = 200;

/// A number with its thousands set apart.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// Bytes in the unit that leaves at most three digits before the point.
pub(crate) fn bytes(number: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let (mut value, mut unit) = (number as f64, 0);
    while value >= 1023.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = usize::from(unit > 0 && value < 9.95);
    format!("{value:.digits$} {}", UNITS[unit])
}

/// Part of a whole in percent.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "\u{2013}".to_owned();
    }
    let share = part as f64 * 100.0 / whole as f64;
    match share {
        _ if part == 0 => "0 %".to_owned(),
        share if share < 0.1 => "< 0.1 %".to_owned(),
        share if share < 10.0 => format!("{share:.1} %"),
        share => format!("{share:.0} %"),
    }
}

/// An oid as people write it.
pub(crate) fn oid(oid: Oid) -> String {
    id_repr(oid.0)
}

/// The time of a tid to the second, in UTC.
pub(crate) fn time(tid: Tid) -> String {
    time_of(tid).chars().take(19).collect()
}

/// The time of a tid for machines.
pub(crate) fn datetime(tid: Tid) -> String {
    time(tid).replace(' ', "T") + "Z"
}

/// A text of a transaction: control characters and others that do not show are escaped.
pub(crate) fn plain(text: &[u8]) -> String {
    let shortened = shortened(&String::from_utf8_lossy(text), TEXT_CHARACTERS);
    let mut text = String::with_capacity(shortened.len());
    for character in shortened.chars() {
        match character {
            '\n' => text.push(' '),
            '\\' | '\'' => text.push(character),
            _ => {
                let quoted = str_repr(character.encode_utf8(&mut [0; 4]));
                text.push_str(quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default());
            }
        }
    }
    text
}

/// The name of a class or a database: characters that do not show are escaped.
pub(crate) fn name(text: &str) -> String {
    printable(shortened(text, NAME_CHARACTERS))
}

fn shortened(text: &str, characters: usize) -> String {
    match text.char_indices().nth(characters) {
        Some((end, _)) => format!("{} \u{2026}", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_exact_enough() {
        assert_eq!(count(1_234_567), "1\u{202f}234\u{202f}567");
        assert_eq!((count(0).as_str(), count(999).as_str()), ("0", "999"));
        for (number, expected) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (10 << 10, "10 KiB"),
            (u64::MAX, "16384 PiB"),
        ] {
            assert_eq!(bytes(number), expected);
        }
        assert_eq!(percent(1, 3), "33 %");
        assert_eq!(percent(1, 100_000), "< 0.1 %");
        assert_eq!(percent(1, 0), "–");
    }

    #[test]
    fn texts_cannot_change_their_direction_or_their_line() {
        assert_eq!(plain("a\u{202e}b\nc'd\\".as_bytes()), "a\\u202eb c'd\\");
        assert_eq!(plain(br"in C:\new's"), r"in C:\new's");
        assert_eq!(name("m.\u{202e}C\\n"), "m.\\u202eC\\n");
        assert_eq!(name(&"x".repeat(300)).chars().count(), 202);
        assert_eq!(plain("x".repeat(200).as_bytes()).chars().count(), 162);
    }
}
