//! `zodium serve`: opens the storages, starts the workers, and accepts connections until a signal.

mod announce;
mod blobs;
mod cluster;
mod conflicts;
mod database;
pub(crate) mod limits;
pub(crate) mod listening;
mod lock_watch;
mod new_oids;
mod options;
mod overrides;
mod packing;
mod pid_file;
mod place;
mod reminder;
mod reread;
pub(crate) mod resp;
mod resp_storages;
pub(crate) mod signals;
mod storages;
mod timetable;
pub(crate) mod tls;
pub(crate) mod workers;
mod write_watch;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use tracing::info;
use zodium_configuration::{Configuration, StorageKind};
use zodium_monitor::Messages;
use zodium_net::Bound;
use zodium_sql::MariaAddress;
use zodium_tls::ServerTls;

use self::listening::Accepting;
use self::lock_watch::LockWatch;
pub(crate) use self::options::ServeOptions;
use self::packing::Packing;
use self::pid_file::PidFile;
use self::reread::Started;
use self::resp::Resp;
use self::signals::{Ending, Signals, Wish};
use self::storages::Storages;
use self::write_watch::WriteWatch;
use crate::background::Background;
use crate::logging::{self, Destinations};
use crate::monitoring::{self, Watched};
use crate::supervisor::{self, Watchdog};
use crate::{configuration_file, panics, valkey_conf};

/// How long a stop waits for clients to receive their last answers.
const STOP_PATIENCE: Duration = Duration::from_secs(3);

/// Serves until a signal ends it.
pub(crate) fn run(options: &ServeOptions) -> Result<ExitCode> {
    let (configuration, warnings) = overrides::configuration(options)?;
    let (logs, messages) = logging::start_for(&configuration, &warnings)?;
    panics::end_the_process();
    let started = Started::new(options, &configuration);
    let ended = run_logged(configuration, started, &logs, messages);
    logs.note_end(&ended);
    Ok(ended?.exit_code())
}

fn run_logged(
    configuration: Configuration,
    started: Option<Arc<Started>>,
    logs: &Destinations,
    messages: Messages,
) -> Result<Ending> {
    configuration_file::refuse(&configuration.check())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ending = runtime.block_on(serve(configuration, started, logs, messages));
    // Storages that are still being opened have no commits to finish.
    runtime.shutdown_background();
    ending
}

async fn serve(
    mut configuration: Configuration,
    started: Option<Arc<Started>>,
    logs: &Destinations,
    messages: Messages,
) -> Result<Ending> {
    let conf = valkey_conf::apply(&mut configuration.server, false)?;
    let configuration = Arc::new(configuration);
    let mut signals = Signals::catch().context("cannot catch signals")?;
    let tls = tls::load(configuration.server.tls.as_ref())?;
    let binding = async {
        let bound = listening::bind(&configuration.server.addresses).await?;
        let resp = resp::bind(&configuration.server, conf.as_ref(), false).await?;
        anyhow::Ok((bound, resp))
    };
    let reload = || reload(logs, tls.as_deref());
    // To look up the name of an address may take long.
    let (bound, resp) = tokio::select! {
        bound = binding => bound?,
        ending = ending(&mut signals, reload, || ()) => return Ok(ending),
    };
    let watched = Watched::opening(tls.as_ref());
    // It lives until the end: opening and closing storages is reported too.
    let _monitor =
        monitoring::start(configuration.monitor.as_ref(), Arc::clone(&watched) as _, messages)?;
    let opening = {
        let configuration = Arc::clone(&configuration);
        tokio::task::spawn_blocking(move || Storages::open(&configuration))
    };
    let storages = tokio::select! {
        opened = opening => opened??,
        ending = ending(&mut signals, reload, || ()) => return Ok(ending),
    };
    let resp_server = resp.as_ref().map(|resp| Arc::clone(&resp.server));
    let network = Network { bound, resp, tls };
    // It is there until all is closed: once it is gone, another server can start.
    let mut pid_file = None;
    let served = async {
        pid_file = configuration.server.pid_file.as_deref().map(PidFile::write).transpose()?;
        let reload = Reload { logs, started };
        serve_storages(&configuration, reload, &storages, network, &watched, &mut signals).await
    };
    let served = served.await;
    watched.closes();
    let closed = storages.close();
    // Commands of the last transactions have taken effect.
    let kept = resp_server.map_or(Ok(()), |server| server.close_log());
    let ending = served.and_then(|ending| closed.map(|()| ending));
    let ending = match kept {
        Ok(()) => ending?,
        // Both are told: keys that clients know of are lost.
        Err(lost) => {
            return Err(ending.err().map_or(anyhow!("{lost}"), |error| error.context(lost)));
        }
    };
    info!("stopped");
    drop(pid_file);
    Ok(ending)
}

/// The bound addresses, and TLS for their connections.
struct Network {
    bound: Vec<Bound>,
    resp: Option<Resp>,
    tls: Option<Arc<ServerTls>>,
}

/// What a reload reads again.
struct Reload<'l> {
    logs: &'l Destinations,
    started: Option<Arc<Started>>,
}

async fn serve_storages(
    configuration: &Configuration,
    Reload { logs, started }: Reload<'_>,
    storages: &Storages,
    network: Network,
    watched: &Watched,
    signals: &mut Signals,
) -> Result<Ending> {
    let Network { bound, resp, tls } = network;
    let resp_server = resp.as_ref().map(|resp| Arc::clone(&resp.server));
    let resp_server = resp_server.as_ref();
    let background = Background::new(resp::PASSWORD_FILE);
    let reload = || {
        reload(logs, tls.as_deref());
        let password = configuration.server.resp_password_file.as_ref();
        if let Some((server, path)) = resp_server.zip(password) {
            resp::reload_password(&background, server, path);
        }
        if let Some(started) = &started {
            started.look();
        }
    };
    if let Some(server) = resp_server {
        resp_storages::attach(server, storages);
        if let Some(ending) = resp::keep(server, &configuration.server, signals, reload).await? {
            return Ok(ending);
        }
    }
    let (server, workers) = workers::start(&configuration.server, storages, resp_server)?;
    // A client that gets a connection gets answers.
    let mut listeners = listening::listen(bound, tls.as_ref())?;
    watched.serves(&server, resp_server, storages.files(), storages.remotes(), &workers);
    announce::announce(configuration.log.format, storages, &listeners);
    if let Some(resp) = resp {
        listeners.extend(resp.listen(tls.as_ref(), resp::PROTOCOL)?);
    }
    blobs::look_for_missing(storages);
    let accepting = Accepting::start(listeners, &workers);
    let watchdog = Watchdog::of_workers(&workers, resp_server);
    let packing = Packing::start(configuration, storages);
    let watches = (LockWatch::start(&server), WriteWatch::start(&server));
    let ready = || supervisor::ready(configuration.storages.len());
    ready();
    let reload = || {
        supervisor::reloading();
        reload();
        accepting.look();
        ready();
    };
    let ending = ending(signals, reload, || storages.reopen()).await;
    supervisor::stopping();
    if let Some(server) = resp_server {
        server.stop_scripts();
    }
    watched.closes();
    drop(watches);
    accepting.stop().await;
    watchdog.stop().await;
    packing.stop().await;
    // Clients that wait for a pack are answered before their connections are closed.
    storages.cancel_packs();
    if let Some(workers) = Arc::into_inner(workers) {
        workers.stop(STOP_PATIENCE);
    }
    Ok(ending)
}

/// Refuses URLs of storages that are none.
pub(crate) fn check_urls(configuration: &Configuration) -> Result<()> {
    configuration.storages.iter().try_for_each(|storage| {
        match &storage.kind {
            StorageKind::Neo { url } => zodium_neo_client::Options::from_url(url).map(drop)?,
            StorageKind::Maria { url } => MariaAddress::of_url(url).map(drop)?,
            _ => {}
        }
        Ok(())
    })
}

/// Reopens the log files, and reads the certificates again, also while storages are being opened.
pub(crate) fn reload(logs: &Destinations, tls: Option<&ServerTls>) {
    logs.reload();
    if let Some(tls) = tls {
        tls::reload(tls);
    }
}

/// Handles signals until one ends the server.
pub(crate) async fn ending(signals: &mut Signals, reload: impl Fn(), reopen: impl Fn()) -> Ending {
    loop {
        match signals.next().await {
            Wish::End(ending) => return ending,
            Wish::Reload => reload(),
            Wish::Reopen => reopen(),
        }
    }
}
