//! Rate limits for log messages that peers cause.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use tokio::time::Instant;

/// Time between two messages of one kind.
const PERIOD: Duration = Duration::from_secs(10);
/// Time between two messages of one kind about one source.
pub(crate) const SOURCE_PERIOD: Duration = Duration::from_secs(60);
/// Sources that are counted separately in one period; all others share one count.
pub(crate) const SOURCES_MAX: usize = 1024;
/// The name of all other sources.
pub(crate) const OTHER_SOURCES: &str = "other addresses";

/// Rate-limits one kind of log message.
#[derive(Debug, Default)]
pub struct LogLimiter(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    logged: Option<Instant>,
    suppressed: u64,
}

impl LogLimiter {
    /// Counts a message. `Some(times)`: log it; it happened so often since the last one logged,
    /// this one included.
    pub fn admit(&self) -> Option<u64> {
        let mut state = self.0.lock();
        state.suppressed += 1;
        let now = Instant::now();
        if state.logged.is_some_and(|logged| now - logged < PERIOD) {
            return None;
        }
        state.logged = Some(now);
        Some(std::mem::take(&mut state.suppressed))
    }
}

/// Rate-limits one kind of log message for each source of connections.
///
/// The first message about a source is logged. Later ones are counted. The caller logs the count
/// at the end of each period, until a period passes without messages.
#[derive(Debug, Default)]
pub(crate) struct SourceLogLimiter(Mutex<FxHashMap<String, u64>>);

impl SourceLogLimiter {
    /// Counts a message about a peer. `Some(source)`: log it, and call
    /// [`SourceLogLimiter::end_period`] with this source after [`SOURCE_PERIOD`].
    pub(crate) fn admit(&self, peer: &str) -> Option<String> {
        let mut sources = self.0.lock();
        let mut source = source_of(peer);
        if sources.len() >= SOURCES_MAX && !sources.contains_key(&source) {
            OTHER_SOURCES.clone_into(&mut source);
        }
        if let Some(suppressed) = sources.get_mut(&source) {
            *suppressed += 1;
            return None;
        }
        sources.insert(source.clone(), 0);
        Some(source)
    }

    /// Ends a period of a source: the number of suppressed messages. Unless it is 0, another
    /// period follows.
    pub(crate) fn end_period(&self, source: &str) -> u64 {
        let mut sources = self.0.lock();
        let suppressed = sources.get_mut(source).map_or(0, std::mem::take);
        if suppressed == 0 {
            sources.remove(source);
        }
        suppressed
    }

    /// Ends the periods of all sources: gives those with suppressed messages, and their number.
    pub(crate) fn end_all(&self) -> Vec<(String, u64)> {
        let all = std::mem::take(&mut *self.0.lock());
        all.into_iter().filter(|(_, suppressed)| *suppressed > 0).collect()
    }
}

/// The part of an address that a peer cannot change at will: no port, and of an IPv6 address only
/// the network.
pub(crate) fn source_of(peer: &str) -> String {
    let Ok(address) = peer.parse::<SocketAddr>() else { return peer.to_owned() };
    match address.ip().to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            let network = address.to_bits() >> 64 << 64;
            format!("{}/64", Ipv6Addr::from_bits(network))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_happens_often_is_said_once_in_a_while_with_its_count() {
        let limiter = LogLimiter::default();
        assert_eq!(limiter.admit(), Some(1));
        for _ in 0..500 {
            assert_eq!(limiter.admit(), None);
        }
        tokio::time::advance(PERIOD).await;
        assert_eq!(limiter.admit(), Some(501));
    }

    #[test]
    fn a_source_is_logged_at_once_and_then_by_the_count_of_each_period() {
        let limiter = SourceLogLimiter::default();
        assert_eq!(limiter.admit("10.0.0.1:1").as_deref(), Some("10.0.0.1"));
        assert_eq!(limiter.admit("10.0.0.2:1").as_deref(), Some("10.0.0.2"));
        for port in 2..735 {
            assert_eq!(limiter.admit(&format!("10.0.0.1:{port}")), None);
        }
        assert_eq!(limiter.end_period("10.0.0.1"), 733);
        assert_eq!(limiter.admit("10.0.0.1:9"), None, "the next period has begun");
        assert_eq!(limiter.end_period("10.0.0.2"), 0);
        assert!(limiter.admit("10.0.0.2:1").is_some(), "a quiet period ends the silence");
        assert_eq!(limiter.end_all(), [("10.0.0.1".to_owned(), 1)]);
        assert!(limiter.admit("10.0.0.1:9").is_some());
    }

    #[test]
    fn neither_ports_nor_addresses_of_one_ipv6_network_are_told_apart() {
        assert_eq!(source_of("[2001:db8:1:2:3:4:5:6]:80"), "2001:db8:1:2::/64");
        assert_eq!(source_of("[::ffff:10.0.0.1]:80"), "10.0.0.1");
        assert_eq!(source_of("/run/zeo.sock"), "/run/zeo.sock");
    }

    #[test]
    fn countless_sources_take_little_memory_and_few_lines() {
        let limiter = SourceLogLimiter::default();
        let logged = (0..10 * SOURCES_MAX).filter(|number| {
            let [.., high, low] = number.to_be_bytes();
            limiter.admit(&format!("10.0.{high}.{low}:1")).is_some()
        });
        assert_eq!(logged.count(), SOURCES_MAX + 1);
        assert_eq!(limiter.0.lock().len(), SOURCES_MAX + 1);
        assert_eq!(limiter.end_period(OTHER_SOURCES), 9 * SOURCES_MAX as u64 - 1);
    }
}
