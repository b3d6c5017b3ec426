//! `named_tests`: the tests that documents name as evidence are there.
//!
//! A name in a document is a file, in backticks, perhaps with `::` and a function of it:
//! `tests/e2e/test_kill.py::test_x`. What names a claim's test must not outlive it.

use crate::source::Source;
use crate::violation::Violation;

const RULE: &str = "named_tests";

/// Names of files below `crates/` and `tests/` in documents, and of functions in them, that lead
/// nowhere.
pub(crate) fn check(sources: &[Source]) -> Vec<Violation> {
    let documents = sources.iter().filter(|source| source.path.ends_with(".md"));
    let mut violations = Vec::new();
    for document in documents {
        for (line, text) in document.lines() {
            for name in names(text) {
                if let Some(advice) = missing(name, sources) {
                    violations.push(document.violation(line, RULE, advice));
                }
            }
        }
    }
    violations
}

/// What a line has in backticks that looks like a file of ours.
fn names(line: &str) -> impl Iterator<Item = &str> {
    let quoted = line.split('`').skip(1).step_by(2);
    quoted.filter(|name| {
        let file = name.split("::").next().unwrap_or(name);
        let is_ours = file.starts_with("crates/") || file.starts_with("tests/");
        is_ours
            && (file.ends_with(".rs") || file.ends_with(".py"))
            && !file.contains(['*', '{', ' '])
    })
}

fn missing(name: &str, sources: &[Source]) -> Option<String> {
    let (path, function) = name.split_once("::").map_or((name, None), |(path, f)| (path, Some(f)));
    let Some(source) = sources.iter().find(|source| source.path == path) else {
        return Some(format!("names `{path}`, which is not there"));
    };
    // Cases of a test are named in brackets.
    let function = function?.split('[').next()?;
    let is_there = [format!("fn {function}("), format!("def {function}(")]
        .iter()
        .any(|definition| source.text.contains(definition));
    (!is_there).then(|| format!("names `{function}`, which is not in {path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_nowhere_are_reported() {
        let test = || Source::of("crates/a/tests/b.rs", "fn claim() {}\n");
        let script = || Source::of("tests/e2e/test_c.py", "def test_claim():\n    pass\n");
        for (text, found) in [
            ("see `crates/a/tests/b.rs` and `crates/a/tests/b.rs::claim`", 0),
            ("`tests/e2e/test_c.py::test_claim[Z5]` and `tests/e2e`", 0),
            ("`crates/a/tests/b.rs::other`", 1),
            ("`crates/a/tests/other.rs`, `tests/e2e/test_c.py::test_other`", 2),
            ("crates/a/tests/other.rs without backticks, `tests/e2e/*.py`", 0),
        ] {
            let sources = [Source::of("docs/d.md", text), test(), script()];
            assert_eq!(check(&sources).len(), found, "{text}");
        }
    }
}
