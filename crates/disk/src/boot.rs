//! The last start of the operating system.

use std::fs;
use std::sync::OnceLock;

/// Where Linux has a number that it draws at each start.
const PATH: &str = "/proc/sys/kernel/random/boot_id";

/// A number of the last start; `None` on a system that does not tell.
pub(crate) fn last() -> Option<u64> {
    static BOOT: OnceLock<Option<u64>> = OnceLock::new();
    *BOOT.get_or_init(|| parse(&fs::read_to_string(PATH).ok()?))
}

/// The first half of a number that is written as a UUID.
fn parse(text: &str) -> Option<u64> {
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).take(16).collect();
    u64::from_str_radix(&digits, 16).ok().filter(|number| *number != 0 && digits.len() == 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_has_one_number() {
        assert!(last().is_some());
        assert_eq!(last(), last());
    }

    #[test]
    fn other_texts_are_no_numbers() {
        let text = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0\n";
        assert_eq!(parse(text), Some(0x0f1e_2d3c_4b5a_6978));
        for text in ["", "0f1e2d3c", "00000000-0000-0000-0000-000000000000"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
