//! The messages on a helper's socket.
//!
//! A request: three lengths of 4 bytes, and three records. An answer or the greeting at the
//! helper's start: a byte for its kind, a length of 4 bytes, and a record or a text.

/// Length of an answer's header.
pub(crate) const HEADER_BYTES: usize = 5;

/// The helper's answer about a conflict.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The merged record.
    Resolved(Vec<u8>),
    /// The class does not merge these revisions, has no such method, or cannot be imported.
    Unresolved(String),
    /// The class raised an unexpected exception.
    Failed(String),
}

/// The helper's greeting.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Greeting {
    /// The helper is ready; the text says which kinds of access it has given up.
    Ready(String),
    /// The helper cannot work.
    Refused(String),
}

/// Encodes a request; `None` if a record is too long for its length field.
pub(crate) fn request(records: [&[u8]; 3]) -> Option<Vec<u8>> {
    let bytes = records.iter().map(|record| record.len()).sum::<usize>();
    let mut request = Vec::with_capacity(12 + bytes);
    for record in records {
        request.extend(u32::try_from(record.len()).ok()?.to_be_bytes());
    }
    for record in records {
        request.extend_from_slice(record);
    }
    Some(request)
}

/// Decodes a header: the kind of an answer, and the length of its payload.
pub(crate) fn header([kind, length @ ..]: [u8; HEADER_BYTES]) -> (u8, usize) {
    (kind, u32::from_be_bytes(length) as usize)
}

impl Answer {
    /// An answer of this kind; `None` for an unknown kind, or if a record is missing.
    pub(crate) fn new(kind: u8, payload: Vec<u8>) -> Option<Answer> {
        match kind {
            b'R' if !payload.is_empty() => Some(Answer::Resolved(payload)),
            b'U' => Some(Answer::Unresolved(text(&payload))),
            b'F' => Some(Answer::Failed(text(&payload))),
            _ => None,
        }
    }
}

impl Greeting {
    /// A greeting of this kind; `None` for an unknown kind.
    pub(crate) fn new(kind: u8, payload: &[u8]) -> Option<Greeting> {
        match kind {
            b'H' => Some(Greeting::Ready(text(payload))),
            b'X' => Some(Greeting::Refused(text(payload))),
            _ => None,
        }
    }
}

/// Makes a helper's text safe to log: clients can control it. Its lines are indented, unlike the
/// log's own lines, and control characters are escaped.
fn text(payload: &[u8]) -> String {
    let shown = |character: char| match character {
        '\n' => "\n    ".to_owned(),
        control if control.is_control() => char::REPLACEMENT_CHARACTER.to_string(),
        other => other.to_string(),
    };
    String::from_utf8_lossy(payload).chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_its_lengths_before_its_records() {
        let made = request([b"old", b"", b"new!"]).unwrap();
        assert_eq!(made, b"\0\0\0\x03\0\0\0\0\0\0\0\x04oldnew!");
    }

    #[test]
    fn a_text_forges_no_line_of_the_log() {
        let forged = b"no\n2026-01-01 ERROR \x1b[2Jlost\r".to_vec();
        let shown = "no\n    2026-01-01 ERROR \u{fffd}[2Jlost\u{fffd}".to_owned();
        assert_eq!(Answer::new(b'F', forged), Some(Answer::Failed(shown)));
    }

    #[test]
    fn answers_are_told_by_their_kind() {
        assert_eq!(header(*b"R\0\0\x01\x02"), (b'R', 258));
        assert_eq!(Answer::new(b'R', b"x".to_vec()), Some(Answer::Resolved(b"x".to_vec())));
        assert_eq!(Answer::new(b'U', b"no".to_vec()), Some(Answer::Unresolved("no".to_owned())));
        assert_eq!(Answer::new(b'F', Vec::new()), Some(Answer::Failed(String::new())));
        assert_eq!(Answer::new(b'R', Vec::new()), None);
        assert_eq!(Answer::new(b'H', Vec::new()), None);
        assert_eq!(Greeting::new(b'X', b"\xff"), Some(Greeting::Refused("\u{fffd}".to_owned())));
        assert_eq!(Greeting::new(b'R', b""), None);
    }
}
