//! Runs a node without a database: an admin or a master.

use std::sync::Arc;

use anyhow::{Context, Result};
use tokio::runtime::Runtime;
use tracing::info;
use zodium_configuration::{Configuration, Warning};
use zodium_neo_server::{LightWatch, NodeTls, ServeLight};

use super::check;
use super::light_kind::LightKind;
use super::light_monitoring::MonitoredLight;
use super::node_kind::{NodeArguments, Reload, asked_to_stop, listen, nameless, runtime};
use crate::supervisor::{self, Watchdog};
use crate::{logging, monitoring, panics};

/// Runs a node to its end.
pub(super) fn run<K: LightKind>(options: &NodeArguments<K>) -> Result<()> {
    let (configuration, table, warnings) = configuration(options)?;
    let cluster = K::common(&table).cluster;
    check(&configuration)?;
    let (logs, messages) = logging::start_for(&configuration, &warnings)?;
    panics::end_the_process();
    let run = || {
        let runtime = runtime(&logs)?;
        let tls = K::common(&table).tls()?;
        let watch = LightWatch::default();
        let own = tls.as_ref().map(|tls| tls.accepting());
        let monitored: MonitoredLight<K> = MonitoredLight::new(watch.clone(), cluster, own);
        let monitor = configuration.monitor.as_ref();
        let _monitor = monitoring::start(monitor, Arc::new(monitored), messages)?;
        serve::<K>(runtime, prepare::<K>(&table, watch, tls)?)
    };
    let ended = run();
    logs.note_end(&ended);
    ended
}

/// The configuration of the node, and warnings about the file.
pub(super) fn configuration<K: LightKind>(
    options: &NodeArguments<K>,
) -> Result<(Configuration, K::Table, Vec<Warning>)> {
    let (configuration, table, warnings) = options.configuration()?;
    match K::common(&table).cluster {
        "" => Err(nameless::<K>()),
        _ => Ok((configuration, table, warnings)),
    }
}

/// Reads the list of masters, and binds the address.
fn prepare<K: LightKind>(
    table: &K::Table,
    watch: LightWatch<K::Status>,
    tls: Option<Arc<NodeTls>>,
) -> Result<ServeLight<K::Settings, K::Status>> {
    let common = K::common(table);
    let bind = common.bind()?;
    let masters = common.masters(K::MAY_BE_ALONE.then(|| bind.into()))?;
    let (listener, address) = listen(bind, tls.is_some())?;
    info!(%address, cluster = common.cluster, "starting {} of a NEO cluster", K::ONE);
    let settings = K::settings(table, masters, address.into())?;
    Ok(ServeLight { settings, listener, tls, watch, masters_told: common.masters_told() })
}

fn serve<K: LightKind>(
    (runtime, reload): (Runtime, Reload),
    node: ServeLight<K::Settings, K::Status>,
) -> Result<()> {
    runtime.block_on(async {
        let reloading = tokio::spawn(reload.run(node.tls.clone()));
        let asked_to_stop = asked_to_stop()?;
        let stop = async move {
            asked_to_stop.await;
            supervisor::stopping();
        };
        // Its task runs on the thread of the node.
        let watchdog = Watchdog::start(|| std::future::ready(true));
        supervisor::node_ready();
        let served = K::serve(node, stop).await;
        reloading.abort();
        watchdog.stop().await;
        supervisor::stopping();
        served.with_context(|| format!("cannot serve the {}", K::NAME))
    })?;
    info!("the {} has ended", K::NAME);
    Ok(())
}
