//! The mutations of a crate, as cargo-mutants lists them.

use std::path::Path;

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};

use super::super::sample;
use super::Crate;

/// A mutation. All fields but the number are those of cargo-mutants.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Planned {
    /// Its switch, from 1.
    #[serde(default)]
    pub(super) id: u32,
    /// The file with line and column, and what is done there.
    pub(super) name: String,
    /// Relative to the root of the repository.
    pub(super) file: String,
    pub(super) function: Option<Function>,
    pub(super) genre: Genre,
    pub(super) span: Span,
    pub(super) replacement: String,
}

/// The function that a mutation is in.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Function {
    #[serde(rename = "function_name")]
    pub(super) name: String,
}

/// What a mutation changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) enum Genre {
    BinaryOperator,
    UnaryOperator,
    FnValue,
    MatchArm,
    MatchArmGuard,
    StructField,
    #[serde(other)]
    Other,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Span {
    pub(super) start: Position,
}

/// Both numbers count characters, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Position {
    pub(super) line: usize,
    pub(super) column: usize,
}

impl Planned {
    pub(super) fn function(&self) -> Option<&str> {
        Some(&self.function.as_ref()?.name)
    }
}

/// Lists the mutations of a crate's library whose names match one of the expressions in `only`, if
/// there are any.
pub(super) fn list(root: &Path, tried: &Crate, only: &[String]) -> anyhow::Result<Vec<Planned>> {
    let Crate { package, folder, .. } = tried;
    let mut command = sample::mutants(root, only);
    command.args(["--list", "--json", "--package", package]);
    // Besides the files that .cargo/mutants.toml chooses.
    command.args(["--file", &format!("{folder}/src/**/*.rs")]);
    command.args(["--exclude", &format!("{folder}/src/main.rs")]);
    command.args(["--exclude", &format!("{folder}/src/bin/**")]);
    parse(&sample::output(&mut command)?)
}

fn parse(json: &[u8]) -> anyhow::Result<Vec<Planned>> {
    let mut plan: Vec<Planned> =
        serde_json::from_slice(json).context("cargo-mutants lists in another form")?;
    ensure!(!plan.is_empty(), "cargo-mutants knows no such mutation");
    for (id, mutation) in (1..).zip(&mut plan) {
        mutation.id = id;
    }
    Ok(plan)
}

#[cfg(test)]
impl Planned {
    /// A mutation at a place of a text: where `at` begins.
    pub(super) fn of(id: u32, genre: Genre, text: &str, at: &str, replacement: &str) -> Planned {
        let before = &text[..text.find(at).unwrap()];
        let line_start = before.rfind('\n').map_or(0, |end| end + 1);
        let line = before.matches('\n').count() + 1;
        let start = Position { line, column: before[line_start..].chars().count() + 1 };
        Planned {
            id,
            name: format!("a.rs:{line}:{}: {at}", start.column),
            file: "a.rs".to_owned(),
            function: Some(Function { name: "f".to_owned() }),
            genre,
            span: Span { start },
            replacement: replacement.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_cargo_mutants_is_understood() {
        let json = br#"[
  {
    "diff": "...",
    "file": "crates/a/src/b.rs",
    "function": {"function_name": "B::c", "return_type": "-> u8", "span": {}},
    "genre": "BinaryOperator",
    "name": "crates/a/src/b.rs:3:9: replace + with - in B::c",
    "package": "zodium-a",
    "replacement": "-",
    "span": {"start": {"line": 3, "column": 9}, "end": {"line": 3, "column": 10}}
  },
  {
    "file": "crates/a/src/b.rs",
    "function": null,
    "genre": "Another",
    "name": "crates/a/src/b.rs:1:1: another",
    "replacement": "",
    "span": {"start": {"line": 1, "column": 1}}
  }
]"#;
        let plan = parse(json).unwrap();
        assert_eq!((plan[0].id, plan[1].id), (1, 2));
        assert_eq!((plan[0].genre, plan[1].genre), (Genre::BinaryOperator, Genre::Other));
        assert_eq!((plan[0].function(), plan[1].function()), (Some("B::c"), None));
        assert_eq!(plan[0].span.start, Position { line: 3, column: 9 });
        assert!(parse(b"[]").is_err());
        assert!(parse(b"{}").is_err());
    }
}
