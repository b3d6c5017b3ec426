//! Answers, in RESP2 and RESP3. Each function appends one element; the elements of an array, a map
//! or a set follow it.

use bytes::{BufMut, BytesMut};

use crate::format_double;

/// The version of the protocol that a client speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// RESP2: no maps, sets, doubles or pushed messages.
    #[default]
    Two,
    /// RESP3.
    Three,
}

/// A line without its end, such as `OK`. It must have no line break.
pub fn simple(out: &mut BytesMut, text: &str) {
    line(out, b'+', text.as_bytes());
}

/// An error. Line breaks become spaces.
pub fn error(out: &mut BytesMut, text: &[u8]) {
    out.put_u8(b'-');
    out.extend(text.iter().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }));
    out.put_slice(b"\r\n");
}

/// An integer.
pub fn integer(out: &mut BytesMut, number: i64) {
    out.put_u8(b':');
    decimal(out, number);
}

/// Bytes.
pub fn bulk(out: &mut BytesMut, bytes: &[u8]) {
    out.reserve(bytes.len() + 24);
    bulk_header(out, bytes.len());
    out.put_slice(bytes);
    out.put_slice(b"\r\n");
}

/// What comes before the bytes of a bulk; the bytes and a line end must follow.
pub fn bulk_header(out: &mut BytesMut, bytes: usize) {
    header(out, b'$', bytes);
}

/// The absence of a value.
pub fn null(out: &mut BytesMut, version: Version) {
    out.put_slice(if version == Version::Two { b"$-1\r\n" } else { b"_\r\n" });
}

/// The absence of an array.
pub fn null_array(out: &mut BytesMut, version: Version) {
    out.put_slice(if version == Version::Two { b"*-1\r\n" } else { b"_\r\n" });
}

/// An array of so many elements.
pub fn array(out: &mut BytesMut, elements: usize) {
    header(out, b'*', elements);
}

/// A map of so many pairs; in RESP2 an array of keys and values in turns.
pub fn map(out: &mut BytesMut, version: Version, pairs: usize) {
    match version {
        Version::Two => header(out, b'*', 2 * pairs),
        Version::Three => header(out, b'%', pairs),
    }
}

/// A set of so many elements; in RESP2 an array.
pub fn set(out: &mut BytesMut, version: Version, elements: usize) {
    header(out, if version == Version::Two { b'*' } else { b'~' }, elements);
}

/// A message of so many elements that answers no request; in RESP2 an array.
pub fn push(out: &mut BytesMut, version: Version, elements: usize) {
    header(out, if version == Version::Two { b'*' } else { b'>' }, elements);
}

/// A double; in RESP2 bytes.
pub fn double(out: &mut BytesMut, version: Version, number: f64) {
    let text = format_double(number);
    match version {
        Version::Two => bulk(out, text.as_bytes()),
        Version::Three => line(out, b',', text.as_bytes()),
    }
}

/// A truth value; in RESP2 an integer.
pub fn boolean(out: &mut BytesMut, version: Version, value: bool) {
    match version {
        Version::Two => integer(out, i64::from(value)),
        Version::Three => out.put_slice(if value { b"#t\r\n" } else { b"#f\r\n" }),
    }
}

/// A number of any length; in RESP2 bytes. It must have no line break.
pub fn big_number(out: &mut BytesMut, version: Version, digits: &str) {
    match version {
        Version::Two => bulk(out, digits.as_bytes()),
        Version::Three => line(out, b'(', digits.as_bytes()),
    }
}

/// A text for people; in RESP2 bytes.
pub fn verbatim(out: &mut BytesMut, version: Version, text: &[u8]) {
    verbatim_as(out, version, b"txt", text);
}

/// A text in a format, whose name is cut or filled up to three letters; in RESP2 bytes.
pub fn verbatim_as(out: &mut BytesMut, version: Version, format: &[u8], text: &[u8]) {
    match version {
        Version::Two => bulk(out, text),
        Version::Three => {
            header(out, b'=', text.len() + 4);
            let letter = |place: usize| format.get(place).copied().unwrap_or(b' ');
            out.put_slice(&[letter(0), letter(1), letter(2), b':']);
            out.put_slice(text);
            out.put_slice(b"\r\n");
        }
    }
}

fn header(out: &mut BytesMut, mark: u8, count: usize) {
    out.put_u8(mark);
    decimal(out, i64::try_from(count).unwrap_or(i64::MAX));
}

fn line(out: &mut BytesMut, mark: u8, text: &[u8]) {
    out.reserve(text.len() + 3);
    out.put_u8(mark);
    out.put_slice(text);
    out.put_slice(b"\r\n");
}

/// A number and the end of its line.
fn decimal(out: &mut BytesMut, number: i64) {
    if let Ok(digit @ 0..=9) = u8::try_from(number) {
        return out.put_slice(&[b'0' + digit, b'\r', b'\n']);
    }
    let mut digits = [0; 20];
    let mut start = digits.len();
    let mut rest = number.unsigned_abs();
    while rest > 0 {
        start -= 1;
        digits[start] = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
    }
    if number < 0 {
        out.put_u8(b'-');
    }
    out.put_slice(&digits[start..]);
    out.put_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut BytesMut)) -> String {
        let mut out = BytesMut::new();
        write(&mut out);
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn elements_differ_by_version() {
        use Version::{Three, Two};
        for (version, expected) in [
            (Two, "*2\r\n*1\r\n$-1\r\n*-1\r\n$3\r\n1.5\r\n:1\r\n*3\r\n$1\r\na\r\n"),
            (Three, "%1\r\n~1\r\n_\r\n_\r\n,1.5\r\n#t\r\n>3\r\n=5\r\ntxt:a\r\n"),
        ] {
            let text = written(|out| {
                map(out, version, 1);
                set(out, version, 1);
                null(out, version);
                null_array(out, version);
                double(out, version, 1.5);
                boolean(out, version, true);
                push(out, version, 3);
                verbatim(out, version, b"a");
            });
            assert_eq!(text, expected);
        }
    }

    #[test]
    fn integers_of_all_lengths_are_written() {
        for number in [0, 9, 10, -1, 123, i64::MAX, i64::MIN] {
            assert_eq!(written(|out| integer(out, number)), format!(":{number}\r\n"));
        }
    }

    #[test]
    fn an_error_stays_on_its_line() {
        assert_eq!(written(|out| error(out, b"ERR a\r\nb")), "-ERR a  b\r\n");
    }
}
