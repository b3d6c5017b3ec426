//! `zodium neo admin`: runs the admin of a cluster.

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;
use clap::error::ErrorKind;
use tokio::signal::unix::{SignalKind, signal};
use tracing::{error, info, warn};
use zodium_configuration::{
    AdminOptions as AdminSettings, Configuration, LogDestination, NeoNode, Warning, read_neo_conf,
};
use zodium_neo::NodeId;
use zodium_neo_admin::Settings;
use zodium_neo_server::{AdminWatch, MastersTold, NodeTls, ServeAdmin, serve_admin};

use super::admin_monitoring::MonitoredAdmin;
use super::options::unconfigured;
use super::{addresses, check, master_list};
use crate::setting_arguments::{OfAdmin, SettingArguments};
use crate::{logging, monitoring, panics};

/// Options of `zodium neo admin`.
#[derive(Debug, Args)]
pub(crate) struct AdminOptions {
    /// A configuration file in TOML, with the table [neo-admin]; options override it
    #[arg(short = 'C', long, value_name = "FILE", env = "ZODIUM_CONFIG")]
    config: Option<PathBuf>,

    /// A configuration file of NEO's, as neoadmin reads it; options override it
    #[arg(short, long, value_name = "FILE", conflicts_with = "config")]
    file: Option<PathBuf>,

    /// Section of that file, which also has the settings of its DEFAULT section
    #[arg(short, long, value_name = "NAME", default_value = "admin")]
    section: String,

    /// Append log lines to this file, a text; the same as --log-file
    #[arg(short, long, value_name = "PATH", conflicts_with = "log-file")]
    logfile: Option<PathBuf>,

    #[command(flatten)]
    settings: SettingArguments<OfAdmin>,
}

/// Runs an admin to its end.
pub(super) fn run(options: &AdminOptions) -> Result<()> {
    let (configuration, admin, warnings) = options.configuration()?;
    check(&configuration)?;
    let (logs, messages) = logging::start(&configuration.log)?;
    panics::end_the_process();
    for warning in warnings {
        warn!("{warning}");
    }
    let watch = AdminWatch::default();
    let monitored = MonitoredAdmin::new(watch.clone(), &admin.cluster);
    let monitor = monitoring::start(configuration.monitor.as_ref(), Arc::new(monitored), messages);
    let ended = monitor.and_then(|_monitor| serve(prepare(&admin, watch)?));
    if let (Err(failure), false) = (&ended, logs.include_stderr()) {
        error!("{failure:#}");
    }
    ended
}

/// Reads certificates and the list of masters, and binds the address.
fn prepare(admin: &AdminSettings, watch: AdminWatch) -> Result<ServeAdmin> {
    let tls = match (&admin.ca, &admin.cert, &admin.key) {
        (Some(authority), Some(certificate), Some(key)) => {
            let tls = NodeTls::load(authority, certificate, key);
            Some(tls.context("cannot set up TLS")?)
        }
        _ => None,
    };
    let masters = master_list::joined(
        addresses::masters(&admin.masters)?,
        admin.dynamic_master_list.as_deref(),
    )?;
    let bind = addresses::numeric(&admin.bind, Some(0))?;
    let listener = TcpListener::bind(bind);
    let listener = listener.with_context(|| format!("cannot listen on {bind}"))?;
    let address = listener.local_addr()?;
    info!(%address, cluster = admin.cluster, "starting the admin of a NEO cluster");
    let settings = Settings {
        cluster: admin.cluster.clone(),
        masters,
        address: address.into(),
        node: admin.nid.and_then(NodeId::new),
        backups: admin.monitor_backup.clone(),
        lag_seconds_max: admin.monitor_maxlag.as_secs_f64(),
    };
    let masters_told = admin.dynamic_master_list.clone().map(|list| -> MastersTold {
        Box::new(move |masters| master_list::update(&list, masters))
    });
    Ok(ServeAdmin { settings, listener, tls, watch, masters_told })
}

fn serve(admin: ServeAdmin) -> Result<()> {
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
        serve_admin(admin, stop).await
    });
    ended.context("cannot serve the admin")?;
    info!("the admin has ended");
    Ok(())
}

impl AdminOptions {
    /// The configuration of the admin, and warnings about the file.
    fn configuration(&self) -> Result<(Configuration, AdminSettings, Vec<Warning>)> {
        let (mut configuration, warnings) = match (&self.config, &self.file) {
            (Some(file), _) => crate::config::read(file)?,
            (None, Some(file)) => read_neo_conf(file, &self.section, NeoNode::Admin)?,
            (None, None) => (unconfigured(), Vec::new()),
        };
        if let (Some(file), None) = (&self.config, &configuration.neo_admin) {
            let file = file.display();
            return Err(wrong(&format!(
                "{file} has no table [neo-admin]; `zodium serve -C {file}` runs a server"
            )));
        }
        self.settings.apply(&mut configuration).map_err(|what| wrong(&what))?;
        if let Some(path) = &self.logfile {
            configuration.log.destinations = vec![LogDestination::File(path.clone())];
        }
        let admin = configuration.neo_admin.clone().unwrap_or_default();
        if admin.cluster.is_empty() {
            return Err(wrong("give the name of the cluster: --cluster NAME, or a file"));
        }
        configuration.neo_admin = Some(admin.clone());
        Ok((configuration, admin, warnings))
    }
}

/// An error of the command line, reported as by clap.
fn wrong(what: &str) -> anyhow::Error {
    let command = clap::Command::new("admin").bin_name("zodium neo admin");
    let mut command = AdminOptions::augment_args(command);
    command.error(ErrorKind::MissingRequiredArgument, what).into()
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches;

    use super::*;

    fn configuration(words: &str) -> Result<AdminSettings, String> {
        let command = clap::Command::new("admin").no_binary_name(true);
        let command = AdminOptions::augment_args(command);
        let words = words.split('|').filter(|word| !word.is_empty());
        let matches = command.try_get_matches_from(words).map_err(|error| error.to_string())?;
        let options = AdminOptions::from_arg_matches(&matches).unwrap();
        options.configuration().map(|(_, admin, _)| admin).map_err(|error| error.to_string())
    }

    #[test]
    fn neoadmins_options_are_understood() {
        let admin = configuration(
            "-c|a|-m|b:1 c:2|-b|d:3|-i|-805306367|-D|masters.json|-l|log|--monitor-backup|e|\
             --monitor-backup|f|--monitor-maxlag|1.5",
        );
        let admin = admin.unwrap();
        assert_eq!((&*admin.cluster, &*admin.bind), ("a", "d:3"));
        assert_eq!(
            (admin.masters, admin.monitor_backup),
            (vec!["b:1".into(), "c:2".into()], vec!["e".into(), "f".into()])
        );
        assert_eq!((admin.nid, admin.monitor_maxlag.as_millis()), (Some(-805_306_367), 1500));
        assert_eq!(configuration("-c|a").unwrap().bind, "127.0.0.1:9999");
    }

    #[test]
    fn what_is_missing_is_said() {
        for (words, expected) in [
            ("", "--cluster NAME"),
            ("-c|a|-i|1", "from -805306367 (the first)"),
            ("-f|a|-C|b", "cannot be used with"),
            ("-c|a|--smtp|b", "unexpected argument"),
        ] {
            let error = configuration(words).unwrap_err();
            assert!(error.contains(expected), "{words}: {error}");
        }
    }
}
