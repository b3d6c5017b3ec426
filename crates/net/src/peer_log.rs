//! Log messages about refused peers: at most one line for each reason, source and minute.

use std::sync::Arc;

use crate::Refusal;
use crate::log_limiter::{SOURCE_PERIOD, SourceLogLimiter};

/// Limits the messages about refused peers; all workers share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct PeerLog {
    /// By reason: one kind of trouble of a host does not hide another.
    limiters: Arc<[SourceLogLimiter; Refusal::ALL.len()]>,
}

impl PeerLog {
    /// Whether a message about this peer is to be logged; otherwise it is counted, and the count
    /// is logged at the end of the minute. Must be called within a worker's tasks.
    pub(crate) fn admits(&self, refusal: Refusal, peer: &str) -> bool {
        let Some(source) = self.limiter(refusal).admit(peer) else { return false };
        tokio::task::spawn_local(self.clone().log_suppressed(refusal, source));
        true
    }

    fn limiter(&self, refusal: Refusal) -> &SourceLogLimiter {
        &self.limiters[refusal as usize]
    }

    /// Logs the number of suppressed messages about a source, at the end of each period.
    async fn log_suppressed(self, refusal: Refusal, source: String) {
        loop {
            tokio::time::sleep(SOURCE_PERIOD).await;
            match self.limiter(refusal).end_period(&source) {
                0 => return,
                times => log_more(refusal, &source, times),
            }
        }
    }

    /// Logs the numbers of all suppressed messages.
    pub(crate) fn end(&self) {
        for refusal in Refusal::ALL {
            for (source, times) in self.limiter(refusal).end_all() {
                log_more(refusal, &source, times);
            }
        }
    }
}

fn log_more(refusal: Refusal, source: &str, times: u64) {
    let text = match refusal {
        Refusal::Tls => "more TLS handshakes failed; level DEBUG logs each",
        _ => "more connections were refused; level DEBUG logs each",
    };
    tracing::info!(peer = source, times, reason = refusal.name(), "{text}");
}
