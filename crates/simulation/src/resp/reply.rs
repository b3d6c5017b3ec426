//! Answers, and their bytes in both versions of the protocol.

/// An answer, or a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Simple(&'static str),
    Error(String),
    Number(i64),
    Double(i64),
    Bulk(Vec<u8>),
    Null,
    NullArray,
    Array(Vec<Reply>),
    /// In RESP2 keys and values are pairs.
    Map(Vec<(Reply, Reply)>),
    /// What answers no request.
    Push(Vec<Reply>),
    /// Nothing.
    None,
}

impl Reply {
    pub(super) fn ok() -> Reply {
        Reply::Simple("OK")
    }

    pub(super) fn bulk(bytes: impl AsRef<[u8]>) -> Reply {
        Reply::Bulk(bytes.as_ref().to_vec())
    }

    pub(super) fn bulk_or_null(bytes: Option<Vec<u8>>) -> Reply {
        bytes.map_or(Reply::Null, Reply::Bulk)
    }

    pub(super) fn count(count: usize) -> Reply {
        Reply::Number(i64::try_from(count).unwrap_or(i64::MAX))
    }

    /// The bytes, in RESP3 or RESP2.
    pub(super) fn encoded(&self, is_resp3: bool) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.encode(is_resp3, &mut bytes);
        bytes
    }

    fn encode(&self, is_resp3: bool, out: &mut Vec<u8>) {
        let line = |mark: char, text: &str| format!("{mark}{text}\r\n").into_bytes();
        match self {
            Reply::Simple(text) => out.extend(line('+', text)),
            Reply::Error(text) => out.extend(line('-', text)),
            Reply::Number(number) => out.extend(line(':', &number.to_string())),
            Reply::Double(number) if is_resp3 => out.extend(line(',', &number.to_string())),
            Reply::Double(number) => Reply::bulk(number.to_string()).encode(false, out),
            Reply::Bulk(bytes) => {
                out.extend(line('$', &bytes.len().to_string()));
                out.extend(bytes);
                out.extend(b"\r\n");
            }
            Reply::Null | Reply::NullArray if is_resp3 => out.extend(b"_\r\n"),
            Reply::Null => out.extend(b"$-1\r\n"),
            Reply::NullArray => out.extend(b"*-1\r\n"),
            Reply::Push(elements) | Reply::Array(elements) => {
                let is_push = matches!(self, Reply::Push(_)) && is_resp3;
                out.extend(line(if is_push { '>' } else { '*' }, &elements.len().to_string()));
                elements.iter().for_each(|element| element.encode(is_resp3, out));
            }
            Reply::Map(pairs) => {
                let mark = if is_resp3 { '%' } else { '*' };
                out.extend(line(mark, &pairs.len().to_string()));
                for (key, value) in pairs {
                    if !is_resp3 {
                        out.extend(b"*2\r\n");
                    }
                    key.encode(is_resp3, out);
                    value.encode(is_resp3, out);
                }
            }
            Reply::None => {}
        }
    }
}

/// The beginning of some bytes, as text.
pub(super) fn shown(bytes: &[u8]) -> String {
    const MOST: usize = 400;
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(MOST)]).into_owned();
    if bytes.len() > MOST { format!("{text}... ({} bytes)", bytes.len()) } else { text }
}
