//! `prose`: sentences are short, and name the parties that they are about.
//!
//! A long sentence hides its point, and "who" or "nobody" hides which party acts. The rule holds
//! for all documents and crates but those in [`LEFT_OUT`].

use super::word::has_word;
use crate::source::Source;
use crate::violation::Violation;

const RULE: &str = "prose";

/// Texts that speak of the words themselves.
const LEFT_OUT: [&str; 2] = ["CONTRIBUTING.md", "xtask/"];

/// Pronouns in place of a party, in comments, messages and documents.
const PRONOUNS: [&str; 8] =
    ["who", "whom", "whoever", "whomever", "somebody", "nobody", "anybody", "everybody"];

/// Longest sentence, in words; aim at 20.
const SENTENCE_WORDS_MAX: usize = 35;

/// Pronouns without a party, and long sentences.
pub(crate) fn check(source: &Source) -> Vec<Violation> {
    let is_text = source.is_rust() || source.path.ends_with(".md");
    let is_left_out = LEFT_OUT.iter().any(|left_out| source.path.starts_with(left_out));
    if !is_text || is_left_out {
        return Vec::new();
    }
    let mut violations = Vec::new();
    for (line, text) in source.lines() {
        let text = text.to_lowercase();
        for pronoun in PRONOUNS.iter().filter(|pronoun| has_word(&text, pronoun)) {
            let advice = format!("{pronoun}: name the party, such as the client or the caller");
            violations.push(source.violation(line, RULE, advice));
        }
    }
    for Paragraph { line, text } in paragraphs(source) {
        for words in sentence_lengths(&text).into_iter().filter(|max| *max > SENTENCE_WORDS_MAX) {
            let advice = format!(
                "a sentence has {words} words, {SENTENCE_WORDS_MAX} is the limit: make it two, or \
                 a list"
            );
            violations.push(source.violation(line, RULE, advice));
        }
    }
    violations
}

/// A paragraph, an item of a list, or a cell of a table.
struct Paragraph {
    /// Where it begins.
    line: usize,
    text: String,
}

/// The prose of a document, or of a program's comments; without blocks of code.
fn paragraphs(source: &Source) -> Vec<Paragraph> {
    let mut paragraphs = Vec::new();
    let mut is_open = false;
    let mut is_code = false;
    for (line, text) in source.lines() {
        let text = match source.is_rust() {
            true => comment(text).unwrap_or_default(),
            false => text.trim(),
        };
        let is_fence = text.starts_with("```");
        is_code ^= is_fence;
        if is_fence || is_code || text.is_empty() || text.starts_with('#') {
            is_open = false;
        } else if let Some(row) = text.strip_prefix('|') {
            is_open = false;
            let cells = row.split(" | ").map(|cell| Paragraph { line, text: cell.to_owned() });
            paragraphs.extend(cells);
        } else {
            match paragraphs.last_mut().filter(|_| is_open && !begins_item(text)) {
                None => paragraphs.push(Paragraph { line, text: text.to_owned() }),
                Some(paragraph) => {
                    paragraph.text.push(' ');
                    paragraph.text.push_str(text);
                }
            }
            is_open = true;
        }
    }
    paragraphs
}

/// The text of a line that is a comment.
fn comment(line: &str) -> Option<&str> {
    let text = line.trim().strip_prefix("//")?;
    Some(text.strip_prefix(['/', '!']).unwrap_or(text).trim())
}

fn begins_item(text: &str) -> bool {
    let after_number = text.trim_start_matches(|character: char| character.is_ascii_digit());
    text.starts_with("- ") || (after_number != text && after_number.starts_with(". "))
}

/// The words of each sentence. Code in backticks is one word.
fn sentence_lengths(text: &str) -> Vec<usize> {
    let code_as_words: String = text
        .split('`')
        .enumerate()
        .map(|(part, text)| if part % 2 == 0 { text } else { "x" })
        .collect();
    let mut lengths = vec![0];
    for word in code_as_words.split_whitespace() {
        if word.contains(char::is_alphanumeric)
            && let Some(length) = lengths.last_mut()
        {
            *length += 1;
        }
        if word.trim_end_matches(['*', ')', '"']).ends_with(['.', '!', '?']) {
            lengths.push(0);
        }
    }
    lengths
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&Source::of(path, text)).into_iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn pronouns_are_found_in_comments_messages_and_documents() {
        let text = "//! Who waits.\n\nfn a() {}\n\nconst A: &str = \"nobody\";\n";
        assert_eq!(lines("crates/net/src/a.rs", text), [1, 5]);
        assert_eq!(lines("docs/limits.md", "# A\n\nSomebody waits.\n"), [3]);
    }

    #[test]
    fn names_and_other_words_are_fine() {
        let text = "//! A whole client, whose peer waits.\n\nfn who_waits() {}\n";
        assert_eq!(lines("crates/net/src/a.rs", text), [0; 0]);
    }

    #[test]
    fn what_is_left_out_is_left_alone() {
        assert_eq!(lines("xtask/src/a.rs", "//! Who waits.\n"), [0; 0]);
        assert_eq!(lines("crates/engine/tests/a.rs", "//! Who waits.\n"), [1]);
        assert_eq!(lines("CONTRIBUTING.md", "Nobody.\n"), [0; 0]);
        assert_eq!(lines("crates/net/src/a.txt", "Nobody.\n"), [0; 0]);
    }

    #[test]
    fn sentences_end_at_the_limit() {
        let sentence = |words: usize| format!("{}b.", "a ".repeat(words - 1));
        let (short, long) = (sentence(SENTENCE_WORDS_MAX), sentence(SENTENCE_WORDS_MAX + 1));
        assert_eq!(lines("README.md", &format!("{short} {short}\n")), [0; 0]);
        assert_eq!(lines("README.md", &format!("# A\n\n{short}\n{long}\n")), [3]);
        assert_eq!(lines("crates/net/src/a.rs", &format!("//! A.\n\n// {long}\n")), [3]);
    }

    #[test]
    fn items_cells_and_code_do_not_add_up() {
        let half = "a ".repeat(SENTENCE_WORDS_MAX / 2 + 1);
        let half = half.trim_end();
        for text in [
            format!("- {half}\n- {half}\n"),
            format!("1. {half}\n2. {half}\n"),
            format!("| {half} | {half} |\n"),
            format!("# {half}\n{half}\n"),
            format!("{half}\n\n{half}\n"),
            format!("```\n{half} {half}\n```\n"),
            format!("{half} `{half}`\n"),
        ] {
            assert_eq!(lines("README.md", &text), [0; 0], "{text}");
        }
        assert_eq!(lines("README.md", &format!("{half}\n{half}\n")), [1]);
        assert_eq!(lines("README.md", &format!("- a\n- {half}\n  {half}\n")), [2]);
    }
}
