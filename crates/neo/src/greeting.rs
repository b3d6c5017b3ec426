//! The greeting: the first bytes of each side, sent without waiting for the peer.

use thiserror::Error;

use crate::wire::Reader;

/// The version of the protocol. NEO/py has it since July 2024.
pub const PROTOCOL_VERSION: u8 = 5;

/// The greeting of this version: the msgpack of `("NEO", 5)`.
pub const GREETING: [u8; 6] = [0x92, 0xa3, b'N', b'E', b'O', PROTOCOL_VERSION];

/// Bytes of the greeting before the version.
const MAGIC_LENGTH: usize = 5;
/// First byte of a TLS handshake.
const TLS_HANDSHAKE: u8 = 0x16;
/// First byte of an alert of TLS, which answers what is no handshake.
const TLS_ALERT: u8 = 0x15;
/// Bytes of an unknown greeting that are shown.
const SHOWN_BYTES_MAX: usize = 20;

/// The beginning of what a peer sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Greeting {
    /// A greeting of this version, of so many bytes.
    Complete(usize),
    /// A part of a greeting: call again when there are so many bytes.
    Need(usize),
}

/// Why a peer cannot be talked to. The connection is closed without an answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GreetingError {
    /// The peer begins a TLS handshake.
    #[error("the peer speaks TLS; configure TLS for all nodes of the cluster, or for none")]
    Tls,
    /// The peer speaks another protocol.
    #[error("\"{shown}\" is not a greeting of NEO; check the peer's address")]
    NotNeo {
        /// The beginning of what the peer sent, escaped.
        shown: String,
    },
    /// The peer speaks the encoding that NEO had before msgpack.
    #[error(
        "the peer speaks NEO's old encoding, version {version}; it needs NEO with protocol version \
         {PROTOCOL_VERSION}"
    )]
    OldEncoding {
        /// The peer's version.
        version: u8,
    },
    /// The peer speaks another version.
    #[error(
        "the peer speaks version {version} of the NEO protocol, this node {PROTOCOL_VERSION}; run \
         the same version of NEO on all nodes"
    )]
    OtherVersion {
        /// The peer's version.
        version: u64,
    },
}

impl GreetingError {
    /// What is equal of all peers that are wrong in the same way.
    pub fn kind(&self) -> &'static str {
        match self {
            GreetingError::Tls => "TLS",
            GreetingError::NotNeo { .. } => "not NEO",
            GreetingError::OldEncoding { .. } => "the old encoding",
            GreetingError::OtherVersion { .. } => "another version",
        }
    }
}

/// Reads the greeting at the beginning of a connection. Wrong bytes are refused as they arrive.
pub fn read_greeting(buffer: &[u8]) -> Result<Greeting, GreetingError> {
    let there_are = buffer.len().min(MAGIC_LENGTH);
    if buffer[..there_are] != GREETING[..there_are] {
        return refuse(buffer);
    }
    let Some(marker) = buffer.get(MAGIC_LENGTH) else {
        return Ok(Greeting::Need(GREETING.len()));
    };
    let length = match marker {
        0xcc..=0xcf => MAGIC_LENGTH + 1 + (1 << (marker - 0xcc)),
        _ => GREETING.len(),
    };
    let Some(version) = buffer.get(MAGIC_LENGTH..length) else {
        return Ok(Greeting::Need(length));
    };
    match Reader::new(version).int("a version") {
        Ok(version) if version == u64::from(PROTOCOL_VERSION) => Ok(Greeting::Complete(length)),
        Ok(version) => Err(GreetingError::OtherVersion { version }),
        Err(_) => Err(not_neo(buffer)),
    }
}

fn refuse(buffer: &[u8]) -> Result<Greeting, GreetingError> {
    match buffer {
        [TLS_HANDSHAKE | TLS_ALERT, ..] => Err(GreetingError::Tls),
        [0, 0, 0, version, ..] if *version > 0 => {
            Err(GreetingError::OldEncoding { version: *version })
        }
        [0] | [0, 0] | [0, 0, 0] => Ok(Greeting::Need(4)),
        _ => Err(not_neo(buffer)),
    }
}

fn not_neo(buffer: &[u8]) -> GreetingError {
    let shown = &buffer[..buffer.len().min(SHOWN_BYTES_MAX)];
    GreetingError::NotNeo { shown: shown.escape_ascii().to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_may_arrive_in_pieces() {
        assert_eq!(GREETING, *b"\x92\xa3NEO\x05");
        for length in 0..GREETING.len() {
            assert_eq!(read_greeting(&GREETING[..length]), Ok(Greeting::Need(6)), "{length}");
        }
        assert_eq!(read_greeting(&GREETING), Ok(Greeting::Complete(6)));
        assert_eq!(read_greeting(b"\x92\xa3NEO\x05\x93\0"), Ok(Greeting::Complete(6)));
        assert_eq!(read_greeting(b"\x92\xa3NEO\xcd\0"), Ok(Greeting::Need(8)));
        assert_eq!(read_greeting(b"\x92\xa3NEO\xcd\0\x05\x93"), Ok(Greeting::Complete(8)));
    }

    #[test]
    fn other_versions_are_told_from_other_protocols() {
        let version = |version| Err(GreetingError::OtherVersion { version });
        assert_eq!(read_greeting(b"\x92\xa3NEO\x04"), version(4));
        assert_eq!(read_greeting(b"\x92\xa3NEO\x06"), version(6));
        assert_eq!(read_greeting(b"\x92\xa3NEO\xcc\x85"), version(133));
        assert_eq!(read_greeting(b"\x16\x03"), Err(GreetingError::Tls));
        assert_eq!(read_greeting(b"\x15\x03"), Err(GreetingError::Tls));
        assert_eq!(read_greeting(b"\0\0\0"), Ok(Greeting::Need(4)));
        assert_eq!(read_greeting(b"\0\0\0\x06"), Err(GreetingError::OldEncoding { version: 6 }));
        for other in [&b"\x92\xa3NEX"[..], b"\x93", b"GET / HTTP/1.1\r\n", b"\0\0\0\0", b"\0Z"] {
            let error = read_greeting(other);
            assert!(matches!(error, Err(GreetingError::NotNeo { .. })), "{error:?}");
        }
        let error = read_greeting(b"GET / HTTP/1.1\r\nHost: there\r\n").unwrap_err().to_string();
        assert!(error.starts_with("\"GET / HTTP/1.1\\r\\nHost\" is not a greeting"), "{error}");
        assert!(matches!(read_greeting(b"\x92\xa3NEO\xc0"), Err(GreetingError::NotNeo { .. })));
    }
}
