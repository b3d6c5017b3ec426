//! Which requests are answered: those that a page of ours, or the operator, can have made.
//!
//! A page of another site can send requests to loopback, and by DNS rebinding read the answers. It
//! cannot choose the header `Host`, and it does not know the token of our forms.

use std::net::IpAddr;

use zodium_http::Request;
use zodium_http::header::HOST;

/// The names under which the explorer is reached.
#[derive(Clone, Debug)]
pub struct Hosts {
    /// The host that the operator gave.
    given: String,
}

impl Hosts {
    /// For an explorer for which the operator gave the host `given`.
    pub fn new(given: &str) -> Hosts {
        Hosts { given: given.to_ascii_lowercase() }
    }

    /// Whether a request names a host that no other site can have: an address, `localhost`, or the
    /// name that the operator gave. Any port will do: it may be forwarded.
    pub(crate) fn admit<B>(&self, request: &Request<B>) -> bool {
        let mut hosts = request.headers().get_all(HOST).into_iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
        let Ok(host) = host.to_str() else { return false };
        let name = match host.rsplit_once(':') {
            Some((name, port)) if !port.ends_with(']') => name,
            _ => host,
        };
        let name = name.to_ascii_lowercase();
        let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(&name);
        let is_given = !self.given.is_empty() && bare == self.given;
        is_given || bare == "localhost" || bare.parse::<IpAddr>().is_ok()
    }
}

/// The token of forms that change something: other sites cannot know it.
#[derive(Clone, Debug)]
pub(crate) struct Token(String);

impl Token {
    /// A new one for each start.
    pub(crate) fn new() -> Token {
        Token(format!("{:032x}", rand::random::<u128>()))
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    /// Whether a form has it. The time that this takes does not depend on where they differ.
    pub(crate) fn is(&self, given: &str) -> bool {
        let pairs = self.0.bytes().zip(given.bytes());
        self.0.len() == given.len() && pairs.fold(0, |all, (one, two)| all | (one ^ two)) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admits(host: &str) -> bool {
        let hosts = Hosts::new("Db.example");
        hosts.admit(&Request::builder().header(HOST, host).body(()).unwrap())
    }

    #[test]
    fn names_that_another_site_can_have_are_refused() {
        for host in ["127.0.0.1:8000", "localhost:8000", "LOCALHOST:8000", "[::1]:8000"] {
            assert!(admits(host), "{host}");
        }
        // Behind a forwarded port, or a proxy.
        for host in ["localhost", "localhost:9999", "[::1]"] {
            assert!(admits(host), "{host}");
        }
        assert!(admits("db.example:8000"));
        for host in ["evil.example:8000", "evil.example", "", "127.0.0.1.evil:8000"] {
            assert!(!admits(host), "{host}");
        }
        let hosts = Hosts::new("");
        assert!(!hosts.admit(&Request::builder().body(()).unwrap()));
        assert!(!hosts.admit(&Request::builder().header(HOST, ":8000").body(()).unwrap()));
    }

    #[test]
    fn a_token_is_only_itself() {
        let (one, two) = (Token::new(), Token::new());
        assert!(one.is(one.text()) && !one.is(two.text()) && !one.is(""));
    }
}
