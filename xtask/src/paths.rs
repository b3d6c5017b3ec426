//! The paths by which a Rust file names modules of its own crate.
//!
//! Paths of imports and of code count; those within the arguments of macros are not seen.

use syn::UseTree;
use syn::visit::{self, Visit};

use crate::source::Source;

/// A path that begins with `crate`, `self` or `super`, without that beginning.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Named {
    /// From 1.
    pub(crate) line: usize,
    /// From the root of the crate.
    pub(crate) parts: Vec<String>,
}

/// The paths that a file names outside of its tests; `module` is where it is in its crate, as in
/// `["room", "inner"]`.
pub(crate) fn named_by(source: &Source, file: &syn::File, module: &[&str]) -> Vec<Named> {
    let module = module.iter().map(|part| (*part).to_owned()).collect();
    let mut finder = Finder { source, module, found: Vec::new() };
    finder.visit_file(file);
    finder.found
}

/// Where a file is in its crate; nothing for one that a library or a program begins with.
pub(crate) fn module_of(inside: &str) -> Vec<&str> {
    let inside = inside.trim_end_matches(".rs");
    match inside.strip_suffix("/mod").unwrap_or(inside) {
        "lib" | "main" => Vec::new(),
        module => module.split('/').collect(),
    }
}

/// All paths of an import.
pub(crate) fn add_paths(tree: &UseTree, before: &mut Vec<String>, paths: &mut Vec<Vec<String>>) {
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            add_paths(&path.tree, before, paths);
            before.pop();
        }
        UseTree::Group(group) => {
            group.items.iter().for_each(|tree| add_paths(tree, before, paths));
        }
        UseTree::Name(name) => paths.push([before.as_slice(), &[name.ident.to_string()]].concat()),
        UseTree::Rename(name) => {
            paths.push([before.as_slice(), &[name.ident.to_string()]].concat());
        }
        UseTree::Glob(_) => paths.push(before.clone()),
    }
}

struct Finder<'a> {
    source: &'a Source,
    /// The module around what is visited; those within the file included.
    module: Vec<String>,
    found: Vec<Named>,
}

impl Finder<'_> {
    fn add(&mut self, line: usize, path: &[String]) {
        if let Some(parts) = self.absolute(path)
            && !self.source.is_test_line(line)
        {
            self.found.push(Named { line, parts });
        }
    }

    /// `None` for a path that begins with another name: of a crate, or of a child.
    fn absolute(&self, path: &[String]) -> Option<Vec<String>> {
        let (first, mut rest) = path.split_first()?;
        let mut parts = self.module.clone();
        match first.as_str() {
            "crate" => parts.clear(),
            "self" => {}
            "super" => drop(parts.pop()),
            _ => return None,
        }
        while let Some((first, others)) = rest.split_first()
            && first == "super"
        {
            parts.pop();
            rest = others;
        }
        parts.extend_from_slice(rest);
        Some(parts)
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.module.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let mut paths = Vec::new();
        add_paths(&item.tree, &mut Vec::new(), &mut paths);
        let line = item.use_token.span.start().line;
        paths.iter().for_each(|path| self.add(line, path));
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let parts: Vec<String> =
            path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        // `self` alone is a variable.
        if let (Some(first), 2..) = (path.segments.first(), parts.len()) {
            self.add(first.ident.span().start().line, &parts);
        }
        visit::visit_path(self, path);
    }

    /// `pub(in path)` only names a module around it.
    fn visit_vis_restricted(&mut self, _: &'ast syn::VisRestricted) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str) -> Vec<(usize, String)> {
        let path = "crates/a/src/room/inner.rs";
        let (source, file) = (Source::of(path, text), syn::parse_file(text).unwrap());
        let found = named_by(&source, &file, &["room", "inner"]);
        found.into_iter().map(|named| (named.line, named.parts.join("::"))).collect()
    }

    #[test]
    fn paths_are_given_from_the_root_of_the_crate() {
        for (text, expected) in [
            ("use crate::{one::One, two};", vec!["one::One", "two"]),
            ("use super::other::A;", vec!["room::other::A"]),
            ("use super::super::other::A;", vec!["other::A"]),
            ("use self::child::A;", vec!["room::inner::child::A"]),
            ("use std::fmt;\nuse child::B;", vec![]),
            ("fn a() -> crate::b::C<super::D> { e() }", vec!["b::C", "room::D"]),
            ("fn a() { use super::b::C; crate::d::e(); self.f() }", vec!["room::b::C", "d::e"]),
            ("mod a { use super::super::b::C; }", vec!["room::b::C"]),
            ("pub(in crate::room) fn a() {}\npub(super) fn b() {}", vec![]),
            ("#[cfg(test)]\nmod tests { use crate::a::B; }", vec![]),
        ] {
            let found: Vec<String> = named(text).into_iter().map(|(_, path)| path).collect();
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn paths_have_their_lines() {
        let text = "use crate::a::B;\n\nfn c() {\n    crate::d::e()\n}\n";
        assert_eq!(named(text), [(1, "a::B".to_owned()), (4, "d::e".to_owned())]);
    }

    #[test]
    fn modules_are_where_their_files_are() {
        assert_eq!(module_of("lib.rs"), [""; 0]);
        assert_eq!(module_of("a/mod.rs"), ["a"]);
        assert_eq!(module_of("a/b.rs"), ["a", "b"]);
    }
}
