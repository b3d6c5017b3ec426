//! TCP keepalive: how soon a peer is noticed that has vanished without a word.

use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// The probes of an idle connection. Data that are not acknowledged, or not taken, for as long as
/// all of these end it too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Idle time before the first probe.
    pub idle: Duration,
    /// Time between two probes.
    pub interval: Duration,
    /// Unanswered probes that end the connection.
    pub probes: u32,
}

impl Default for Keepalive {
    /// A peer that vanished is found after three minutes.
    fn default() -> Keepalive {
        Keepalive { idle: Duration::from_secs(120), interval: Duration::from_secs(15), probes: 4 }
    }
}

impl Keepalive {
    /// Sets a connection up: it is probed, and small messages leave at once.
    pub fn prepare(&self, stream: &TcpStream) {
        // Without these options the connection works too. They fail on a connection that has
        // ended, which the first read reports.
        let _ = stream.set_nodelay(true);
        let keepalive = TcpKeepalive::new()
            .with_time(self.idle)
            .with_interval(self.interval)
            .with_retries(self.probes);
        let socket = SockRef::from(stream);
        let _ = socket.set_tcp_keepalive(&keepalive);
        // While data are not acknowledged the system repeats these, for a quarter of an hour, and
        // sends no probes.
        let _ = socket.set_tcp_user_timeout(Some(self.idle + self.interval * self.probes));
    }
}
