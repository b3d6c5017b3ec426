//! `columns`, `space`, `ascii`: how the lines of a file look, where rustfmt gives up or does not
//! look at all.

use crate::source::Source;
use crate::violation::Violation;

const COLUMNS_MAX: usize = 100;

/// Lines that are too wide, end in white space, or hold what one cannot see or type.
pub(crate) fn check(source: &Source) -> Vec<Violation> {
    source.lines().flat_map(|(line, text)| check_line(source, line, text)).collect()
}

fn check_line(source: &Source, line: usize, text: &str) -> Vec<Violation> {
    let columns = text.chars().count();
    let is_makefile = source.path.rsplit('/').next() == Some("Makefile");
    let mut violations = Vec::new();
    if source.is_rust() && columns > COLUMNS_MAX {
        let advice = format!("{columns} of them, {COLUMNS_MAX} is the limit: break the line");
        violations.push(source.violation(line, "columns", advice));
    }
    let is_sample = source.path.contains("/samples/");
    if text.ends_with([' ', '\t', '\r']) && !is_sample {
        violations.push(source.violation(line, "space", "white space at the end: cut it"));
    }
    if text.contains('\t') && !is_makefile {
        violations.push(source.violation(line, "space", "a tab: use spaces, or \\t in a string"));
    }
    if source.is_rust() && !text.is_ascii() && !source.is_test_line(line) {
        let advice = "a character outside of ASCII: draw with ASCII, escape it in a string";
        violations.push(source.violation(line, "ascii", advice));
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(path: &str, text: &str) -> Vec<(usize, &'static str)> {
        let violations = check(&Source::of(path, text));
        violations.into_iter().map(|violation| (violation.line, violation.rule)).collect()
    }

    #[test]
    fn lines_of_rust_end_at_the_limit() {
        let line = |columns: usize| format!("fn a() {{}}\n//{}\n", "a".repeat(columns - 2));
        assert_eq!(rules("a.rs", &line(100)), []);
        assert_eq!(rules("a.rs", &line(101)), [(2, "columns")]);
        assert_eq!(rules("a.md", &line(101)), []);
    }

    #[test]
    fn columns_are_characters() {
        let text = format!("#[cfg(test)]\nmod tests {{\n//{}\n}}\n", "\u{e4}".repeat(98));
        assert_eq!(rules("a.rs", &text), []);
    }

    #[test]
    fn white_space_at_the_end_and_tabs_are_found_in_any_text() {
        assert_eq!(rules("a.md", "a \nb\nc\r\n"), [(1, "space"), (3, "space")]);
        assert_eq!(rules("a.py", "\ta\n"), [(1, "space")]);
        // What other programs wrote stays as it is.
        assert_eq!(rules("tests/samples/a.aof", "*2\r\n"), []);
        assert_eq!(rules("Makefile", "\ta\n"), []);
        assert_eq!(rules("tests/Makefile", "\ta\t\n"), [(1, "space")]);
    }

    #[test]
    fn rust_is_ascii_outside_of_tests() {
        assert_eq!(rules("src/a.rs", "// \u{2500}\n"), [(1, "ascii")]);
        assert_eq!(rules("tests/a.rs", "// \u{2500}\n"), []);
        assert_eq!(rules("a.md", "\u{2500}\n"), []);
    }
}
