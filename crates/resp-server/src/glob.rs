//! Patterns of keys and channels: `*`, `?`, `[a-c]`, `[^a]`, and `\` before a character.

/// Most stars of a pattern, neighbours counted once. With more it fits nothing, as in the stock
/// server.
const STARS_MAX: usize = 1000;

/// Whether a word fits a pattern.
pub(crate) fn fits(pattern: &[u8], word: &[u8]) -> bool {
    fits_by(pattern, word, |byte| byte)
}

/// As [`fits`], without regard to the case of ASCII letters.
pub(crate) fn fits_any_case(pattern: &[u8], word: &[u8]) -> bool {
    fits_by(pattern, word, |byte| byte.to_ascii_lowercase())
}

fn fits_by(pattern: &[u8], word: &[u8], fold: fn(u8) -> u8) -> bool {
    let (mut pattern, mut word) = (pattern, word);
    // Where to go on if the rest does not fit: behind the last star, one byte further. Stars
    // before it need not be tried again, so the time is at most the product of the lengths.
    let mut retry: Option<(&[u8], &[u8])> = None;
    let mut stars = 0;
    loop {
        let fitted = match (pattern, word) {
            ([b'*', rest @ ..], _) => {
                stars += usize::from(!rest.starts_with(b"*"));
                if stars > STARS_MAX && !rest.is_empty() {
                    return false;
                }
                retry = Some((rest, word));
                Some((rest, word))
            }
            ([], []) => return true,
            ([], _) | (_, []) => None,
            (_, [byte, after @ ..]) => one(pattern, *byte, fold).map(|rest| (rest, after)),
        };
        (pattern, word) = match (fitted, retry) {
            (Some(next), _) => next,
            (None, Some((rest, [_, after @ ..]))) => {
                retry = Some((rest, after));
                (rest, after)
            }
            (None, _) => return false,
        };
    }
}

/// The rest of a pattern whose first element fits a byte.
fn one(pattern: &[u8], byte: u8, fold: fn(u8) -> u8) -> Option<&[u8]> {
    match pattern {
        [b'?', rest @ ..] => Some(rest),
        [b'[', rest @ ..] => class(rest, byte, fold),
        [b'\\', escaped, rest @ ..] => (fold(*escaped) == fold(byte)).then_some(rest),
        [other, rest @ ..] => (fold(*other) == fold(byte)).then_some(rest),
        [] => None,
    }
}

/// The rest of a pattern behind a class that has a byte. A class without an end goes to the end.
fn class(pattern: &[u8], byte: u8, fold: fn(u8) -> u8) -> Option<&[u8]> {
    let (is_negated, mut rest) = match pattern {
        [b'^', rest @ ..] => (true, rest),
        _ => (false, pattern),
    };
    let (byte, mut has) = (fold(byte), false);
    loop {
        rest = match rest {
            [] => break,
            [b']', after @ ..] => {
                rest = after;
                break;
            }
            [b'\\', escaped, after @ ..] => {
                has |= fold(*escaped) == byte;
                after
            }
            [one, b'-', other, after @ ..] => {
                let (one, other) = (fold(*one), fold(*other));
                has |= (one.min(other)..=one.max(other)).contains(&byte);
                after
            }
            [one, after @ ..] => {
                has |= fold(*one) == byte;
                after
            }
        };
    }
    (has != is_negated).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_as_in_the_stock_server() {
        for (pattern, word, expected) in [
            ("*", "", true),
            ("a*c", "abbc", true),
            ("a*c", "abbd", false),
            ("*a*b*", "xxaxxbxx", true),
            ("h?llo", "hello", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("[", "[", false),
            ("[ab", "a", true),
            ("a\\", "a\\", true),
            ("", "a", false),
        ] {
            assert_eq!(fits(pattern.as_bytes(), word.as_bytes()), expected, "{pattern} {word}");
        }
        assert!(fits_any_case(b"MAX*", b"maxmemory"));
        assert!(fits(&b"*".repeat(2000), b"a") && fits(&b"*?".repeat(1000), &[b'a'; 1000]));
        assert!(!fits(&b"*?".repeat(1001), &[b'a'; 1001]), "too many stars");
        // Stars do not multiply the time.
        assert!(!fits("a*".repeat(100).as_bytes(), &[b'a'; 99]));
        assert!(!fits(&[&b"*a".repeat(40)[..], b"b"].concat(), &[b'a'; 20_000]));
    }
}
