//! Peers that speak another protocol than ZEO, recognised by their first bytes.

/// A protocol that is often sent to a ZEO server by mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ForeignProtocol {
    Tls,
    Http,
    Resp,
    Ssh,
}

/// A handshake record of TLS.
const TLS_BEGIN: &[u8] = &[0x16, 0x03];

/// What the greeting of an SSH client begins with.
const SSH_BEGIN: &[u8] = b"SSH-";

/// The command without arguments that health checks of Redis send as plain text.
const RESP_PING: &[u8] = b"PING";

/// Beginnings of HTTP requests; the last one is of HTTP/2.
const HTTP_METHODS: [&str; 10] = [
    "GET ", "HEAD ", "POST ", "PUT ", "DELETE ", "CONNECT ", "OPTIONS ", "TRACE ", "PATCH ", "PRI ",
];

/// The answer to an HTTP request. The greeting precedes it, so only humans can read it.
const HTTP_ANSWER: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n\
    Connection: close\r\n\r\nThis port is for ZEO clients; it does not speak HTTP.\n";

/// The answer to a client of Redis or Valkey.
const RESP_ANSWER: &[u8] = b"-ERR this port is for ZEO clients; it does not speak RESP\r\n";

impl ForeignProtocol {
    /// The protocol of a client's first bytes, of which there are at least four.
    pub(crate) fn recognise(bytes: &[u8]) -> Option<ForeignProtocol> {
        let is_of = |method: &&str| {
            let length = method.len().min(bytes.len());
            bytes[..length] == method.as_bytes()[..length]
        };
        match bytes {
            [] => None,
            _ if bytes.starts_with(TLS_BEGIN) => Some(ForeignProtocol::Tls),
            _ if HTTP_METHODS.iter().any(is_of) => Some(ForeignProtocol::Http),
            _ if bytes.starts_with(SSH_BEGIN) => Some(ForeignProtocol::Ssh),
            _ if bytes.starts_with(RESP_PING) => Some(ForeignProtocol::Resp),
            // A command: `*`, the number of its parts, and the end of the line.
            [b'*', first, second, ..]
                if first.is_ascii_digit() && (second.is_ascii_digit() || *second == b'\r') =>
            {
                Some(ForeignProtocol::Resp)
            }
            _ => None,
        }
    }

    /// The reason for the log.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            ForeignProtocol::Tls => "speaks TLS, which this server is not set up for",
            ForeignProtocol::Http => {
                "speaks HTTP, but this address is for ZEO clients; metrics, health and the status \
                 page have an address of their own (--monitor)"
            }
            ForeignProtocol::Resp => {
                "speaks RESP, but this address is for ZEO clients; clients of Redis and Valkey \
                 have an address of their own (--resp)"
            }
            ForeignProtocol::Ssh => "speaks SSH, but this address is for ZEO clients",
        }
    }

    /// The answer to the peer.
    pub(crate) fn answer(self) -> &'static [u8] {
        match self {
            ForeignProtocol::Tls | ForeignProtocol::Ssh => b"",
            ForeignProtocol::Http => HTTP_ANSWER,
            ForeignProtocol::Resp => RESP_ANSWER,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_protocols_are_recognised_by_four_bytes() {
        assert_eq!(ForeignProtocol::recognise(b"\x16\x03\x01\x02\0"), Some(ForeignProtocol::Tls));
        for request in ["GET / HTTP/1.1\r\n", "GET ", "OPTI", "POST /a", "PRI * HTTP/2.0"] {
            assert_eq!(
                ForeignProtocol::recognise(request.as_bytes()),
                Some(ForeignProtocol::Http),
                "{request}"
            );
        }
        for command in ["*1\r\n$4\r\nPING\r\n", "*12\r", "PING\r\n"] {
            let found = ForeignProtocol::recognise(command.as_bytes());
            assert_eq!(found, Some(ForeignProtocol::Resp), "{command}");
        }
        assert_eq!(ForeignProtocol::recognise(b"SSH-2.0"), Some(ForeignProtocol::Ssh));
        for other in [&b"\0\0\0\x02"[..], b"*a\r\n", b"*1\n\0", b"ping", b"GETX", b"get ", b""] {
            assert_eq!(ForeignProtocol::recognise(other), None);
        }
    }

    #[test]
    fn the_reason_in_the_log_names_the_protocol() {
        for (protocol, name) in [
            (ForeignProtocol::Tls, "TLS"),
            (ForeignProtocol::Http, "HTTP"),
            (ForeignProtocol::Resp, "RESP"),
            (ForeignProtocol::Ssh, "SSH"),
        ] {
            assert!(protocol.reason().starts_with(&format!("speaks {name},")), "{protocol:?}");
        }
    }
}
