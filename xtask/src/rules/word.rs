//! Finding words in a line, not parts of words.

/// If `word` stands in the line by itself: no letter, digit or `_` goes on where the word begins
/// or ends with one.
pub(super) fn has_word(line: &str, word: &str) -> bool {
    let (first, last) = (word.chars().next(), word.chars().next_back());
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        let goes_on = continues(before, first) || continues(last, after);
        !goes_on
    })
}

/// If two neighbours are of one word.
fn continues(left: Option<char>, right: Option<char>) -> bool {
    let is_part = |character: char| character.is_alphanumeric() || character == '_';
    left.is_some_and(is_part) && right.is_some_and(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_found_only_by_itself() {
        for line in ["ab", " ab.", "xab ab", "(ab)", "\u{e4} ab"] {
            assert!(has_word(line, "ab"), "{line}");
        }
        for line in ["", "a", "abc", "xab", "ab_", "ab1", "\u{e4}ab"] {
            assert!(!has_word(line, "ab"), "{line}");
        }
    }

    #[test]
    fn signs_at_the_ends_of_a_word_separate() {
        assert!(has_word("x#[ab]", "#[ab"));
        assert!(has_word("ab!(x)", "ab!"));
        assert!(!has_word("xab!(x)", "ab!"));
    }
}
