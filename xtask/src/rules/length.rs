//! `length`: files and functions that one can hold in one's head.
//!
//! Limits where it hurts to go on, above what CONTRIBUTING.md asks for. Tests do not count: more
//! of them is better.

use crate::source::Source;
use crate::violation::Violation;

const RULE: &str = "length";

const FILE_LINES_MAX: usize = 700;
const FUNCTION_LINES_MAX: usize = 70;

/// A file or functions in it that are too long; programs in other languages only as files.
pub(crate) fn check(source: &Source) -> Vec<Violation> {
    let mut violations = Vec::new();
    let file_lines = file_lines(source);
    if is_program(source) && file_lines > FILE_LINES_MAX {
        let advice = format!(
            "{file_lines} lines without tests, {FILE_LINES_MAX} is the limit: split the file \
             where its second subject begins"
        );
        violations.push(source.violation(1, RULE, advice));
    }
    for function in source.syntax.iter().flat_map(|syntax| &syntax.functions) {
        let lines = function.lines.clone().count();
        if lines > FUNCTION_LINES_MAX {
            let advice = format!(
                "{} has {lines} lines, {FUNCTION_LINES_MAX} is the limit: name its parts",
                function.name
            );
            violations.push(source.violation(*function.lines.start(), RULE, advice));
        }
    }
    violations
}

fn is_program(source: &Source) -> bool {
    source.is_rust() || source.path.ends_with(".py")
}

fn file_lines(source: &Source) -> usize {
    let tests = source.syntax.iter().flat_map(|syntax| &syntax.tests);
    // Of tests inside tests only the outer ones are listed.
    source.text.lines().count() - tests.map(|lines| lines.clone().count()).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATEMENT: &str = "    let _ = 1;\n";

    /// The line of the only violation.
    fn line(text: &str) -> Option<usize> {
        let violations = check(&Source::of("crates/disk/src/a.rs", text));
        assert!(violations.len() < 2);
        violations.first().map(|violation| violation.line)
    }

    #[test]
    fn functions_end_at_the_limit() {
        let function =
            |lines: usize| format!("//! A.\n\nfn a() {{\n{}}}\n", STATEMENT.repeat(lines - 2));
        assert_eq!(line(&function(70)), None);
        assert_eq!(line(&function(71)), Some(3));
    }

    #[test]
    fn functions_in_tests_have_no_limit() {
        let body = STATEMENT.repeat(100);
        assert_eq!(line(&format!("#[cfg(test)]\nmod tests {{\nfn a() {{\n{body}}}\n}}\n")), None);
        assert_eq!(line(&format!("#[test]\nfn a() {{\n{body}}}\n")), None);
    }

    #[test]
    fn files_end_at_the_limit_without_their_tests() {
        let tests =
            format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "const _: () = ();\n".repeat(900));
        assert_eq!(line(&format!("{}{tests}", "//! A.\n".repeat(700))), None);
        assert_eq!(line(&format!("{}{tests}", "//! A.\n".repeat(701))), Some(1));
    }

    #[test]
    fn prose_and_data_have_no_limit() {
        assert_eq!(check(&Source::of("docs/format.md", &"a\n".repeat(1000))), []);
        assert_eq!(check(&Source::of("tests/e2e/test_a.py", &"a\n".repeat(701))).len(), 1);
    }
}
