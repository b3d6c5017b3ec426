//! The search for a crate, and all steps with a package of its own, in which mutations are real.

use std::fs;
use std::num::NonZero;
use std::path::Path;

use cargo_metadata::MetadataCommand;

use super::super::tree::Tree;
use super::super::trial::Verdict;
use super::build::{Builder, LeftOut, Reason};
use super::plan::{Genre, Planned};
use super::programs::Programs;
use super::run::{JUDGED, Judge, Judged, judged};
use super::store::Store;
use super::{Crate, hash_of_sources, record, switch};

const CODE: &str = "//! Numbers.
#![forbid(unsafe_code)]

/// Whether a number is even.
pub fn is_even(number: u32) -> bool {
    number % 2 == 0
}

/// Whether a number has one digit.
pub fn has_a_digit(number: u32) -> bool {
    number < 10
}

/// Which nothing tests.
pub fn half(number: u32) -> u32 {
    number / 2
}

#[cfg(test)]
mod tests {
    #[test]
    fn four_is_even() {
        assert!(super::is_even(4));
    }

    #[test]
    fn four_has_a_digit() {
        assert!(super::has_a_digit(4));
    }
}
";
const LIBRARY: &str = "crates/a/src/lib.rs";

/// A copy of a repository with one crate.
fn tree(folder: &Path) -> Tree {
    let original = folder.join("original");
    let root = original.join("crates/a");
    fs::create_dir_all(root.join("src")).unwrap();
    fs::write(
        original.join("Cargo.toml"),
        "[workspace]\nresolver = \"3\"\nmembers = [\"crates/*\"]\n",
    )
    .unwrap();
    fs::write(root.join("Cargo.toml"), "[package]\nname = \"zodium-a\"\nedition = \"2024\"\n")
        .unwrap();
    fs::write(original.join(LIBRARY), CODE).unwrap();
    Tree::copy(&original, folder.join("tree")).unwrap()
}

fn mutations() -> Vec<Planned> {
    let of = |id, genre, at, replacement| Planned {
        file: LIBRARY.to_owned(),
        ..Planned::of(id, genre, CODE, at, replacement)
    };
    vec![
        of(1, Genre::BinaryOperator, "== 0", "!="),
        of(2, Genre::BinaryOperator, "< 10", "<="),
        of(3, Genre::FnValue, "number < 10", "\"\""),
        of(4, Genre::BinaryOperator, "/ 2", "%"),
        of(5, Genre::FnValue, "number % 2", "false"),
    ]
}

fn build(folder: &Path, plan: &[Planned]) -> (Programs, LeftOut) {
    let tree = tree(folder);
    let tried = Crate {
        package: "zodium-a".to_owned(),
        folder: "crates/a".to_owned(),
        library: LIBRARY.to_owned(),
    };
    let target = folder.join("target");
    let mut left_out = LeftOut::new();
    let builder = Builder { tree: &tree, target, tried: &tried, plan };
    let programs = builder.build(&mut left_out, |_| Ok(())).unwrap();
    (programs, left_out)
}

#[test]
fn mutations_that_compile_are_tried_with_the_tests_that_reach_them() {
    let folder = tempfile::tempdir().unwrap();
    let plan = mutations();
    let (programs, left_out) = build(folder.path(), &plan);
    assert!(matches!(left_out[&3], Reason::DoesNotCompile(_)));
    assert_eq!(left_out.len(), 1);

    let jobs = NonZero::new(2).unwrap();
    let tests = record::record(&programs, jobs).unwrap();
    // Without a mutation the code means what it meant.
    assert!(tests.iter().all(|test| test.passes));
    let mut reached: Vec<(&str, &[u32])> =
        tests.iter().map(|test| (&test.test.name[..], &test.reached[..])).collect();
    reached.sort_unstable();
    let expected: [(&str, &[u32]); 2] =
        [("tests::four_has_a_digit", &[2]), ("tests::four_is_even", &[1, 5])];
    assert_eq!(reached, expected);

    let store = Store::open(folder.path().join("store"), 1).unwrap();
    let chosen: Vec<&Planned> = plan.iter().filter(|planned| planned.id != 3).collect();
    // The second run has nothing left to do.
    for _ in 0..2 {
        Judge::new(&programs, &tests, &store).run(&chosen, false, jobs).unwrap();
    }
    assert_eq!(store.list::<Judged>(JUDGED).unwrap().len(), 4);
    let judged = judged(&store).unwrap();
    let noticed = Verdict::Noticed("tests::four_is_even".to_owned());
    let verdicts = [1, 5, 2, 4].map(|id| (judged[&id].verdict.clone(), judged[&id].is_reached));
    let expected = [
        (noticed.clone(), true),
        (noticed, true),
        (Verdict::Survived, true),
        (Verdict::Survived, false),
    ];
    assert_eq!(verdicts, expected);
}

#[test]
fn without_a_number_no_mutation_is_on() {
    assert!(!switch::is_on(1));
}

#[test]
fn a_crate_is_found_by_its_folder() {
    let options = ["--offline".to_owned()];
    let metadata = MetadataCommand::new().no_deps().other_options(options).exec().unwrap();
    let found = Crate::find(&metadata, "types").unwrap();
    let expected = Crate {
        package: "zodium-types".to_owned(),
        folder: "crates/types".to_owned(),
        library: "crates/types/src/lib.rs".to_owned(),
    };
    assert_eq!(found, expected);
    assert!(Crate::find(&metadata, "nothing").is_err());
}

#[test]
fn other_sources_have_another_hash() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        hash_of_sources(folder.path()).unwrap()
    };
    let first = write("crates/a/src/b.rs", "1");
    assert_eq!(write("README.md", "1"), first);
    assert_ne!(write("crates/a/src/b.rs", "2"), first);
    assert_eq!(write("crates/a/src/b.rs", "1"), first);
    assert_ne!(write("crates/a/tests/b.rs", ""), first);
}
