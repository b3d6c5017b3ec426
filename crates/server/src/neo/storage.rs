//! `zodium neo storage`: opens the database, and runs a storage node on it.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use percent_encoding::percent_decode_str;
use tokio::runtime::Runtime;
use tracing::info;
use zodium_configuration::{NodeAdapter, NodeOptions, NodeWait};
use zodium_neo::{NodeId, NodeType};
use zodium_neo_server::{Ended, NodeTls, NodeWatch, ServeNode, Watched, serve};
use zodium_neo_storage::{Saved, Settings, TRANSACTION_BYTES_MAX};
use zodium_sql::{
    Location, MariaAddress, MariaEngine, NodeDatabase, NodeOptions as NodeDatabaseOptions,
    ROOM_BYTES,
};

use super::check;
use super::monitoring::{MonitoredNode, words};
use super::node_kind::{NodeKind as _, Reload, asked_to_stop, listen, runtime};
use super::options::{Storage, StorageOptions};
use crate::streams::complain;
use crate::supervisor::{self, Watchdog};
use crate::{logging, monitoring, panics};

/// Pause before a database that is in use is tried again.
const WAIT_PAUSE: Duration = Duration::from_millis(200);
/// By what the service manager's limit of the start is extended at each try.
const WAIT_EXTENSION: Duration = Duration::from_secs(30);

/// Runs a storage node to its end.
pub(crate) fn run(options: &StorageOptions) -> Result<()> {
    let (configuration, node, warnings) = options.configuration()?;
    let location = location(&node)?;
    if options.reset {
        return NodeDatabase::erase(&location).context("cannot erase the database");
    }
    check(&configuration)?;
    let (logs, messages) = logging::start_for(&configuration, &warnings)?;
    panics::end_the_process();
    let run = || {
        let runtime = runtime(&logs)?;
        let tls = Storage::common(&node).tls()?;
        let (watch, watched) = NodeWatch::new();
        let own = tls.as_ref().map(|tls| tls.accepting());
        let monitored = MonitoredNode::new(watch.clone(), &node.cluster, &location, own);
        let monitor = configuration.monitor.as_ref();
        let _monitor = monitoring::start(monitor, Arc::clone(&monitored) as _, messages)?;
        let (serve_node, database) = prepare(options, &node, &location, (watched, tls))?;
        monitored.serves(&database);
        run_node(runtime, serve_node, database, watch)
    };
    let ended = run();
    logs.note_end(&ended);
    ended
}

/// Opens the database, and binds the address.
fn prepare(
    options: &StorageOptions,
    node: &NodeOptions,
    location: &Location,
    (watched, tls): (Watched, Option<Arc<NodeTls>>),
) -> Result<(ServeNode, Arc<NodeDatabase>)> {
    let common = Storage::common(node);
    let masters = common.masters(None)?;
    let bind = common.bind()?;
    let (database, saved) = open(node, location)?;
    let has_cells = saved.node.is_some() && saved.table.is_some();
    if options.new_nid && !has_cells {
        bail!("--new-nid: the database is empty; it must be a copy of another node's");
    }
    let (listener, address) = listen(bind, tls.is_some())?;
    let given = node.nid.and_then(|nid| NodeId::of(NodeType::Storage, nid));
    if let (None, Some(given)) = (saved.node, given) {
        let kept = database.write(true, |database| database.set_node(given));
        kept.context("cannot keep the id of the node in the database")?;
    }
    let saved = Saved { node: saved.node.or(given), ..saved };
    let shown = saved.node.map(|node| node.to_string());
    info!(%address, database = %location, node = shown, "starting a NEO storage node");
    let settings = Settings {
        cluster: node.cluster.clone(),
        masters,
        address: address.into(),
        topology: topology(location)?,
        packs: !node.disable_pack,
        drops_partitions: !node.disable_drop_partitions,
        transaction_bytes_max: TRANSACTION_BYTES_MAX,
        records_bytes_max: usize::try_from(node.cache_bytes).unwrap_or(usize::MAX),
    };
    let database = Arc::new(database);
    let serve_node = ServeNode {
        settings,
        saved,
        store: Arc::clone(&database) as _,
        listener,
        tls,
        asks_new_id: options.new_nid,
        watched,
        masters_told: common.masters_told(),
    };
    Ok((serve_node, database))
}

fn run_node(
    runtime: (Runtime, Reload),
    serve_node: ServeNode,
    database: Arc<NodeDatabase>,
    watch: NodeWatch,
) -> Result<()> {
    let ended = block_on(runtime, serve_node, watch);
    if let Ok(Ended::Removed) = ended {
        info!("the node has ended");
        let database = Arc::into_inner(database);
        let database = database.context("cannot erase the database: it is still being read")?;
        return database.into_erased().context("cannot erase the database");
    }
    match (ended, database.close()) {
        (Err(ended), Err(closed)) => Err(ended.context(closed.to_string())),
        (Err(ended), Ok(())) => Err(ended),
        (Ok(_), closed) => {
            info!("the node has ended");
            closed.context("the database was not closed properly")
        }
    }
}

fn block_on(
    (runtime, reload): (Runtime, Reload),
    node: ServeNode,
    watch: NodeWatch,
) -> Result<Ended> {
    let ended = runtime.block_on(async {
        let asked_to_stop = asked_to_stop()?;
        let stop = async move {
            asked_to_stop.await;
            supervisor::stopping();
        };
        let asked = watch.clone();
        let watchdog = Watchdog::start(move || {
            let node = asked.clone();
            async move { node.report().await.is_some() }
        });
        let telling = tokio::spawn(tell_state(watch));
        let reloading = tokio::spawn(reload.run(node.tls.clone()));
        supervisor::node_ready();
        let ended = serve(node, stop).await;
        telling.abort();
        reloading.abort();
        watchdog.stop().await;
        supervisor::stopping();
        Ok(ended?)
    });
    // Reads that are still under way have no peer left to answer.
    runtime.shutdown_timeout(Duration::from_secs(1));
    ended
}

/// Tells systemd how far the node is, until it ends.
async fn tell_state(mut watch: NodeWatch) {
    loop {
        supervisor::status(words(watch.brief().state));
        if !watch.changed().await {
            return;
        }
    }
}

/// Opens the database; one that another process uses is waited for as `--wait` says.
fn open(node: &NodeOptions, location: &Location) -> Result<(NodeDatabase, Saved)> {
    let open = NodeDatabaseOptions {
        location,
        cluster: &node.cluster,
        keep_equal_data_once: node.dedup,
        room_bytes: ROOM_BYTES,
    };
    let start = Instant::now();
    let may_wait = || match node.wait {
        NodeWait::Forever => true,
        NodeWait::AtMost(time) => start.elapsed() < time,
    };
    loop {
        match NodeDatabase::open(&open) {
            Err(error) if error.may_pass() && may_wait() => {
                supervisor::starting("waiting for the database, which is in use", WAIT_EXTENSION);
                std::thread::sleep(WAIT_PAUSE);
            }
            opened => return opened.context("cannot start the node"),
        }
    }
}

/// Where the database of a node is.
pub(super) fn location(node: &NodeOptions) -> Result<Location> {
    if node.kind_of_database() != NodeAdapter::Mysql {
        return Ok(path(&node.database)?.into());
    }
    let engine = match &node.engine {
        None => MariaEngine::default(),
        Some(name) => MariaEngine::of_name(name)
            .with_context(|| format!("--engine {name} is unknown: InnoDB or RocksDB"))?,
    };
    let address = match MariaAddress::is_url(&node.database) {
        true => MariaAddress::of_url(&node.database)?,
        false => MariaAddress::of_neo(&node.database, engine)
            .context("the adapter is MySQL, the default of a neo.conf; SQLite is for files")?,
    };
    Ok(Location::Maria(if node.engine.is_some() { address.with_engine(engine) } else { address }))
}

/// The path of a database, which may be a URI as NEO's adapter takes them.
fn path(database: &str) -> Result<PathBuf> {
    if database == ":memory:" {
        bail!("--database :memory: would lose everything at the end; give the path of a file");
    }
    let Some(uri) = database.strip_prefix("file:") else { return Ok(database.into()) };
    let uri = uri.split_once('#').map_or(uri, |(uri, _)| uri);
    let (path, pragmas) = uri.split_once('?').unwrap_or((uri, ""));
    if pragmas.contains("cksumvfs=1") {
        bail!("--database with cksumvfs=1 is not implemented; use a plain database");
    }
    if !pragmas.is_empty() {
        complain!("zodium: ignoring {pragmas:?}: the journal, and when it is synced, are ours");
    }
    let path = path.strip_prefix("//localhost").unwrap_or(path);
    Ok(OsString::from_vec(percent_decode_str(path).collect()).into())
}

/// Where the database is: copies of a partition should differ in it.
fn topology(location: &Location) -> Result<Vec<String>> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let place = match location {
        Location::Sqlite(path) => std::fs::metadata(path)?.dev().to_string(),
        Location::Maria(_) => location.to_string(),
    };
    Ok(vec![host, place])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_mean_what_they_mean_for_sqlite() {
        for (database, expected) in [
            ("neo%201.sqlite", "neo%201.sqlite"),
            ("file:neo%201.sqlite", "neo 1.sqlite"),
            ("file:///srv/100%25%3f.sqlite?mode=rwc", "///srv/100%?.sqlite"),
            ("file://localhost/srv/neo.sqlite#1", "/srv/neo.sqlite"),
        ] {
            assert_eq!(path(database).unwrap(), PathBuf::from(expected), "{database}");
        }
        assert!(path("file:a?cksumvfs=1").is_err() && path(":memory:").is_err());
    }
}
