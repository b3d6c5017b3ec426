//! Which refusals are logged: of equal ones for a host, one a minute.
//!
//! A node with a wrong option tries again each second, for days.

use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

/// Time between two lines about equal refusals.
const PERIOD: Duration = Duration::from_secs(60);
/// Kinds of refusals that are remembered. A peer can make more: then all are forgotten.
const KINDS_MAX: usize = 1000;
/// Longest part of a text that is remembered: a peer may have chosen its end.
const TEXT_BYTES_MAX: usize = 200;

/// Longest part of a text that is logged.
const LOGGED_BYTES_MAX: usize = 1000;

/// A text for a log line. A peer may have chosen how long it is.
pub(crate) fn for_log(text: &str) -> &str {
    &text[..text.floor_char_boundary(LOGGED_BYTES_MAX)]
}

/// The refusals that were logged lately.
#[derive(Debug, Default)]
pub struct Refusals(FxHashMap<(String, String), Logged>);

#[derive(Debug)]
struct Logged {
    at: Instant,
    /// Equal ones since then.
    unlogged: u64,
}

impl Refusals {
    /// Counts a refusal. `Some(times)`: log it; so many equal ones have no line since the last one.
    pub fn admit(&mut self, peer: &str, text: &str, now: Instant) -> Option<u64> {
        let host = peer.rsplit_once(':').map_or(peer, |(host, _)| host);
        let text = &text[..text.floor_char_boundary(TEXT_BYTES_MAX)];
        let kind = (host.to_owned(), text.to_owned());
        let times = match self.0.get_mut(&kind) {
            Some(logged) if now < logged.at + PERIOD => {
                logged.unlogged += 1;
                return None;
            }
            Some(logged) => logged.unlogged,
            None => 0,
        };
        if self.0.len() >= KINDS_MAX {
            self.0.clear();
        }
        self.0.insert(kind, Logged { at: now, unlogged: 0 });
        Some(times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_refusals_for_a_host_are_logged_once_a_minute() {
        let (mut refusals, begin) = (Refusals::default(), Instant::now());
        let mut admit = |peer: &str, text: &str, seconds| {
            let now = begin + Duration::from_secs(seconds);
            refusals.admit(peer, text, now)
        };
        assert_eq!(admit("10.0.0.1:7", "a", 0), Some(0));
        assert_eq!(admit("10.0.0.1:8", "a", 1), None);
        assert_eq!(admit("10.0.0.1:9", "a", 59), None);
        assert_eq!(admit("10.0.0.1:9", "b", 59), Some(0));
        assert_eq!(admit("10.0.0.2:9", "a", 59), Some(0));
        assert_eq!(admit("10.0.0.1:9", "a", 60), Some(2));
        assert_eq!(admit("10.0.0.1:9", "a", 61), None);
    }

    #[test]
    fn refusals_of_countless_kinds_take_little_memory() {
        let (mut refusals, now) = (Refusals::default(), Instant::now());
        for number in 0..3 * KINDS_MAX {
            assert_eq!(refusals.admit("10.0.0.1:7", &number.to_string(), now), Some(0));
            assert!(refusals.0.len() <= KINDS_MAX);
        }
        let long = "é".repeat(1 << 20);
        assert_eq!(refusals.admit("10.0.0.1:7", &format!("x{long}"), now), Some(0));
        assert_eq!(refusals.admit("10.0.0.1:7", &format!("x{long}y"), now), None);
        assert!(refusals.0.keys().all(|(_, text)| text.len() <= TEXT_BYTES_MAX));
    }
}
