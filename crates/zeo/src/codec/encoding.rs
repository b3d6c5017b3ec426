//! The two encodings of a connection, and the handshake that selects one.
//!
//! The server announces an encoding, and the client must answer with it: a stock client cannot
//! choose. A monitor sends `ruok` instead.

use super::CodecError;

/// The encoding of a connection's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// `Z5`: pickles of protocol 3.
    Pickle,
    /// `M5`: msgpack.
    Msgpack,
}

/// The first frame that a client sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Greeting {
    /// A session whose messages are in this encoding, both ways.
    Session(Encoding),
    /// `ruok`: a monitor, which gets one frame of JSON with the status of every storage.
    Monitor,
}

impl Encoding {
    /// The payload of the frame in which a server announces it, and a client accepts it.
    pub fn announcement(self) -> &'static [u8] {
        match self {
            Encoding::Pickle => b"Z5",
            Encoding::Msgpack => b"M5",
        }
    }

    /// The encoding in a server's announcement.
    ///
    /// As in stock clients, a version that is greater than 5 as text is accepted too: such a server
    /// falls back to 5.
    pub fn from_announcement(payload: &[u8]) -> Result<Encoding, CodecError> {
        let known = [Encoding::Pickle, Encoding::Msgpack].into_iter().find(|encoding| {
            let (letter, version) = encoding.announcement().split_at(1);
            payload.strip_prefix(letter).is_some_and(|announced| announced >= version)
        });
        known.ok_or_else(|| CodecError::unknown_handshake(payload))
    }
}

impl Greeting {
    /// Parses a client's first frame.
    pub fn from_payload(payload: &[u8]) -> Result<Greeting, CodecError> {
        match payload {
            b"Z5" => Ok(Greeting::Session(Encoding::Pickle)),
            b"M5" => Ok(Greeting::Session(Encoding::Msgpack)),
            b"ruok" => Ok(Greeting::Monitor),
            _ => Err(CodecError::unknown_handshake(payload)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_answers_with_the_announcement() {
        for encoding in [Encoding::Pickle, Encoding::Msgpack] {
            let announcement = encoding.announcement();
            assert_eq!(Encoding::from_announcement(announcement), Ok(encoding));
            assert_eq!(Greeting::from_payload(announcement), Ok(Greeting::Session(encoding)));
        }
        assert_eq!(Encoding::from_announcement(b"Z6"), Ok(Encoding::Pickle));
        assert_eq!(Greeting::from_payload(b"ruok"), Ok(Greeting::Monitor));
    }

    #[test]
    fn old_and_foreign_handshakes_are_refused() {
        for payload in [&b""[..], b"Z", b"Z4", b"Z310", b"X5", b"GET / HTTP/1.1"] {
            assert!(Encoding::from_announcement(payload).is_err(), "{payload:?}");
            assert!(Greeting::from_payload(payload).is_err(), "{payload:?}");
        }
        assert!(Greeting::from_payload(b"Z6").is_err());
    }
}
