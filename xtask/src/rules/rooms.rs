//! `rooms`: the folders of a crate that is listed here import each other one way, each through its
//! `mod.rs`.
//!
//! The compiler keeps other rooms out of a module that its room does not publish. So a door may
//! show the names of its room, but no module.

use std::collections::BTreeMap;

use syn::{Item, Visibility};

use crate::paths::{Named, add_paths, module_of, named_by};
use crate::source::Source;
use crate::violation::Violation;

const RULE: &str = "rooms";

/// The source folders with rooms. Each room, a folder or a file, may import those before it.
const ROOMS: [(&str, &[&str]); 1] = [(
    "crates/filestorage/src/",
    &[
        "sync",
        "reading",
        "format",
        "scan",
        "checksums",
        "read",
        "open",
        "write",
        "upkeep",
        "pack",
        "check",
        "recover",
        "storage",
        "seam",
    ],
)];

/// What is in no room: the library, which publishes names of all of them, and its errors, which all
/// of them return.
const ROOMLESS: [&str; 2] = ["lib", "error"];

/// Paths that lead the wrong way, rooms that are not listed, and modules that a door shows.
pub(crate) fn check(sources: &[Source]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (folder, rooms) in ROOMS {
        let inside = |source: &&Source| source.path.starts_with(folder) && source.is_rust();
        let sources = sources.iter().filter(inside).filter(|source| !source.is_test);
        let files: Vec<_> = sources
            .filter_map(|source| Some((source, syn::parse_file(&source.text).ok()?)))
            .collect();
        let library = files.iter().find(|(source, _)| source.path == format!("{folder}lib.rs"));
        let published = library.map_or_else(BTreeMap::new, |(_, file)| rooms_of_names(&file.items));
        for (source, file) in &files {
            let path = source.path.strip_prefix(folder).unwrap_or_default();
            let room = path.split(['/', '.']).next().unwrap_or_default();
            if ROOMLESS.contains(&room) {
                continue;
            }
            let Some(place) = rooms.iter().position(|known| *known == room) else {
                let advice = "a room without a place: say in xtask/src/rules/rooms.rs which rooms \
                              come before it";
                violations.push(source.violation(1, RULE, advice));
                continue;
            };
            for Named { line, parts } in named_by(source, file, &module_of(path)) {
                let Some(name) = parts.first() else { continue };
                let imported = published.get(name).unwrap_or(name);
                if rooms.iter().skip(place + 1).any(|later| later == imported) {
                    let advice = format!(
                        "`{room}` must not import `{imported}`, which comes after it. Move what \
                         they share to an earlier room, or hand it in"
                    );
                    violations.push(source.violation(line, RULE, advice));
                }
            }
            if path == format!("{room}/mod.rs") {
                violations.extend(shown_modules(source, &file.items));
            }
        }
    }
    violations
}

/// The names that the library publishes, each with its room.
fn rooms_of_names(items: &[Item]) -> BTreeMap<String, String> {
    let mut paths = Vec::new();
    for item in items {
        if let Item::Use(item) = item {
            add_paths(&item.tree, &mut Vec::new(), &mut paths);
        }
    }
    let pairs = paths.iter().filter_map(|path| Some((path.last()?, path.first()?)));
    pairs.map(|(name, room)| (name.clone(), room.clone())).collect()
}

fn shown_modules(source: &Source, items: &[Item]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for item in items {
        if let Item::Mod(module) = item
            && !matches!(module.vis, Visibility::Inherited)
        {
            let advice = "the door of a room shows no module: publish the names that others need";
            let line = module.mod_token.span.start().line;
            violations.push(source.violation(line, RULE, advice));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<(String, usize)> {
        let path = |name: &str| format!("crates/filestorage/src/{name}");
        let sources: Vec<Source> =
            files.iter().map(|(name, text)| Source::of(&path(name), text)).collect();
        let found = check(&sources).into_iter();
        found.map(|violation| (violation.path.replace(&path(""), ""), violation.line)).collect()
    }

    #[test]
    fn a_room_imports_only_rooms_before_it() {
        let files = [
            ("lib.rs", "mod read;\npub use write::Appended;\npub use error::Error;\n"),
            ("read/mod.rs", "mod load;\npub(crate) use load::Load;\n"),
            ("read/load.rs", "use crate::Error;\nuse crate::{format::Oid, write::Appender};\n"),
            ("read/log.rs", "use std::fmt;\n\nuse crate::Appended;\n"),
            ("write/mod.rs", "use crate::read::Load;\n#[cfg(test)]\nuse crate::pack::Pack;\n"),
            ("storage.rs", "use crate::pack::Pack;\nuse crate::seam::Seam;\n"),
        ];
        let wrong = [("read/load.rs", 2), ("read/log.rs", 3), ("storage.rs", 2)];
        assert_eq!(found(&files), wrong.map(|(path, line)| (path.to_owned(), line)));
    }

    #[test]
    fn any_path_counts_and_any_room_needs_a_place() {
        let files = [
            ("sync/mod.rs", "mod one;\nmod two;\n"),
            ("sync/one.rs", "use super::super::pack::Pack;\n"),
            ("sync/two.rs", "fn f() {\n    crate::pack::pack()\n}\n"),
            ("newroom/mod.rs", "use std::fmt;\n"),
            ("error.rs", "use crate::pack::Pack;\n"),
        ];
        let wrong = [("sync/one.rs", 1), ("sync/two.rs", 2), ("newroom/mod.rs", 1)];
        assert_eq!(found(&files), wrong.map(|(path, line)| (path.to_owned(), line)));
    }

    #[test]
    fn a_door_shows_no_module() {
        let files = [
            ("read/mod.rs", "mod load;\npub(crate) mod log;\n"),
            ("read/positions/mod.rs", "pub(super) mod pages;\n"),
        ];
        assert_eq!(found(&files), [("read/mod.rs".to_owned(), 2)]);
    }
}
