//! Reads from a server's metrics how many transactions shared a sync.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result};

/// Timeout of the monitor's reply.
const PATIENCE: Duration = Duration::from_secs(10);
const METRIC: &str = "zodium_commit_batch_transactions";

/// Totals since the server was started.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Batches {
    pub(super) syncs: f64,
    pub(super) transactions: f64,
}

impl Batches {
    /// Reads the metrics of a server; `None` if it has none.
    pub(super) fn of(monitor: Option<SocketAddr>) -> Result<Option<Batches>> {
        let Some(address) = monitor else { return Ok(None) };
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text).context("the monitor does not answer")?;
        Ok(Batches::parse(&text))
    }

    fn parse(text: &str) -> Option<Batches> {
        let counter = |suffix: &str| {
            let name = format!("{METRIC}_{suffix}{{");
            let line = text.lines().find(|line| line.starts_with(&name))?;
            line.split_whitespace().nth(1)?.parse().ok()
        };
        Some(Batches { syncs: counter("count")?, transactions: counter("sum")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_found_among_the_metrics() {
        let text = "# TYPE zodium_commit_batch_transactions histogram\n\
                    zodium_commit_batch_transactions_sum{storage=\"1\"} 70.0\n\
                    zodium_commit_batch_transactions_count{storage=\"1\"} 20\n";
        let batches = Batches { syncs: 20.0, transactions: 70.0 };
        assert_eq!(Batches::parse(text), Some(batches));
        assert_eq!(Batches::parse("other 7"), None);
    }
}
