//! What goes over a helper's socket.
//!
//! A request: three lengths of 4 bytes, and three records. An answer, and what the helper says at
//! its start: a byte for its kind, a length of 4 bytes, and a record or a text.

/// The bytes before an answer's payload.
pub(crate) const HEADER_BYTES: usize = 5;

/// What the helper says of a conflict.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The merged record.
    Resolved(Vec<u8>),
    /// The class does not merge these, has no such method, or cannot be imported.
    Unresolved(String),
    /// An exception that no class should raise.
    Failed(String),
}

/// What the helper says at its start.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Greeting {
    /// It is ready. What it cannot reach, in words.
    Ready(String),
    /// It cannot do its work.
    Refused(String),
}

/// A request, as it is sent; `None` when a record is longer than a length says.
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

/// The kind of an answer, and the length of its payload.
pub(crate) fn header([kind, length @ ..]: [u8; HEADER_BYTES]) -> (u8, usize) {
    (kind, u32::from_be_bytes(length) as usize)
}

impl Answer {
    /// An answer of this kind; `None` when there is no such kind, or it has no record.
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
    /// A greeting of this kind; `None` when there is no such kind.
    pub(crate) fn new(kind: u8, payload: &[u8]) -> Option<Greeting> {
        match kind {
            b'H' => Some(Greeting::Ready(text(payload))),
            b'X' => Some(Greeting::Refused(text(payload))),
            _ => None,
        }
    }
}

/// What a helper says, for the log: clients can have it say anything, so its lines are indented,
/// which no line of the log's own is, and nothing in them controls a terminal.
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
