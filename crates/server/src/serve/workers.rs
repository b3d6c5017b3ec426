//! The worker threads that serve the storages of a configuration.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use zodium_configuration::{ColdReads, Encoding, ServerOptions};
use zodium_net::{Balancing, Limits, Protocols, Ring, RuntimeThreads, WorkerOptions, Workers};
use zodium_resp_server::RespService;
use zodium_zeo_server::{Config, Server, ZeoService};

use super::limits;
use super::storages::Storages;

/// Longest delay of invalidations to idle clients, used when there are many clients.
const NOTICE_INTERVAL: Duration = Duration::from_millis(1);

/// Starts the workers, and returns the server that they share. With `resp` they serve RESP too.
pub(crate) fn start(
    options: &ServerOptions,
    storages: &Storages,
    resp: Option<&Arc<zodium_resp_server::Server>>,
) -> Result<(Arc<Server>, Arc<Workers>)> {
    let limits = limits::of(options);
    // A message has to fit into the memory for all of them.
    let memory_bytes = u32::try_from(limits.memory.limit_bytes()).unwrap_or(u32::MAX);
    let config = Config {
        encoding: match options.encoding {
            Encoding::Msgpack => zodium_zeo::codec::Encoding::Msgpack,
            Encoding::Pickle => zodium_zeo::codec::Encoding::Pickle,
        },
        frame_bytes_max: options.message_bytes_max.min(memory_bytes),
        read_only: options.read_only,
        notice_interval: NOTICE_INTERVAL,
    };
    let server = Arc::new(Server::new(config, storages.served()));
    let how_cold = options.cold_reads;
    let options = worker_options(options, limits);
    let served = Arc::clone(&server);
    let has_rings = allows_rings(how_cold)?;
    let zeo = move |_| {
        let blocking = Box::new(if has_rings { with_ring() } else { RuntimeThreads::default() });
        ZeoService::with_blocking(Arc::clone(&served), blocking)
    };
    let workers = match resp {
        None => Workers::start(options, zeo)?,
        Some(resp) => {
            let resp = Arc::clone(resp);
            // The places of `resp::PROTOCOL` and of ZEO.
            Workers::start(options, move |worker| {
                let resp = RespService::new(Arc::clone(&resp), worker);
                Protocols::default().with(zeo(worker)).with(resp)
            })?
        }
    };
    Ok((server, Arc::new(workers)))
}

/// Whether workers read through rings, which the system may forbid.
fn allows_rings(cold_reads: ColdReads) -> Result<bool> {
    if cold_reads == ColdReads::Threads {
        return Ok(false);
    }
    match Ring::probe() {
        Ok(()) => Ok(true),
        Err(error) if cold_reads == ColdReads::Auto => {
            tracing::info!(%error, "no io_uring: threads read what is not in memory");
            Ok(false)
        }
        Err(error) => Err(error).context(
            "cannot use io_uring, which --cold-reads=ring asks for; --cold-reads=auto serves \
             without it. Containers and the sysctl kernel.io_uring_disabled may forbid it",
        ),
    }
}

/// The threads of a worker, with a ring if it gets one.
fn with_ring() -> RuntimeThreads {
    Ring::new().map_or_else(
        |error| {
            tracing::warn!(%error, "a worker has no io_uring: threads read what is not in memory");
            RuntimeThreads::default()
        },
        RuntimeThreads::with_ring,
    )
}

/// The options of the workers of a server.
pub(crate) fn worker_options(options: &ServerOptions, limits: Limits) -> WorkerOptions {
    WorkerOptions {
        count: count(options),
        limits,
        busy_poll: options.busy_poll,
        balancing: match options.balance {
            true => Balancing::ByLoad,
            false => Balancing::Even,
        },
    }
}

/// The number of workers.
pub(crate) fn count(options: &ServerOptions) -> usize {
    options.workers.map_or_else(default_count, usize::from)
}

/// The default number of workers. The log writer and the kernel's threads for disk and network
/// need a core too. Fewer workers find more requests at each wake-up, which saves processor time.
fn default_count() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    cores.saturating_sub(1).max(1)
}
