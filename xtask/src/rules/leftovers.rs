//! `leftovers`: nothing is committed that says it is not finished.
//!
//! The words are put together here so that this file does not break its own rule.

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::Visit;

use super::word::has_word;
use crate::source::Source;
use crate::violation::Violation;

const NOTES: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("X", "XX")];

/// What stands in Rust only, and what to do instead.
const CODE: [(&str, &str); 4] = [
    (concat!("dbg", "!"), "cut it, or use tracing"),
    (concat!("todo", "!"), "write it"),
    (concat!("unimplemented", "!"), "write it, or return an error that says so"),
    (concat!("#[ig", "nore"), "run the test always; a measurement is an example or a benchmark"),
];
/// What a test may say that needs a program which not every machine has: it is asked for where that
/// is installed.
const NEEDS: [&str; 2] =
    [concat!("#[ig", "nore = \"needs "), concat!("#[ig", "nore = $", "reason]")];

/// The attribute of a test that is not run, also where it holds on a condition only.
const IGNORE: &str = concat!("ig", "nore");

/// Lines with a mark of unfinished work.
pub(crate) fn check(source: &Source) -> Vec<Violation> {
    let code = if source.is_rust() { &CODE[..] } else { &[] };
    let notes = NOTES.iter().map(|note| (*note, "do it, or open an issue"));
    let banned: Vec<_> = notes.chain(code.iter().copied()).collect();
    let found = source.lines().flat_map(|(line, text)| {
        let is_need =
            |word: &str| NEEDS.iter().any(|need| need.starts_with(word) && text.contains(need));
        let found = banned.iter().filter(move |(word, _)| has_word(text, word) && !is_need(word));
        found.map(move |(word, advice)| {
            source.violation(line, "leftovers", format!("{word}: {advice}"))
        })
    });
    let conditional = ignored_on_a_condition(source).into_iter().map(|line| {
        let (word, advice) = CODE[3];
        source.violation(line, "leftovers", format!("{word} in cfg_attr: {advice}"))
    });
    found.chain(conditional).collect()
}

/// The lines of attributes by which tests are ignored on a condition.
fn ignored_on_a_condition(source: &Source) -> Vec<usize> {
    struct Finder(Vec<usize>);

    impl<'ast> Visit<'ast> for Finder {
        fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
            if let syn::Meta::List(list) = &attribute.meta
                && list.path.is_ident("cfg_attr")
                && has_identifier(list.tokens.clone(), IGNORE)
            {
                self.0.push(attribute.pound_token.spans[0].start().line);
            }
        }
    }

    // To parse takes longer than to look for the word.
    if !source.is_rust() || !source.text.contains("cfg_attr") {
        return Vec::new();
    }
    let Ok(file) = syn::parse_file(&source.text) else { return Vec::new() };
    let mut finder = Finder(Vec::new());
    finder.visit_file(&file);
    finder.0
}

fn has_identifier(tokens: TokenStream, wanted: &str) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(name) => name == wanted,
        TokenTree::Group(group) => has_identifier(group.stream(), wanted),
        TokenTree::Punct(_) | TokenTree::Literal(_) => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_is_found_at_its_line() {
        for (word, _) in NOTES.map(|note| (note, "")).iter().chain(&CODE) {
            let text = format!("//! A file.\n\n// {word}(x)\n");
            let violations = check(&Source::of("a.rs", &text));
            assert_eq!((violations.len(), violations[0].line), (1, 3), "{word}");
        }
    }

    #[test]
    fn tests_that_are_ignored_on_a_condition_are_found() {
        let attribute =
            |inner: &str| format!("//! A.\n\n#[test]\n#[cfg_attr({inner})]\nfn t() {{}}\n");
        for inner in [format!("miri, {IGNORE}"), format!("all(), {IGNORE} = \"slow\"")] {
            let violations = check(&Source::of("a.rs", &attribute(&inner)));
            assert_eq!((violations.len(), violations[0].line), (1, 4), "{inner}");
        }
        let other = attribute(&format!("miri, doc = \"{IGNORE}\""));
        assert_eq!(check(&Source::of("a.rs", &other)), []);
    }

    #[test]
    fn tests_may_need_a_program() {
        let text = format!("//! A file.\n{}a server\"]\nfn f() {{}}\n", NEEDS[0]);
        assert_eq!(check(&Source::of("a.rs", &text)), []);
        assert_eq!(check(&Source::of("a.rs", &text.replace("needs", "is slow, of"))).len(), 1);
    }

    #[test]
    fn words_that_only_contain_one_are_fine() {
        let text = NOTES.map(|note| format!("// A{note} {note}S\n")).concat();
        assert_eq!(check(&Source::of("a.rs", &text)), []);
    }

    #[test]
    fn notes_are_found_in_any_text_and_code_only_in_rust() {
        assert_eq!(check(&Source::of("a.py", &format!("# {}: later", NOTES[0]))).len(), 1);
        assert_eq!(check(&Source::of("a.md", CODE[0].0)), []);
    }
}
