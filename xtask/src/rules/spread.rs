//! `spread`: the methods of a type stand in a few files of its crate.
//!
//! A type with methods in many files is a whole crate under one name: every file changes its data.
//! Its data belong to parts with methods of their own.

use std::collections::BTreeMap;

use crate::source::Source;
use crate::violation::Violation;

const RULE: &str = "spread";

/// Files with an `impl` of a type, without those of traits.
const FILES_MAX: usize = 8;

/// The files with methods of a type, by path, and the line of the first ones.
type Files<'a> = BTreeMap<&'a str, (&'a Source, usize)>;

/// The types with methods in too many files. Types of one name in a crate count as one.
pub(crate) fn check(sources: &[Source]) -> Vec<Violation> {
    let mut types: BTreeMap<(&str, &str), Files> = BTreeMap::new();
    for source in sources {
        let (Some((root, _)), Some(syntax)) = (source.path.split_once("/src/"), &source.syntax)
        else {
            continue;
        };
        for (name, line) in &syntax.methods {
            if !source.is_test_line(*line) {
                let files = types.entry((root, name)).or_default();
                files.entry(&source.path).or_insert((source, *line));
            }
        }
    }
    let spread = types.into_iter().filter(|(_, files)| files.len() > FILES_MAX);
    spread.filter_map(|((_, name), files)| advise(name, &files)).collect()
}

fn advise(name: &str, files: &Files) -> Option<Violation> {
    let (source, line) = files.values().next()?;
    let advice = format!(
        "{} files have methods of {name}, {FILES_MAX} is the limit: give its data to parts, and \
         them the methods: {}",
        files.len(),
        files.keys().copied().collect::<Vec<_>>().join(", ")
    );
    Some(source.violation(*line, RULE, advice))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: usize, text: &str) -> usize {
        let path = |number| format!("crates/a/src/file_{number}.rs");
        let sources: Vec<_> = (0..files).map(|number| Source::of(&path(number), text)).collect();
        check(&sources).len()
    }

    #[test]
    fn a_type_with_methods_in_many_files_is_reported_once() {
        let text = "impl<T> Server<T> { fn a() {} }\nimpl<T> Server<T> { fn b() {} }";
        assert_eq!(found(FILES_MAX, text), 0);
        assert_eq!(found(FILES_MAX + 1, text), 1);
    }

    #[test]
    fn traits_tests_and_other_crates_do_not_count() {
        assert_eq!(found(FILES_MAX + 1, "impl Clone for Server {}"), 0);
        assert_eq!(found(FILES_MAX + 1, "#[cfg(test)]\nmod tests { impl Server { } }"), 0);
        let path = |number| format!("crates/crate-{number}/src/lib.rs");
        let sources: Vec<_> =
            (0..=FILES_MAX).map(|number| Source::of(&path(number), "impl Server {}")).collect();
        assert_eq!(check(&sources).len(), 0);
    }
}
