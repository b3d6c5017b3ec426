//! What was used between two moments: time, and processor time of server and client.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::cpu::CpuTime;
use crate::result::Sample;
use crate::server::Server;

/// The clocks at one moment.
#[derive(Debug)]
pub(crate) struct Reading {
    time: Instant,
    server: Option<CpuTime>,
    client: CpuTime,
}

/// What was used since an earlier reading.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Used {
    pub(crate) time: Duration,
    /// `None` for a server that the benchmark did not start.
    pub(crate) server_cpu: Option<Duration>,
    pub(crate) client_cpu: Duration,
}

impl Reading {
    pub(crate) fn take(server: &Server) -> Result<Reading> {
        Reading::of(std::iter::once(server))
    }

    /// The clocks of several servers as if they were one.
    pub(crate) fn of<'a>(servers: impl Iterator<Item = &'a Server>) -> Result<Reading> {
        let times = servers.map(Server::cpu_time).collect::<Result<Vec<_>>>()?;
        let server = times.into_iter().flatten().reduce(CpuTime::and);
        let client = CpuTime::of_process(std::process::id())?;
        Ok(Reading { server, client, time: Instant::now() })
    }

    pub(crate) fn until(&self, later: &Reading) -> Used {
        let server = later.server.as_ref().zip(self.server.as_ref());
        Used {
            time: later.time - self.time,
            server_cpu: server.map(|(later, earlier)| later.since(earlier)),
            client_cpu: later.client.since(&self.client),
        }
    }
}

impl Used {
    /// Adds the seconds, and both processor times in microseconds per item, to a sample.
    pub(crate) fn values(&self, sample: Sample, count: u64) -> Sample {
        let each = |time: Duration| time.as_secs_f64() * 1e6 / count as f64;
        let sample = sample
            .value("seconds", self.time.as_secs_f64())
            .value("client_cpu_us", each(self.client_cpu));
        match self.server_cpu {
            Some(time) => sample.value("server_cpu_us", each(time)),
            None => sample,
        }
    }
}
