//! What the rules need of Rust's syntax: where functions and tests begin and end.
//!
//! Read from the syntax tree instead of from braces in the text: strings and comments deceive.

use std::ops::RangeInclusive;

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// The parts of a Rust file. Lines count from 1.
#[derive(Debug, Default)]
pub(crate) struct Syntax {
    /// Functions with a body outside of tests, in the order of the file.
    pub(crate) functions: Vec<Function>,
    /// The types that have an `impl` without a trait, and its line, in the order of the file.
    pub(crate) methods: Vec<(String, usize)>,
    /// The items under `#[cfg(test)]`, in the order of the file, with their attributes.
    pub(crate) tests: Vec<RangeInclusive<usize>>,
    /// The modules under `#[cfg(test)]` whose text is another file.
    pub(crate) test_modules: Vec<String>,
}

/// A function and its lines from `fn`, or what stands before it there, to the closing brace.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) lines: RangeInclusive<usize>,
}

impl Syntax {
    /// Reads a whole file.
    pub(crate) fn parse(text: &str) -> syn::Result<Self> {
        let file = syn::parse_file(text)?;
        let mut syntax = Self::default();
        syntax.visit_file(&file);
        Ok(syntax)
    }

    fn add_function(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let lines = line(signature.span())..=block.span().end().line;
        self.functions.push(Function { name: signature.ident.to_string(), lines });
    }
}

impl<'ast> Visit<'ast> for Syntax {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !is_test(attributes(item)) {
            return visit::visit_item(self, item);
        }
        self.tests.push(line(item.span())..=item.span().end().line);
        if let syn::Item::Mod(syn::ItemMod { ident, content: None, .. }) = item {
            self.test_modules.push(ident.to_string());
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.add_function(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if let (None, syn::Type::Path(path)) = (&item.trait_, &*item.self_ty)
            && let Some(name) = path.path.segments.last()
        {
            self.methods.push((name.ident.to_string(), line(item.span())));
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        match is_test(&item.attrs) {
            true => self.tests.push(line(item.span())..=item.span().end().line),
            false => {
                self.add_function(&item.sig, &item.block);
                visit::visit_impl_item_fn(self, item);
            }
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.add_function(&item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }
}

fn line(span: Span) -> usize {
    span.start().line
}

/// Only compiled for tests, or a test itself.
fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::Path(path) => path.is_ident("test"),
        syn::Meta::List(list) => {
            list.path.is_ident("cfg")
                && list
                    .tokens
                    .clone()
                    .into_iter()
                    .next()
                    .is_some_and(|first| first.to_string() == "test")
        }
        syn::Meta::NameValue(_) => false,
    })
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Macro(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn functions(text: &str) -> Vec<(String, RangeInclusive<usize>)> {
        let functions = Syntax::parse(text).unwrap().functions;
        functions.into_iter().map(|Function { name, lines }| (name, lines)).collect()
    }

    #[test]
    fn functions_span_from_their_signature_to_their_brace() {
        let text = "\
//! Header.
/// Documentation does not count.
#[inline]
pub fn outer(
    a: u8,
) {
    fn inner() {}
}
struct S;
impl S {
    fn method() {
        let text = \"}\";
    }
}
trait T {
    fn required();
    fn provided() {}
}
";
        let expected = [
            ("outer".to_owned(), 4..=8),
            ("inner".to_owned(), 7..=7),
            ("method".to_owned(), 11..=13),
            ("provided".to_owned(), 17..=17),
        ];
        assert_eq!(functions(text), expected);
    }

    #[test]
    fn impls_without_a_trait_are_listed_by_their_type() {
        let text = "impl<'a> S<'a> {}\nimpl T for S<'_> {}\nimpl a::B {}\n#[cfg(test)]\nimpl C {}";
        let methods = Syntax::parse(text).unwrap().methods;
        assert_eq!(methods, [("S".to_owned(), 1), ("B".to_owned(), 3)]);
    }

    #[test]
    fn functions_of_tests_are_not_listed() {
        let text =
            "#[cfg(test)]\nmod tests { fn a() {} }\n#[cfg(test)]\nfn b() {}\n#[test]\nfn c() {}";
        let syntax = Syntax::parse(text).unwrap();
        assert_eq!(syntax.functions, []);
        assert_eq!(syntax.tests, [1..=2, 3..=4, 5..=6]);
        assert_eq!(syntax.test_modules, [""; 0]);
    }

    #[test]
    fn what_is_not_for_tests_only_is_no_test() {
        let text = "#[cfg(not(test))]\nfn a() {}\n#[cfg(unix)]\nmod b { fn c() {} }";
        let syntax = Syntax::parse(text).unwrap();
        assert_eq!(syntax.functions.len(), 2);
        assert_eq!(syntax.tests, []);
    }

    #[test]
    fn test_modules_in_other_files_are_named() {
        let syntax = Syntax::parse("mod a;\n#[cfg(test)]\nmod b;\n#[cfg(test)]\nmod c {}").unwrap();
        assert_eq!(syntax.test_modules, ["b"]);
    }
}
