//! `header`: every Rust file begins with what it is for.

use crate::source::Source;
use crate::violation::Violation;

/// A Rust file whose first line is no `//!` with a text.
pub(crate) fn check(source: &Source) -> Option<Violation> {
    let first = source.text.lines().next().unwrap_or_default();
    let has_header = first.strip_prefix("//! ").is_some_and(|text| !text.trim().is_empty());
    (source.is_rust() && !has_header)
        .then(|| source.violation(1, "header", "begin the file with `//! ` and what it is for"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_must_say_in_its_first_line_what_it_is_for() {
        assert_eq!(check(&Source::of("a.rs", "//! Frames.\n")), None);
        for text in ["", "//!\n", "//! \n", "\n//! Late.\n", "// Plain.\n", "/// Doc.\nfn a() {}"] {
            assert!(check(&Source::of("a.rs", text)).is_some(), "{text:?}");
        }
        assert_eq!(check(&Source::of("a.md", "")), None);
    }
}
