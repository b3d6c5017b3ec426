//! What all nodes of a NEO cluster have in common: options of the command line, the configuration
//! they give, certificates, the list of masters, the address, and signals.

use std::fmt::Debug;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{info, warn};
use zodium_configuration::{Configuration, LogDestination, NeoNode, Warning, read_neo_conf};
use zodium_neo::Address;
use zodium_neo_server::{MastersTold, NodeTls};

use super::{addresses, master_list};
use crate::logging::Destinations;
use crate::serve::tls::warn_daily;
use crate::setting_arguments::{Selection, SettingArguments};
use crate::supervisor;

/// A kind of node.
pub(super) trait NodeKind: Debug + 'static {
    /// The name of its command, of the section of NEO's file, and of NEO's program after `neo`.
    const NAME: &'static str;
    /// The kind, for the reader of NEO's file.
    const NODE: NeoNode;
    /// Its options among all settings.
    type Selection: Selection + Debug;
    /// Its settings.
    type Table: Clone + Default;

    /// Its settings in a configuration.
    fn table(configuration: &mut Configuration) -> &mut Option<Self::Table>;

    /// Those that all kinds have.
    fn common(table: &Self::Table) -> Common<'_>;
}

/// The settings that all kinds of nodes have.
pub(super) struct Common<'a> {
    pub(super) cluster: &'a str,
    pub(super) masters: &'a [String],
    pub(super) bind: &'a str,
    pub(super) dynamic_master_list: Option<&'a Path>,
    /// The certificates of the authority, that of the node, and its key.
    pub(super) tls: [Option<&'a PathBuf>; 3],
}

/// The options of a node.
#[derive(Debug, Args)]
pub(crate) struct NodeArguments<K: NodeKind> {
    #[command(flatten)]
    _conflicts: Conflicts,

    #[arg(short = 'C', long, value_name = "FILE", env = "ZODIUM_CONFIG")]
    #[arg(help = format!(
        "A configuration file in TOML, with the table [neo-{}]; options override it", K::NAME
    ))]
    config: Option<PathBuf>,

    #[arg(short, long, value_name = "FILE")]
    #[arg(help = format!(
        "A configuration file of NEO's, as neo{} reads it; options override it", K::NAME
    ))]
    file: Option<PathBuf>,

    /// Section of that file, which also has the settings of its DEFAULT section
    #[arg(short, long, value_name = "NAME", default_value = K::NAME)]
    section: String,

    /// Append log lines to this file, a text; the same as --log-file
    #[arg(short, long, value_name = "PATH")]
    logfile: Option<PathBuf>,

    #[command(flatten)]
    settings: SettingArguments<K::Selection>,
}

/// Refuses two options for one thing. Clap would also refuse an option beside a variable of the
/// environment, as an image sets them: options go before these.
#[derive(Debug)]
struct Conflicts;

impl FromArgMatches for Conflicts {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Conflicts, clap::Error> {
        let is_given = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
        for (one, other) in [("config", "file"), ("log-file", "logfile")] {
            if is_given(one) && is_given(other) {
                let message = format!("the argument '--{one}' cannot be used with '--{other}'\n");
                return Err(clap::Error::raw(ErrorKind::ArgumentConflict, message));
            }
        }
        Ok(Conflicts)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Conflicts::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Conflicts {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

impl<K: NodeKind> NodeArguments<K> {
    /// The configuration of the node, and warnings about the file.
    pub(super) fn configuration(&self) -> Result<(Configuration, K::Table, Vec<Warning>)> {
        let (mut configuration, warnings) = match (&self.file, &self.config) {
            (Some(file), _) => read_neo_conf(file, &self.section, K::NODE)?,
            (None, Some(file)) => crate::configuration_file::read(file)?,
            (None, None) => (Configuration::default(), Vec::new()),
        };
        let file = self.config.as_ref().filter(|_| self.file.is_none());
        if let (Some(file), None) = (file, K::table(&mut configuration)) {
            let (file, name) = (file.display(), K::NAME);
            return Err(wrong::<K>(&format!(
                "{file} has no table [neo-{name}]; `zodium serve -C {file}` runs a server"
            )));
        }
        self.settings.apply(&mut configuration).map_err(|what| wrong::<K>(&what))?;
        if let Some(path) = &self.logfile {
            configuration.log.destinations = vec![LogDestination::File(path.clone())];
        }
        let table = K::table(&mut configuration).get_or_insert_default().clone();
        Ok((configuration, table, warnings))
    }
}

/// An error of the command line, reported as by clap.
pub(super) fn wrong<K: NodeKind>(what: &str) -> anyhow::Error {
    let command = Command::new(K::NAME).bin_name(format!("zodium neo {}", K::NAME));
    let mut command = NodeArguments::<K>::augment_args(command);
    command.error(ErrorKind::MissingRequiredArgument, what).into()
}

/// As [`wrong`], when the cluster has no name.
pub(super) fn nameless<K: NodeKind>() -> anyhow::Error {
    wrong::<K>("give the name of the cluster: --cluster NAME, or a file")
}

impl Common<'_> {
    /// The certificates, if the cluster has TLS.
    pub(super) fn tls(&self) -> Result<Option<Arc<NodeTls>>> {
        let [Some(authority), Some(certificate), Some(key)] = self.tls else { return Ok(None) };
        let tls = NodeTls::load(authority, certificate, key).context("cannot set up TLS")?;
        Ok(Some(Arc::new(tls)))
    }

    /// The masters of the settings, or `alone` if there are none, and those of the dynamic list.
    pub(super) fn masters(&self, alone: Option<Address>) -> Result<Vec<Address>> {
        let given = match (self.masters, alone) {
            ([], Some(alone)) => vec![alone],
            (given, _) => addresses::masters(given)?,
        };
        master_list::joined(given, self.dynamic_master_list)
    }

    /// Keeps the dynamic list up to date.
    pub(super) fn masters_told(&self) -> Option<MastersTold> {
        let list = self.dynamic_master_list?.to_owned();
        Some(Box::new(move |masters| master_list::update(&list, masters)))
    }

    /// The address to listen on.
    pub(super) fn bind(&self) -> Result<SocketAddr> {
        addresses::numeric(self.bind, Some(0))
    }
}

/// Binds an address. The second value has the port, if the system chose it.
pub(super) fn listen(bind: SocketAddr, has_tls: bool) -> Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(bind);
    let listener = listener.with_context(|| format!("cannot listen on {bind}"))?;
    let address = listener.local_addr()?;
    if !has_tls && !address.ip().to_canonical().is_loopback() {
        warn!(
            %address,
            "listening without TLS beyond this machine: every host that can connect can read and \
             change the whole cluster. Set up TLS on all nodes (--ca, --cert, --key); on a trusted \
             network, a firewall should let in only nodes and clients"
        );
    }
    Ok((listener, address))
}

/// What SIGUSR2 asks of a node: to reopen the log files, which were moved, and to read the
/// certificates again, which were renewed.
pub(super) struct Reload {
    signal: Signal,
    logs: Destinations,
}

impl Reload {
    /// From now on the signal does not end the process. Must be called within a tokio runtime.
    pub(super) fn catch(logs: &Destinations) -> io::Result<Reload> {
        Ok(Reload { signal: signal(SignalKind::user_defined2())?, logs: logs.clone() })
    }

    /// Does so at each signal, also for one that came meanwhile. Warns of the end of the
    /// certificate too, each day.
    pub(super) async fn run(mut self, tls: Option<Arc<NodeTls>>) {
        if let Some(tls) = &tls {
            tokio::spawn(warn_daily(tls.accepting()));
        }
        while self.signal.recv().await.is_some() {
            supervisor::reloading();
            self.logs.reload();
            match tls.as_ref().map(|tls| tls.reload()) {
                None => {}
                Some(Ok(())) => info!("SIGUSR2: read the certificates again"),
                Some(Err(error)) => warn!(
                    %error,
                    "SIGUSR2: the certificates cannot be read; the old ones stay in use"
                ),
            }
            supervisor::node_ready();
        }
    }
}

/// The runtime of a node, and what catches SIGUSR2 from before the node is opened.
pub(super) fn runtime(logs: &Destinations) -> Result<(Runtime, Reload)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let reload = {
        let _entered = runtime.enter();
        Reload::catch(logs).context("cannot catch signals")?
    };
    Ok((runtime, reload))
}

/// Catches the signals that ask a node to end, and waits for one. Must be called within a tokio
/// runtime.
pub(super) fn asked_to_stop() -> Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => info!("SIGTERM, stopping"),
            _ = interrupt.recv() => info!("SIGINT, stopping"),
        }
    })
}

/// Reads a command line of words between bars, for tests.
#[cfg(test)]
pub(super) fn parsed<A: Args>(words: &str) -> Result<A, String> {
    let command = A::augment_args(Command::new("node").no_binary_name(true));
    let words = words.split('|').filter(|word| !word.is_empty());
    let matches = command.try_get_matches_from(words).map_err(|error| error.to_string())?;
    A::from_arg_matches(&matches).map_err(|error| error.to_string())
}
