//! Builds a crate's tests with all mutations in it, without those that do not compile.
//!
//! The compiler does not say which mutation an error is of, but where the error is. So the tree is
//! rewritten without the mutations there, until it compiles.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::BufReader;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, bail, ensure};
use cargo_metadata::Message;
use cargo_metadata::diagnostic::{Diagnostic, DiagnosticLevel, DiagnosticSpan};
use serde::{Deserialize, Serialize};

use super::super::tree::{self, Tree};
use super::super::trial::cargo;
use super::Crate;
use super::plan::Planned;
use super::programs::Programs;
use super::render::Mark;
use super::switches::{MODULE, switch};

/// The module of the switches.
const SWITCH: &str = include_str!("switch.rs");
/// Mutations are code that the rules of the workspace do not allow.
const ATTRIBUTES: &str = "#![allow(warnings, arithmetic_overflow, overflowing_literals, \
                          unconditional_panic)] ";
/// Errors of one phase of the compiler hide those of the next ones, and so do some mutations.
const ROUNDS_MAX: usize = 40;

/// Why mutations are not tried, by their numbers.
pub(super) type LeftOut = BTreeMap<u32, Reason>;

/// Why a mutation is not tried.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Reason {
    /// Of a constant, or of a chain of conditions with a `let`.
    NoPlace,
    /// What the compiler says.
    DoesNotCompile(String),
}

/// Where mutations are in the rewritten files, by path.
type Marks = BTreeMap<String, Vec<Mark>>;

/// The sources of a crate in a copy of the repository.
pub(super) struct Builder<'a> {
    pub(super) tree: &'a Tree,
    pub(super) target: PathBuf,
    pub(super) tried: &'a Crate,
    pub(super) plan: &'a [Planned],
}

/// An error: what it says, and the places that it names, with those that it is about first.
struct CompilerError {
    message: String,
    places: Vec<Place>,
}

struct Place {
    file: String,
    range: Range<usize>,
    is_primary: bool,
}

impl Builder<'_> {
    /// Builds, and adds the mutations that do not compile; `keep` keeps those that are known.
    pub(super) fn build(
        &self,
        left_out: &mut LeftOut,
        keep: impl Fn(&LeftOut) -> anyhow::Result<()>,
    ) -> anyhow::Result<Programs> {
        let originals = self.originals()?;
        for _ in 0..ROUNDS_MAX {
            let marks = self.rewrite(&originals, left_out)?;
            let (programs, errors) = self.compile()?;
            keep(left_out)?;
            if let Some(programs) = programs {
                return Ok(programs);
            }
            let mut found = BTreeMap::new();
            for CompilerError { message, places } in &errors {
                let reason = Reason::DoesNotCompile(message.clone());
                found.extend(blamed(&marks, places).into_iter().map(|id| (id, reason.clone())));
            }
            if found.is_empty() {
                let messages: Vec<&str> = errors.iter().map(|error| &error.message[..]).collect();
                bail!("the crate with its mutations does not compile: {}", messages.join("\n"));
            }
            println!("{} mutations do not compile", found.len());
            left_out.extend(found);
        }
        bail!("the crate with its mutations does not compile after {ROUNDS_MAX} attempts")
    }

    /// The files with mutations, and the one that the library begins with.
    fn originals(&self) -> anyhow::Result<BTreeMap<&str, String>> {
        let mut files: BTreeSet<&str> = self.plan.iter().map(|planned| &planned.file[..]).collect();
        files.insert(&self.tried.library);
        let read = |file| -> anyhow::Result<_> {
            let text = fs::read_to_string(self.tree.root.join(file))
                .with_context(|| format!("cannot read {file}"))?;
            Ok((file, text))
        };
        files.into_iter().map(read).collect()
    }

    fn rewrite(
        &self,
        originals: &BTreeMap<&str, String>,
        left_out: &mut LeftOut,
    ) -> anyhow::Result<Marks> {
        let mut all = Marks::new();
        for (file, text) in originals {
            let mutations: Vec<&Planned> = self
                .plan
                .iter()
                .filter(|planned| planned.file == *file && !left_out.contains_key(&planned.id))
                .collect();
            let switched = switch(text, &mutations).with_context(|| format!("in {file}"))?;
            let without = switched.left_out.into_iter();
            left_out.extend(without.map(|id| (id, Reason::NoPlace)));
            let (mut text, mut marks) = (switched.text, switched.marks);
            if *file == self.tried.library {
                text = format!("{ATTRIBUTES}{text}\nmod {MODULE};\n");
                for Mark { range, .. } in &mut marks {
                    *range = range.start + ATTRIBUTES.len()..range.end + ATTRIBUTES.len();
                }
            }
            tree::write(&self.tree.root.join(file), text.as_bytes())?;
            all.insert((*file).to_owned(), marks);
        }
        let library = self.tree.root.join(&self.tried.library);
        let module = library.with_file_name(format!("{MODULE}.rs"));
        tree::write(&module, SWITCH.as_bytes())?;
        Ok(all)
    }

    /// The test programs, or errors.
    fn compile(&self) -> anyhow::Result<(Option<Programs>, Vec<CompilerError>)> {
        let mut cargo = cargo("test");
        let mut child = cargo
            .args(["--no-run", "--tests", "--message-format=json", "-p", &self.tried.package])
            .current_dir(&self.tree.root)
            .env("CARGO_TARGET_DIR", &self.target)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start cargo")?;
        let output = child.stdout.take().context("no output of cargo")?;
        let folder = self.tree.root.join(&self.tried.folder);
        let mut programs = Programs { folder, ..Programs::default() };
        let mut errors = Vec::new();
        for message in Message::parse_stream(BufReader::new(output)) {
            match message? {
                Message::CompilerMessage(message)
                    if message.message.level == DiagnosticLevel::Error =>
                {
                    errors.push(CompilerError::of(&message.message));
                }
                Message::CompilerArtifact(artifact) if artifact.profile.test => {
                    let path = artifact.executable.map(|path| (artifact.target.name, path.into()));
                    programs.paths.extend(path);
                }
                _ => {}
            }
        }
        let is_built = child.wait()?.success();
        ensure!(is_built || !errors.is_empty(), "cargo fails without an error of the compiler");
        Ok((is_built.then_some(programs), errors))
    }
}

impl CompilerError {
    fn of(diagnostic: &Diagnostic) -> CompilerError {
        let mut places = Vec::new();
        add_places(diagnostic, &mut places);
        CompilerError { message: diagnostic.message.clone(), places }
    }
}

fn add_places(diagnostic: &Diagnostic, places: &mut Vec<Place>) {
    for span in &diagnostic.spans {
        let mut next: Option<&DiagnosticSpan> = Some(span);
        while let Some(span) = next {
            places.push(Place {
                file: span.file_name.clone(),
                range: span.byte_start as usize..span.byte_end as usize,
                is_primary: span.is_primary,
            });
            // A place in a macro is where the macro is used, too.
            next = span.expansion.as_ref().map(|expansion| &expansion.span);
        }
    }
    for child in &diagnostic.children {
        add_places(child, places);
    }
}

/// The mutations that an error is of: those at the places that it is about, or else at others.
fn blamed(marks: &Marks, places: &[Place]) -> BTreeSet<u32> {
    let primary = blamed_at(marks, places.iter().filter(|place| place.is_primary));
    if primary.is_empty() { blamed_at(marks, places.iter()) } else { primary }
}

/// The innermost mutated code around a place, or else all mutations of the innermost expression.
fn blamed_at<'a>(marks: &Marks, places: impl Iterator<Item = &'a Place>) -> BTreeSet<u32> {
    let (mut mutated, mut around) = (BTreeSet::new(), BTreeSet::new());
    for place in places {
        let in_file = marks.iter().filter(|(file, _)| Path::new(&place.file).ends_with(file));
        let inside: Vec<&Mark> = in_file
            .flat_map(|(_, marks)| marks)
            .filter(|Mark { range, .. }| {
                range.start <= place.range.start && place.range.end <= range.end
            })
            .collect();
        for (is_mutated, found) in [(true, &mut mutated), (false, &mut around)] {
            let inside = || inside.iter().filter(|mark| mark.is_mutated == is_mutated);
            let innermost = inside().map(|mark| mark.range.len()).min();
            let innermost = inside().filter(|mark| Some(mark.range.len()) == innermost);
            found.extend(innermost.map(|mark| mark.id));
        }
    }
    if mutated.is_empty() { around } else { mutated }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(id: u32, is_mutated: bool, range: Range<usize>) -> Mark {
        Mark { id, is_mutated, range }
    }

    fn place(range: Range<usize>, is_primary: bool) -> Place {
        Place { file: "crates/a/src/b.rs".to_owned(), range, is_primary }
    }

    #[test]
    fn an_error_is_of_the_innermost_mutation_that_it_is_about() {
        let marks = vec![
            mark(1, true, 10..20),
            mark(2, true, 30..40),
            mark(1, false, 0..100),
            mark(2, false, 0..100),
            mark(3, false, 50..80),
        ];
        let marks = Marks::from([("crates/a/src/b.rs".to_owned(), marks)]);
        let blamed = |places: &[Place]| blamed(&marks, places).into_iter().collect::<Vec<u32>>();
        assert_eq!(blamed(&[place(12..15, true), place(32..35, false)]), [1]);
        assert_eq!(blamed(&[place(200..201, true), place(32..35, false)]), [2]);
        assert_eq!(blamed(&[place(55..60, true)]), [3]);
        assert_eq!(blamed(&[place(5..6, true)]), [1, 2]);
        assert_eq!(blamed(&[place(200..201, true)]), [0; 0]);
    }
}
