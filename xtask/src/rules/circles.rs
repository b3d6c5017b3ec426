//! `circles`: files of a crate use each other one way, but for the circles that are listed here.
//!
//! Only paths that name a module count, in imports and elsewhere. A type that the crate exports
//! again at its root, such as `crate::FileStorage`, is part of the crate's interface.

use std::collections::{BTreeMap, BTreeSet};

use crate::paths::{module_of, named_by};
use crate::source::Source;
use crate::violation::Violation;

const RULE: &str = "circles";

/// The circles that may stay. ARCHITECTURE.md gives the reason of each.
const ALLOWED: [[&str; 2]; 3] = [
    ["crates/client/src/objects.rs", "crates/client/src/shared.rs"],
    ["crates/configuration/src/error.rs", "crates/configuration/src/source.rs"],
    ["crates/net/src/input.rs", "crates/net/src/link.rs"],
];

/// Files of one crate by module, each with the modules that it imports.
type Imports<'a> = BTreeMap<String, (&'a Source, BTreeSet<String>)>;

/// The circles that are not in the list.
pub(crate) fn check(sources: &[Source]) -> Vec<Violation> {
    let mut roots: BTreeMap<&str, Vec<&Source>> = BTreeMap::new();
    for source in sources.iter().filter(|source| source.is_rust() && !source.is_test) {
        if let Some((root, _)) = source.path.split_once("/src/") {
            roots.entry(root).or_default().push(source);
        }
    }
    roots.into_iter().flat_map(|(root, sources)| check_crate(root, &sources)).collect()
}

fn check_crate(root: &str, sources: &[&Source]) -> Vec<Violation> {
    let module = |source: &Source| module_name(root, &source.path);
    let modules: BTreeSet<String> = sources.iter().map(|source| module(source)).collect();
    let mut imports = Imports::new();
    for source in sources {
        let module = module(source);
        let imported = imported_by(source, &module, &modules);
        imports.insert(module, (source, imported));
    }
    let mut violations = Vec::new();
    let mut reported = BTreeSet::new();
    for (module, (source, _)) in &imports {
        let circle = circle_of(&imports, module);
        if circle.len() < 2 || is_allowed(&circle) || !reported.insert(circle.clone()) {
            continue;
        }
        let advice = format!(
            "these files import each other in a circle: {}. Move what they share to a file of its \
             own, or hand it in",
            circle.into_iter().collect::<Vec<_>>().join(", ")
        );
        violations.push(source.violation(1, RULE, advice));
    }
    violations
}

fn is_allowed(circle: &BTreeSet<String>) -> bool {
    ALLOWED.iter().any(|allowed| {
        circle.len() == allowed.len() && allowed.iter().all(|path| circle.contains(*path))
    })
}

/// `crates/net/src/a/mod.rs` is `a`, `crates/net/src/a/b.rs` is `a::b`, `crates/net/src/lib.rs` is
/// nothing.
fn module_name(root: &str, path: &str) -> String {
    let inside = path.strip_prefix(root).and_then(|path| path.strip_prefix("/src/"));
    module_of(inside.unwrap_or(path)).join("::")
}

/// The modules that a file names outside of its tests, but for those within its own.
fn imported_by(source: &Source, module: &str, modules: &BTreeSet<String>) -> BTreeSet<String> {
    let Ok(file) = syn::parse_file(&source.text) else { return BTreeSet::new() };
    let own: Vec<&str> = module.split("::").filter(|part| !part.is_empty()).collect();
    let named = named_by(source, &file, &own);
    let found = named.into_iter().filter_map(|named| resolve(named.parts, modules));
    let inside = format!("{module}::");
    found.filter(|found| found != module && !found.starts_with(&inside)).collect()
}

/// The longest part of a path that is a module of the crate.
fn resolve(mut parts: Vec<String>, modules: &BTreeSet<String>) -> Option<String> {
    while !parts.is_empty() {
        let name = parts.join("::");
        if modules.contains(&name) {
            return Some(name);
        }
        parts.pop();
    }
    None
}

/// The paths of the files that import a module, and are imported by it, directly or not.
fn circle_of(imports: &Imports<'_>, module: &str) -> BTreeSet<String> {
    let forward = reached_from(imports, module);
    let both = forward.iter().filter(|other| reached_from(imports, other).contains(module));
    both.filter_map(|other| Some(imports.get(other)?.0.path.clone())).collect()
}

fn reached_from(imports: &Imports<'_>, module: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut left = vec![module.to_owned()];
    while let Some(module) = left.pop() {
        let Some((_, imported)) = imports.get(&module) else { continue };
        left.extend(imported.iter().filter(|other| found.insert((*other).clone())).cloned());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<Source> =
            files.iter().map(|(path, text)| Source::of(path, text)).collect();
        check(&sources).into_iter().map(|violation| violation.path).collect()
    }

    #[test]
    fn files_that_import_each_other_are_found_once() {
        let files = [
            ("crates/a/src/one.rs", "use crate::two::Two;\n"),
            ("crates/a/src/two.rs", "use super::three::{self, Three};\n"),
            ("crates/a/src/three.rs", "use crate::{four::Four, one::One};\n"),
            ("crates/a/src/four.rs", "use std::fmt;\n"),
        ];
        assert_eq!(found(&files), ["crates/a/src/one.rs"]);
    }

    #[test]
    fn imports_one_way_are_no_circle() {
        let files = [
            ("crates/a/src/lib.rs", "mod one;\npub use one::One;\n"),
            ("crates/a/src/one.rs", "use crate::two::Two;\n"),
            ("crates/a/src/two.rs", "use crate::One;\n#[cfg(test)]\nuse crate::one::One;\n"),
        ];
        assert_eq!(found(&files), [""; 0]);
    }

    #[test]
    fn a_folder_may_use_its_own_files() {
        let files = [
            ("crates/a/src/room/mod.rs", "mod inner;\nuse self::inner::Inner;\n"),
            ("crates/a/src/room/inner.rs", "use crate::other::Other;\n"),
            ("crates/a/src/other.rs", "use crate::room::inner::Inner;\n"),
        ];
        assert_eq!(found(&files), ["crates/a/src/other.rs"]);
    }

    #[test]
    fn paths_through_several_folders_and_within_code_count() {
        let files = [
            ("crates/a/src/room/inner.rs", "use super::super::other::Other;\n"),
            ("crates/a/src/other.rs", "use crate::room::inner::Inner;\n"),
            ("crates/b/src/one.rs", "fn f() {\n    crate::two::g()\n}\n"),
            ("crates/b/src/two.rs", "use crate::one::f;\n"),
        ];
        assert_eq!(found(&files), ["crates/a/src/other.rs", "crates/b/src/one.rs"]);
    }

    #[test]
    fn listed_circles_may_stay_as_they_are() {
        let pair = [
            ("crates/net/src/input.rs", "use crate::link::Link;\n"),
            ("crates/net/src/link.rs", "use crate::input::Input;\n"),
        ];
        assert_eq!(found(&pair), [""; 0]);
        let larger = [
            pair[0],
            ("crates/net/src/link.rs", "use crate::{input::Input, worker::Worker};\n"),
            ("crates/net/src/worker.rs", "use crate::input::Input;\n"),
        ];
        assert_eq!(found(&larger).len(), 1);
    }
}
