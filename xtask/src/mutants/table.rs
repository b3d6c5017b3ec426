//! The table of mutations: what is changed where, why that matters, and which tests notice.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use serde::Deserialize;

use crate::repository::Crate;
use crate::source::Source;
use crate::violation::Violation;

/// Below the root of the repository.
const FOLDER: &str = "tests/mutants";
const RULE: &str = "mutants";

/// A change of meaning that a test must notice.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mutation {
    /// The crate's folder, a slash, and what goes wrong.
    pub(crate) name: String,
    /// Relative to the root of the repository.
    pub(crate) file: String,
    /// Occurs exactly once in the file.
    pub(crate) before: String,
    pub(crate) after: String,
    /// What the mutation would do to a user.
    pub(crate) why: String,
    /// Arguments of `cargo test`; the first run that fails has noticed.
    pub(crate) tests: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    #[serde(default)]
    mutation: Vec<Mutation>,
}

impl Mutation {
    /// Says so if the entry does not fit the file any more.
    pub(crate) fn stale(&self, root: &Path) -> Option<String> {
        let why = match fs::read_to_string(root.join(&self.file)) {
            Ok(text) => self.mismatch(&text)?,
            Err(error) => error.to_string(),
        };
        Some(format!("{}: {}: {why}", self.name, self.file))
    }

    /// The text of the file with the change.
    pub(crate) fn apply(&self, text: &str) -> anyhow::Result<String> {
        match self.mismatch(text) {
            None => Ok(text.replacen(&self.before, &self.after, 1)),
            Some(why) => anyhow::bail!("{}: {}: {why}", self.name, self.file),
        }
    }

    /// The folder of the crate that it changes.
    pub(crate) fn crate_folder(&self) -> &str {
        self.file.split("/src/").next().unwrap_or(&self.file)
    }

    fn mismatch(&self, text: &str) -> Option<String> {
        if self.before == self.after {
            return Some("the text after is the text before".to_owned());
        }
        match text.matches(&self.before).count() {
            1 => None,
            0 => Some("the text before is not there any more".to_owned()),
            count => Some(format!("the text before is there {count} times: make it longer")),
        }
    }
}

/// All mutations, in the order of the files' names.
pub(crate) fn read(root: &Path) -> anyhow::Result<Vec<Mutation>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(root.join(FOLDER)).with_context(|| format!("cannot read {FOLDER}"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            paths.push(path);
        }
    }
    paths.sort();
    let mut all = Vec::new();
    for path in paths {
        let name = path.display();
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {name}"))?;
        let table: Table = toml::from_str(&text).with_context(|| name.to_string())?;
        all.extend(table.mutation);
    }
    Ok(all)
}

/// For `tidy`: entries that cannot be read, do not fit the sources, or name no test.
pub(crate) fn check(crates: &[Crate], sources: &[Source]) -> Vec<Violation> {
    let mut names = HashSet::new();
    let tables = sources.iter().filter(|source| is_table(source));
    let found = tables.flat_map(|source| match toml::from_str::<Table>(&source.text) {
        Ok(table) => {
            let found = table.mutation.iter().flat_map(|mutation| {
                let line = line_of(source, mutation);
                let advice = advice(mutation, crates, sources, names.insert(mutation.name.clone()));
                advice.into_iter().map(move |advice| source.violation(line, RULE, advice))
            });
            found.collect()
        }
        Err(error) => vec![source.violation(1, RULE, error.message().to_owned())],
    });
    found.collect()
}

fn is_table(source: &Source) -> bool {
    source.path.starts_with(FOLDER) && source.path.ends_with(".toml")
}

fn line_of(source: &Source, mutation: &Mutation) -> usize {
    let entry = format!("name = \"{}\"", mutation.name);
    let mut lines = source.lines();
    lines.find(|(_, text)| *text == entry).map_or(1, |(line, _)| line)
}

fn advice(mutation: &Mutation, crates: &[Crate], sources: &[Source], is_new: bool) -> Vec<String> {
    let mut advice = Vec::new();
    let name = &mutation.name;
    if !is_new {
        advice.push(format!("{name}: another mutation has this name"));
    }
    match sources.iter().find(|source| source.path == mutation.file) {
        Some(source) => advice.extend(mutation.mismatch(&source.text)),
        None => advice.push(format!("{name}: there is no {}", mutation.file)),
    }
    if mutation.tests.is_empty() || mutation.why.trim().is_empty() {
        advice.push(format!("{name}: say why it matters, and which tests must notice it"));
    }
    let commands = mutation.tests.iter();
    let missing = commands.filter_map(|command| missing_test(command, crates, sources));
    advice.extend(missing.map(|missing| format!("{name}: {missing}")));
    advice
}

/// Whether a command names a file of tests, or a function in it, that is not there: it would run
/// nothing.
fn missing_test(command: &str, crates: &[Crate], sources: &[Source]) -> Option<String> {
    let words: Vec<&str> = command.split_whitespace().collect();
    let after = |option| words.iter().position(|word| *word == option).map(|at| at + 1);
    let package = after("-p").and_then(|at| words.get(at));
    let Some(member) = crates.iter().find(|member| Some(&&member.name[..]) == package) else {
        return Some(format!("`cargo test {command}` names no crate with -p"));
    };
    let [own, tests] = ["src/", "tests/"].map(|part| format!("{}/{part}", member.folder));
    let (places, filter) = match (after("--test"), after("--lib")) {
        (Some(at), _) => (vec![format!("{tests}{}", words.get(at)?)], words.get(at + 1)),
        (None, Some(at)) => (vec![own], words.get(at)),
        (None, None) => (vec![own, tests.clone()], after("-p").and_then(|at| words.get(at + 1))),
    };
    let is_inside = |source: &&Source| places.iter().any(|place| source.path.starts_with(place));
    let mut files = sources.iter().filter(is_inside).peekable();
    if files.peek().is_none() {
        return Some(format!("there are no tests for `cargo test {command}`"));
    }
    let wanted = filter.filter(|word| !word.starts_with('-'))?;
    let is_there = files.any(|source| match source.path.starts_with(&tests) {
        // A filter is a part of a test's path.
        true => test_paths(source).iter().any(|path| path.contains(wanted)),
        // Tests inside of sources are in modules of any name.
        false => {
            wanted.split("::").all(|part| source.path.contains(part) || source.text.contains(part))
        }
    });
    (!is_there).then(|| format!("`cargo test {command}` would run nothing"))
}

/// The paths of the functions of a file below `tests/`, as the test program names them.
fn test_paths(source: &Source) -> Vec<String> {
    let (_, file) = source.path.split_once("/tests/").unwrap_or(("", &source.path));
    let file = file.trim_end_matches(".rs");
    // `tests/a.rs` and `tests/a/main.rs` are programs, `tests/a/b.rs` is a module.
    let modules = match file.split_once('/') {
        None | Some((_, "main")) => String::new(),
        Some((_, modules)) => modules.replace('/', "::") + "::",
    };
    let functions = source.text.lines().filter_map(|line| line.trim_start().strip_prefix("fn "));
    let names = functions.filter_map(|rest| rest.split(['(', '<']).next());
    names.map(|name| format!("{modules}{name}")).collect()
}

#[cfg(test)]
impl Mutation {
    /// A mutation of `crates/a/src/b.rs`.
    pub(crate) fn of(name: &str, before: &str, after: &str) -> Mutation {
        Mutation {
            name: name.to_owned(),
            file: "crates/a/src/b.rs".to_owned(),
            before: before.to_owned(),
            after: after.to_owned(),
            why: "it matters".to_owned(),
            tests: vec!["-p zodium-a --test c".to_owned()],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRY: &str = r#"[[mutation]]
name = "a/even"
file = "crates/a/src/b.rs"
before = "== 0"
after = "== 1"
why = "odd numbers"
tests = ["-p zodium-a --test c even"]
"#;

    fn found(table: &str, code: &str) -> Vec<(usize, String)> {
        let sources = [
            Source::of("tests/mutants/a.toml", table),
            Source::of("crates/a/src/b.rs", code),
            Source::of("crates/a/tests/c.rs", "fn even() {}\n"),
            Source::of("crates/a/tests/all/d.rs", "fn an_odd_one() {}\n"),
        ];
        let crates = [Crate::of("zodium-a", "a", &[])];
        let found = check(&crates, &sources).into_iter();
        found.map(|violation| (violation.line, violation.advice)).collect()
    }

    #[test]
    fn entries_that_do_not_fit_are_reported_at_their_line() {
        for tests in ["c even", "all", "all odd", "all d::", "all d::an_odd"] {
            let entry = ENTRY.replace("c even", tests);
            assert_eq!(found(&entry, "fn f(n: u8) -> bool { n == 0 }\n"), [], "{tests}");
        }
        for tests in ["", " even", " an_odd", " d::", " --lib", " --lib n"] {
            let entry = ENTRY.replace(" --test c even", tests);
            assert_eq!(found(&entry, "fn f(n: u8) -> bool { n == 0 }\n"), [], "{tests}");
        }
        let twice = format!("{ENTRY}\n{ENTRY}");
        for (table, code, words) in [
            (ENTRY, "fn f() {}\n", "not there any more"),
            (ENTRY, "fn f(n: u8) -> bool { n == 0 || 2 == 0 }\n", "2 times"),
            (&twice, "const A: bool = 1 == 0;\n", "has this name"),
            (&ENTRY.replace("b.rs", "d.rs"), "", "there is no"),
            (&ENTRY.replace("odd numbers", " "), "const A: bool = 1 == 0;\n", "why it matters"),
            (&ENTRY.replace("--test c", "--test d"), "const A: bool = 1 == 0;\n", "no tests"),
            (&ENTRY.replace(" even", " odd"), "const A: bool = 1 == 0;\n", "run nothing"),
            (
                &ENTRY.replace("--test c even", "no_such"),
                "const A: bool = 1 == 0;\n",
                "run nothing",
            ),
            (&ENTRY.replace("zodium-a", "zodium-b"), "const A: bool = 1 == 0;\n", "no crate"),
            (&ENTRY.replace("c even", "all d::odd"), "const A: bool = 1 == 0;\n", "run nothing"),
            (&ENTRY.replace("== 1", "== 0"), "const A: bool = 1 == 0;\n", "is the text before"),
        ] {
            let found = found(table, code);
            assert_eq!(found.len(), 1, "{words}: {found:?}");
            assert_eq!(found[0].0, 2, "{words}");
            assert!(found[0].1.contains(words), "{words}: {found:?}");
        }
        assert_eq!(found(&ENTRY.replace("why", "reason"), "").len(), 1);
    }

    #[test]
    fn only_the_named_text_is_replaced() {
        let mutation = Mutation::of("a/b", "b", "c");
        assert_eq!(mutation.apply("abd").unwrap(), "acd");
        assert!(mutation.apply("abbd").is_err());
        assert!(mutation.apply("ad").is_err());
    }
}
