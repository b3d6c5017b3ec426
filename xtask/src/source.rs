//! A text file of the repository, and which of its lines are tests.

use crate::syntax::Syntax;
use crate::violation::Violation;

/// A text file. Lines count from 1.
#[derive(Debug)]
pub(crate) struct Source {
    /// Relative to the root of the repository, with slashes.
    pub(crate) path: String,
    pub(crate) text: String,
    /// What the parser knows of it, if it is Rust.
    pub(crate) syntax: Option<Syntax>,
    /// The whole file is only compiled for tests.
    pub(crate) is_test: bool,
}

impl Source {
    /// Takes in a text; a violation if it should be Rust and is not.
    pub(crate) fn new(path: &str, text: String) -> Result<Self, Violation> {
        let syntax = match path.ends_with(".rs") {
            false => None,
            true => Some(Syntax::parse(&text).map_err(|error| Violation {
                path: path.to_owned(),
                line: error.span().start().line,
                rule: "syntax",
                advice: format!("this is not Rust: {error}"),
            })?),
        };
        let is_test = path.split('/').any(|folder| folder == "tests");
        Ok(Self { path: path.to_owned(), text, syntax, is_test })
    }

    /// Without the ends of lines; a carriage return in front of one is a part of the line.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..).zip(self.text.split_terminator('\n'))
    }

    pub(crate) fn is_rust(&self) -> bool {
        self.syntax.is_some()
    }

    /// If the line is only compiled for tests.
    pub(crate) fn is_test_line(&self, line: usize) -> bool {
        let in_test = |syntax: &Syntax| syntax.tests.iter().any(|lines| lines.contains(&line));
        self.is_test || self.syntax.as_ref().is_some_and(in_test)
    }

    pub(crate) fn violation(
        &self,
        line: usize,
        rule: &'static str,
        advice: impl Into<String>,
    ) -> Violation {
        Violation { path: self.path.clone(), line, rule, advice: advice.into() }
    }

    /// The paths without `.rs` of the modules in other files which this one declares for tests.
    pub(crate) fn test_modules(&self) -> impl Iterator<Item = String> {
        let folder = ["/mod.rs", "/lib.rs", "/main.rs", ".rs"]
            .iter()
            .find_map(|end| self.path.strip_suffix(end))
            .unwrap_or_default();
        let modules = self.syntax.iter().flat_map(|syntax| &syntax.test_modules);
        modules.map(move |module| format!("{folder}/{module}"))
    }
}

#[cfg(test)]
impl Source {
    /// A source that parses.
    pub(crate) fn of(path: &str, text: &str) -> Self {
        Self::new(path, text.to_owned()).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_rust_is_a_violation_at_its_line() {
        let violation = Source::new("a.rs", "fn a() {}\nfn {\n".to_owned()).unwrap_err();
        assert_eq!((violation.line, violation.rule), (2, "syntax"));
    }

    #[test]
    fn lines_of_test_modules_and_files_below_tests_are_tests() {
        let text = "fn a() {}\n\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\n\nfn c() {}\n";
        let source = Source::of("crates/disk/src/a.rs", text);
        let tests: Vec<usize> = (1..=8).filter(|&line| source.is_test_line(line)).collect();
        assert_eq!(tests, [3, 4, 5, 6]);
        assert!(Source::of("crates/disk/tests/a.rs", text).is_test_line(1));
        assert!(!Source::of("crates/disk/src/tests_of_it.rs", text).is_test_line(1));
    }

    #[test]
    fn test_modules_are_found_where_the_compiler_finds_them() {
        for (path, module) in [
            ("crates/zeo/src/lib.rs", "crates/zeo/src/samples"),
            ("crates/zeo/src/codec/mod.rs", "crates/zeo/src/codec/samples"),
            ("crates/zeo/src/codec.rs", "crates/zeo/src/codec/samples"),
        ] {
            let source = Source::of(path, "mod frame;\n#[cfg(test)]\nmod samples;\n");
            assert_eq!(source.test_modules().collect::<Vec<_>>(), [module]);
        }
    }
}
