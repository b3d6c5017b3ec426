//! `zodium serve`: opens the storages, starts the workers, accepts until told to stop.

mod announce;
mod listening;
mod options;
mod overrides;
mod signals;
mod storages;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tracing::info;
use zodium_configuration::{Configuration, Encoding, ServerOptions};
use zodium_net::{Bound, Limits, Workers};
use zodium_zeo::server::{Config, Server, ZeoService};

use self::listening::Accepting;
pub(crate) use self::options::ServeOptions;
use self::signals::{Ending, Signals};
use self::storages::Storages;
use crate::logging;

/// How long a stop waits for clients to take what they are owed.
const STOP_PATIENCE: Duration = Duration::from_secs(3);

/// Serves until a signal ends it.
pub(crate) fn run(options: &ServeOptions) -> Result<ExitCode> {
    let configuration = overrides::configuration(options)?;
    logging::start(&configuration.log)?;
    refuse_what_is_missing(&configuration)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ending = runtime.block_on(serve(configuration));
    // Storages that are still being opened have nothing to lose.
    runtime.shutdown_background();
    match ending? {
        Ending::Stop => Ok(ExitCode::SUCCESS),
        Ending::Restart => Ok(ExitCode::FAILURE),
    }
}

async fn serve(configuration: Configuration) -> Result<Ending> {
    let configuration = Arc::new(configuration);
    let mut signals = Signals::catch().context("cannot catch signals")?;
    let bound = listening::bind(&configuration.server.addresses).await?;
    let opening = {
        let configuration = Arc::clone(&configuration);
        tokio::task::spawn_blocking(move || Storages::open(&configuration))
    };
    tokio::select! {
        opened = opening => serve_storages(&configuration, opened??, bound, signals).await,
        ending = signals.ending() => Ok(ending),
    }
}

async fn serve_storages(
    configuration: &Configuration,
    storages: Storages,
    bound: Vec<Bound>,
    mut signals: Signals,
) -> Result<Ending> {
    let served = accept_until_told(configuration, &storages, bound, &mut signals).await;
    let closed = storages.close();
    let ending = served?;
    closed?;
    info!("stopped");
    Ok(ending)
}

async fn accept_until_told(
    configuration: &Configuration,
    storages: &Storages,
    bound: Vec<Bound>,
    signals: &mut Signals,
) -> Result<Ending> {
    let listeners = listening::listen(bound)?;
    let workers = start_workers(&configuration.server, storages)?;
    announce::announce(configuration.log.format, storages, &listeners);
    let accepting = Accepting::start(listeners, &workers);
    let ending = signals.ending().await;
    accepting.stop().await;
    // Those who wait for it are answered before their connections are closed.
    storages.cancel_packs();
    if let Some(workers) = Arc::into_inner(workers) {
        workers.stop(STOP_PATIENCE);
    }
    Ok(ending)
}

fn start_workers(options: &ServerOptions, storages: &Storages) -> Result<Arc<Workers>> {
    let config = Config {
        encoding: match options.encoding {
            Encoding::Msgpack => zodium_zeo::codec::Encoding::Msgpack,
            Encoding::Pickle => zodium_zeo::codec::Encoding::Pickle,
        },
        frame_bytes_max: options.message_bytes_max,
        read_only: options.read_only,
    };
    let server = Arc::new(Server::new(config, storages.by_name()));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let count = options.workers.map_or(cores, usize::from);
    let workers =
        Workers::start(count, Limits::default(), move |_| ZeoService::new(Arc::clone(&server)))?;
    Ok(Arc::new(workers))
}

/// What the model has and this server cannot do would be left out silently otherwise.
fn refuse_what_is_missing(configuration: &Configuration) -> Result<()> {
    if configuration.server.tls.is_some() {
        bail!("this version does not speak TLS");
    }
    if configuration.monitor.is_some() {
        bail!("this version has no monitor");
    }
    for storage in &configuration.storages {
        if storage.blob_directory.is_some() {
            bail!("storage {}: this version has no blobs", storage.name);
        }
        if storage.pack.schedule.is_some() {
            bail!("storage {}: this version does not pack by itself", storage.name);
        }
        if storage.allow.is_some() {
            bail!("storage {}: this version cannot tell clients apart", storage.name);
        }
    }
    Ok(())
}
