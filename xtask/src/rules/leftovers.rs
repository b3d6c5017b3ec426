//! `leftovers`: nothing is committed that says it is not finished.
//!
//! The words are put together here so that this file does not break its own rule.

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

/// Lines with a mark of unfinished work.
pub(crate) fn check(source: &Source) -> Vec<Violation> {
    let code = if source.is_rust() { &CODE[..] } else { &[] };
    let notes = NOTES.iter().map(|note| (*note, "do it, or open an issue"));
    let banned: Vec<_> = notes.chain(code.iter().copied()).collect();
    let found = source.lines().flat_map(|(line, text)| {
        let found = banned.iter().filter(move |(word, _)| has_word(text, word));
        found.map(move |(word, advice)| {
            source.violation(line, "leftovers", format!("{word}: {advice}"))
        })
    });
    found.collect()
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
