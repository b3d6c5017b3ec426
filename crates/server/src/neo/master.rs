//! `zodium neo master`: runs a master of a cluster.

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;
use clap::error::ErrorKind;
use tokio::signal::unix::{SignalKind, signal};
use tracing::{error, info, warn};
use zodium_configuration::{
    Configuration, LogDestination, MasterOptions as MasterSettings, NeoNode, Warning, read_neo_conf,
};
use zodium_neo::NodeId;
use zodium_neo_master::Settings;
use zodium_neo_server::{MasterWatch, MastersTold, NodeTls, ServeMaster, serve_master};

use super::master_monitoring::MonitoredMaster;
use super::options::unconfigured;
use super::{addresses, check, master_list};
use crate::setting_arguments::{OfMaster, SettingArguments};
use crate::{logging, monitoring, panics};

/// Options of `zodium neo master`.
#[derive(Debug, Args)]
pub(crate) struct MasterOptions {
    /// A configuration file in TOML, with the table [neo-master]; options override it
    #[arg(short = 'C', long, value_name = "FILE", env = "ZODIUM_CONFIG")]
    config: Option<PathBuf>,

    /// A configuration file of NEO's, as neomaster reads it; options override it
    #[arg(short, long, value_name = "FILE", conflicts_with = "config")]
    file: Option<PathBuf>,

    /// Section of that file, which also has the settings of its DEFAULT section
    #[arg(short, long, value_name = "NAME", default_value = "master")]
    section: String,

    /// Append log lines to this file, a text; the same as --log-file
    #[arg(short, long, value_name = "PATH", conflicts_with = "log-file")]
    logfile: Option<PathBuf>,

    #[command(flatten)]
    settings: SettingArguments<OfMaster>,
}

/// Runs a master to its end.
pub(super) fn run(options: &MasterOptions) -> Result<()> {
    let (configuration, master, warnings) = options.configuration()?;
    check(&configuration)?;
    let (logs, messages) = logging::start(&configuration.log)?;
    panics::end_the_process();
    for warning in warnings {
        warn!("{warning}");
    }
    let watch = MasterWatch::default();
    let monitored = MonitoredMaster::new(watch.clone(), &master.cluster);
    let monitor = monitoring::start(configuration.monitor.as_ref(), Arc::new(monitored), messages);
    let ended = monitor.and_then(|_monitor| serve(prepare(&master, watch)?));
    if let (Err(failure), false) = (&ended, logs.include_stderr()) {
        error!("{failure:#}");
    }
    ended
}

/// Reads certificates and the list of masters, and binds the address.
fn prepare(master: &MasterSettings, watch: MasterWatch) -> Result<ServeMaster> {
    let tls = match (&master.ca, &master.cert, &master.key) {
        (Some(authority), Some(certificate), Some(key)) => {
            let tls = NodeTls::load(authority, certificate, key);
            Some(tls.context("cannot set up TLS")?)
        }
        _ => None,
    };
    let bind = addresses::numeric(&master.bind, Some(0))?;
    let given = match &master.masters[..] {
        [] => vec![bind.into()],
        given => addresses::masters(given)?,
    };
    let masters = master_list::joined(given, master.dynamic_master_list.as_deref())?;
    let listener = TcpListener::bind(bind);
    let listener = listener.with_context(|| format!("cannot listen on {bind}"))?;
    let address = listener.local_addr()?;
    info!(%address, cluster = master.cluster, "starting a master of a NEO cluster");
    let settings = Settings {
        cluster: master.cluster.clone(),
        masters,
        address: address.into(),
        node: master.nid.and_then(NodeId::new),
        replicas: master.replicas,
        partitions: master.partitions,
        autostart: master.autostart,
    };
    let masters_told = master.dynamic_master_list.clone().map(|list| -> MastersTold {
        Box::new(move |masters| master_list::update(&list, masters))
    });
    Ok(ServeMaster { settings, listener, tls, watch, masters_told })
}

fn serve(master: ServeMaster) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let stop = async move {
            tokio::select! {
                _ = terminate.recv() => info!("SIGTERM, stopping"),
                _ = interrupt.recv() => info!("SIGINT, stopping"),
            }
        };
        serve_master(master, stop).await
    });
    ended.context("cannot serve the master")?;
    info!("the master has ended");
    Ok(())
}

impl MasterOptions {
    /// The configuration of the master, and warnings about the file.
    fn configuration(&self) -> Result<(Configuration, MasterSettings, Vec<Warning>)> {
        let (mut configuration, warnings) = match (&self.config, &self.file) {
            (Some(file), _) => crate::config::read(file)?,
            (None, Some(file)) => read_neo_conf(file, &self.section, NeoNode::Master)?,
            (None, None) => (unconfigured(), Vec::new()),
        };
        if let (Some(file), None) = (&self.config, &configuration.neo_master) {
            let file = file.display();
            return Err(wrong(&format!(
                "{file} has no table [neo-master]; `zodium serve -C {file}` runs a server"
            )));
        }
        self.settings.apply(&mut configuration).map_err(|what| wrong(&what))?;
        if let Some(path) = &self.logfile {
            configuration.log.destinations = vec![LogDestination::File(path.clone())];
        }
        let master = configuration.neo_master.clone().unwrap_or_default();
        if master.cluster.is_empty() {
            return Err(wrong("give the name of the cluster: --cluster NAME, or a file"));
        }
        configuration.neo_master = Some(master.clone());
        Ok((configuration, master, warnings))
    }
}

/// An error of the command line, reported as by clap.
fn wrong(what: &str) -> anyhow::Error {
    let command = clap::Command::new("master").bin_name("zodium neo master");
    let mut command = MasterOptions::augment_args(command);
    command.error(ErrorKind::MissingRequiredArgument, what).into()
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches;

    use super::*;

    fn configuration(words: &str) -> Result<MasterSettings, String> {
        let command = clap::Command::new("master").no_binary_name(true);
        let command = MasterOptions::augment_args(command);
        let words = words.split('|').filter(|word| !word.is_empty());
        let matches = command.try_get_matches_from(words).map_err(|error| error.to_string())?;
        let options = MasterOptions::from_arg_matches(&matches).unwrap();
        options.configuration().map(|(_, master, _)| master).map_err(|error| error.to_string())
    }

    #[test]
    fn neomasters_options_are_understood() {
        let master = configuration(
            "-c|a|-m|b:1 c:2|-b|d:3|-i|-268435455|-D|masters.json|-l|log|-p|12|-r|1|-A|3",
        );
        let master = master.unwrap();
        assert_eq!((&*master.cluster, &*master.bind), ("a", "d:3"));
        assert_eq!(master.masters, ["b:1", "c:2"]);
        assert_eq!((master.partitions, master.replicas, master.autostart), (12, 1, Some(3)));
        assert_eq!(master.nid, Some(-268_435_455));
        let master = configuration("-c|a").unwrap();
        assert_eq!((&*master.bind, master.partitions), ("127.0.0.1:10000", 100));
    }

    #[test]
    fn what_is_missing_is_said() {
        for (words, expected) in [
            ("", "--cluster NAME"),
            ("-c|a|-i|1", "from -268435455 (the first)"),
            ("-c|a|-p|0", "--partitions"),
            ("-f|a|-C|b", "cannot be used with"),
        ] {
            let error = configuration(words).unwrap_err();
            assert!(error.contains(expected), "{words}: {error}");
        }
    }
}
