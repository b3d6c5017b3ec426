//! Inline requests: one line of words, as a person types them.

use std::ops::Range;

use crate::FrameError;

/// Splits a line into words, which are appended to `bytes`; returns their places.
///
/// Words may be in double quotes, with escapes, or in single quotes, where only `\'` is one. After
/// a closing quote there must be white space or the end.
pub(crate) fn split(
    line: &[u8],
    bytes: &mut Vec<u8>,
    places: &mut Vec<Range<usize>>,
) -> Result<(), FrameError> {
    let mut rest = line.trim_ascii_start();
    while !rest.is_empty() {
        let start = bytes.len();
        rest = word(rest, bytes)?.trim_ascii_start();
        places.push(start..bytes.len());
    }
    Ok(())
}

/// The words of a line, as in an inline request. Configuration files have such lines too.
///
/// # Errors
/// A quote has no end.
pub fn split_line(line: &[u8]) -> Result<Vec<Vec<u8>>, FrameError> {
    let (mut bytes, mut places) = (Vec::new(), Vec::new());
    split(line, &mut bytes, &mut places)?;
    Ok(places.into_iter().map(|place| bytes[place].to_vec()).collect())
}

/// Appends the first word, and returns what follows it.
fn word<'a>(line: &'a [u8], bytes: &mut Vec<u8>) -> Result<&'a [u8], FrameError> {
    let mut rest = line;
    loop {
        match rest {
            [b'"', after @ ..] => return closed(double_quoted(after, bytes)?),
            [b'\'', after @ ..] => return closed(single_quoted(after, bytes)?),
            [] | [b' ' | b'\n' | b'\r' | b'\t' | 0, ..] => {
                return Ok(rest.get(1..).unwrap_or_default());
            }
            [byte, after @ ..] => {
                bytes.push(*byte);
                rest = after;
            }
        }
    }
}

fn closed(rest: &[u8]) -> Result<&[u8], FrameError> {
    match rest.first() {
        Some(byte) if !byte.is_ascii_whitespace() => Err(FrameError::UnbalancedQuotes),
        _ => Ok(rest),
    }
}

fn double_quoted<'a>(mut rest: &'a [u8], bytes: &mut Vec<u8>) -> Result<&'a [u8], FrameError> {
    loop {
        match rest {
            [] => return Err(FrameError::UnbalancedQuotes),
            [b'"', after @ ..] => return Ok(after),
            [b'\\', b'x', high, low, after @ ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                bytes.push(hex(*high) << 4 | hex(*low));
                rest = after;
            }
            [b'\\', escaped, after @ ..] => {
                bytes.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                rest = after;
            }
            [byte, after @ ..] => {
                bytes.push(*byte);
                rest = after;
            }
        }
    }
}

fn single_quoted<'a>(mut rest: &'a [u8], bytes: &mut Vec<u8>) -> Result<&'a [u8], FrameError> {
    loop {
        match rest {
            [] => return Err(FrameError::UnbalancedQuotes),
            [b'\'', after @ ..] => return Ok(after),
            [b'\\', b'\'', after @ ..] => {
                bytes.push(b'\'');
                rest = after;
            }
            [byte, after @ ..] => {
                bytes.push(*byte);
                rest = after;
            }
        }
    }
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Result<Vec<String>, FrameError> {
        let (mut bytes, mut places) = (Vec::new(), Vec::new());
        split(line.as_bytes(), &mut bytes, &mut places)?;
        let text = |place: &Range<usize>| String::from_utf8_lossy(&bytes[place.clone()]).into();
        Ok(places.iter().map(text).collect())
    }

    #[test]
    fn words_are_split_and_unescaped() {
        assert_eq!(words("  set a  b\t"), Ok(vec!["set".into(), "a".into(), "b".into()]));
        assert_eq!(words(r#""a b" '' 'it\'s' "\x41\n""#).unwrap(), ["a b", "", "it's", "A\n"]);
        assert_eq!(words("").unwrap(), [""; 0]);
        for wrong in ["\"a", "'a", "\"a\"b", "'a'b", "a \"\\"] {
            assert_eq!(words(wrong), Err(FrameError::UnbalancedQuotes), "{wrong}");
        }
    }
}
