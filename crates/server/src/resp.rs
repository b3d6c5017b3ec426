//! `zodium resp`: serves Redis and Valkey clients, without a database.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use tracing::info;
use zodium_configuration::{Configuration, LogFormat, RespSync, ServerOptions};
use zodium_monitor::Messages;
use zodium_net::{Protocol, Workers};
use zodium_resp_server::RespService;
use zodium_types::Address;

use crate::background::Background;
use crate::logging::{self, Destinations};
use crate::resp_import::{self, ImportOptions};
use crate::resp_monitoring::WatchedResp;
use crate::serve::listening::Accepting;
use crate::serve::signals::{Ending, Signals};
use crate::serve::{self, limits, resp, tls, workers};
use crate::setting_arguments::{OfResp, SettingArguments, read_flag};
use crate::streams::greet;
use crate::{monitoring, panics, supervisor, valkey_conf};

/// Where a server without any address listens.
const DEFAULT_ADDRESS: &str = "127.0.0.1:6379";
/// How long a stop waits for clients to receive their last answers.
const STOP_PATIENCE: Duration = Duration::from_secs(3);

/// What `zodium resp` does instead of serving.
#[derive(Debug, Subcommand)]
enum RespCommand {
    /// Take keys over from a file of Redis or Valkey
    ///
    /// Reads an RDB file, an append-only file, or the manifest of one in parts, and writes the keys
    /// to a new file for `zodium resp --file`, or to a running server.
    ///
    /// Exit codes: 0 success, 1 an error, 2 a wrong command line.
    Import(ImportOptions),
}

/// Options of `zodium resp`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub(crate) struct RespOptions {
    #[command(subcommand)]
    command: Option<RespCommand>,

    /// Listen on HOST:PORT, PORT, or /path/to/a/socket; may be repeated [default: what the
    /// configuration file says, or 127.0.0.1:6379]
    #[arg(short, long, value_name = "ADDRESS", env = "ZODIUM_RESP", value_delimiter = ',')]
    address: Vec<Address>,

    /// A configuration file of Valkey or Redis; what is given here goes before it
    ///
    /// Addresses, passwords, certificates and the settings of `CONFIG SET` are taken. The log names
    /// directives that have no effect.
    #[arg(short = 'C', long, value_name = "PATH", env = "ZODIUM_RESP_CONFIG")]
    config: Option<PathBuf>,

    /// A file whose first line is the password of clients
    #[arg(long, value_name = "PATH", env = "ZODIUM_RESP_PASSWORD_FILE")]
    password_file: Option<PathBuf>,

    /// The file that keys are kept in; without it they are in memory only
    #[arg(long, value_name = "PATH", env = "ZODIUM_RESP_FILE")]
    file: Option<PathBuf>,

    /// When changes are synced to the file: always (before they are acknowledged), everysec, no
    /// [default: what the configuration file says, or everysec]
    #[arg(long, value_name = "WHEN", env = "ZODIUM_RESP_SYNC")]
    #[arg(value_parser = ["always", "everysec", "no"])]
    sync: Option<String>,

    /// Number of worker threads [default: one per core except one]
    #[arg(long, value_name = "N", env = "ZODIUM_WORKERS")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,

    /// Give each worker the same number of connections, and leave them there
    #[arg(long, env = "ZODIUM_NO_BALANCE", value_parser = read_flag)]
    no_balance: bool,

    #[command(flatten)]
    settings: SettingArguments<OfResp>,
}

impl RespOptions {
    fn configuration(&self) -> Result<Configuration> {
        let mut resp_addresses = self.address.clone();
        if resp_addresses.is_empty() && self.config.is_none() {
            resp_addresses.push(DEFAULT_ADDRESS.parse()?);
        }
        let mut configuration = Configuration {
            server: ServerOptions {
                resp_addresses,
                resp_config: self.config.clone(),
                resp_password_file: self.password_file.clone(),
                resp_file: self.file.clone(),
                resp_sync: self.sync.as_deref().and_then(RespSync::named),
                workers: self.workers,
                balance: !self.no_balance,
                ..ServerOptions::default()
            },
            ..Configuration::default()
        };
        self.settings.apply(&mut configuration).map_err(anyhow::Error::msg)?;
        tls::check(configuration.server.tls.as_ref()).map_err(anyhow::Error::msg)?;
        Ok(configuration)
    }
}

/// Serves until a signal ends it.
pub(crate) fn run(options: &RespOptions) -> Result<ExitCode> {
    if let Some(RespCommand::Import(import)) = &options.command {
        return resp_import::run(import);
    }
    let configuration = options.configuration()?;
    let (logs, messages) = logging::start_for(&configuration, &[])?;
    panics::end_the_process();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(serve(&configuration, &logs, messages));
    // Keys that are still being read have nothing to finish.
    runtime.shutdown_background();
    logs.note_end(&ended);
    Ok(ended?.exit_code())
}

async fn serve(
    configuration: &Configuration,
    logs: &Destinations,
    messages: Messages,
) -> Result<Ending> {
    let mut options = configuration.server.clone();
    let conf = valkey_conf::apply(&mut options, true)?;
    let options = &options;
    let tls = tls::load(options.tls.as_ref())?;
    let mut signals = Signals::catch().context("cannot catch signals")?;
    let reload = || serve::reload(logs, tls.as_deref());
    // To look up the name of an address may take long.
    let bound = tokio::select! {
        bound = resp::bind(options, conf.as_ref(), true) => bound?,
        ending = serve::ending(&mut signals, reload, || ()) => return Ok(ending),
    };
    let bound = bound.context("there is no address to listen on: give one with --address")?;
    let kept_server = Arc::clone(&bound.server);
    let background = Background::new(resp::PASSWORD_FILE);
    let reload = || {
        reload();
        if let Some(path) = &options.resp_password_file {
            resp::reload_password(&background, &kept_server, path);
        }
    };
    let watched = Arc::new(WatchedResp::opening(Arc::clone(&bound.server), tls.as_ref()));
    let monitor = configuration.monitor.as_ref();
    // It lives until the end: reading and closing keys is reported too.
    let _monitor = monitoring::start(monitor, Arc::clone(&watched) as _, messages)?;
    if let Some(ending) = resp::keep(&bound.server, options, &mut signals, reload).await? {
        return Ok(ending);
    }
    let server = Arc::clone(&bound.server);
    let worker_options = workers::worker_options(options, limits::of(options));
    let workers = Workers::start(worker_options, move |worker| {
        RespService::new(Arc::clone(&server), worker)
    })?;
    let workers = Arc::new(workers);
    let listeners = bound.listen(tls.as_ref(), Protocol::default())?;
    watched.serves(&workers);
    if configuration.log.format == LogFormat::Human {
        let lines =
            listeners.iter().map(|listener| format!("Serving RESP on {}\n", listener.address()));
        greet(&lines.collect::<String>());
    }
    let accepting = Accepting::start(listeners, &workers);
    let watchdog = supervisor::Watchdog::of_workers(&workers, Some(&kept_server));
    supervisor::ready(0);
    let reload = || {
        supervisor::reloading();
        reload();
        accepting.look();
        supervisor::ready(0);
    };
    // There are no files that could be reopened.
    let ending = serve::ending(&mut signals, reload, || ()).await;
    supervisor::stopping();
    kept_server.stop_scripts();
    watched.closes();
    accepting.stop().await;
    watchdog.stop().await;
    if let Some(workers) = Arc::into_inner(workers) {
        workers.stop(STOP_PATIENCE);
    }
    kept_server.close_log().map_err(anyhow::Error::msg)?;
    info!("stopped");
    Ok(ending)
}
