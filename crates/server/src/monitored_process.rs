//! What the monitor shows of any process: the server itself and its network.

use std::time::{SystemTime, UNIX_EPOCH};

use zodium_monitor::Network;
use zodium_net::{Arrivals, Limits, LinkMetrics, Refusal};
use zodium_tls::ServerTls;
use zodium_types::Counter;

/// Most hosts that are listed by the number of their new connections.
const ARRIVALS_MAX: usize = 10;

/// The connections and the traffic of all `links` together.
pub(crate) fn network_of<'a>(links: impl Iterator<Item = &'a LinkMetrics> + Clone) -> Network {
    let sum = |counter: fn(&LinkMetrics) -> &Counter| -> u64 {
        links.clone().map(|metrics| counter(metrics).value()).sum()
    };
    let refused = |refusal| links.clone().map(|metrics| metrics.refused(refusal).value()).sum();
    // Those that ended first: one that ends meanwhile must not make it negative.
    let ended = sum(|metrics| &metrics.ended);
    let accepted = sum(|metrics| &metrics.accepted);
    Network {
        connections: accepted.saturating_sub(ended),
        accepted,
        moved: sum(|metrics| &metrics.moved),
        refused: Refusal::ALL.map(|refusal| (refusal.name(), refused(refusal))).into(),
        bytes_received: sum(|metrics| &metrics.bytes_received),
        bytes_sent: sum(|metrics| &metrics.bytes_sent),
        unsent_bytes: sum(|metrics| &metrics.unsent_bytes),
        ..Network::default()
    }
}

/// The same with the limits of the connections.
pub(crate) fn limited(network: Network, limits: &Limits) -> Network {
    let Limits { memory, connections_max, .. } = limits;
    let limit = memory.limit_bytes();
    Network {
        connections_max: Some(*connections_max as u64),
        held_bytes: Some(memory.held_bytes()),
        held_bytes_max: (limit != u64::MAX).then_some(limit),
        ..network
    }
}

/// The same with the hosts that connect most often.
pub(crate) fn with_arrivals(network: Network, arrivals: &Arrivals) -> Network {
    Network { arrivals: arrivals.most(ARRIVALS_MAX), ..network }
}

/// The server itself, in the type of the monitor.
pub(crate) fn server_of(
    started: f64,
    workers: usize,
    workers_silent: usize,
) -> zodium_monitor::Server {
    let version = env!("CARGO_PKG_VERSION");
    let certificate_not_after = None;
    zodium_monitor::Server { version, started, workers, workers_silent, certificate_not_after }
}

/// The same with the end of its certificate.
pub(crate) fn with_certificate(
    server: zodium_monitor::Server,
    tls: Option<&ServerTls>,
) -> zodium_monitor::Server {
    let certificate_not_after = tls.map(|tls| tls.not_after_seconds() as f64);
    zodium_monitor::Server { certificate_not_after, ..server }
}

/// Seconds since 1970, as the monitor tells times.
pub(crate) fn unix_seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
