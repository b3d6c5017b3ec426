//! `zodium neo storage`: opens the database, and runs a storage node on it.

use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::signal::unix::{SignalKind, signal};
use tracing::{error, info};
use zodium_configuration::{LogDestination, LogOptions};
use zodium_neo::NodeId;
use zodium_neo_server::{Ended, NodeTls, ServeNode, serve};
use zodium_neo_storage::{Saved, Settings};
use zodium_sql::{NodeDatabase, NodeOptions, SqlError};

use super::addresses;
use super::options::{Adapter, StorageOptions};
use crate::{logging, panics};

/// Pause before a database that is in use is tried again.
const WAIT_PAUSE: Duration = Duration::from_millis(200);

/// Runs a storage node to its end.
pub(crate) fn run(options: &StorageOptions) -> Result<()> {
    match options.adapter {
        Adapter::Sqlite => {}
        Adapter::Mysql => bail!(
            "--adapter MySQL is not implemented; run neostorage for this node, or a new node with \
             --adapter SQLite, which the cluster replicates to"
        ),
        Adapter::Importer => bail!(
            "--adapter Importer is not implemented; copy the database into the running cluster \
             with a client"
        ),
    }
    if let Some(engine) = &options.engine {
        bail!("--engine {engine}: databases in SQLite have no engine; leave the option out");
    }
    let path = path(&options.database)?;
    if options.reset {
        return NodeDatabase::erase(&path).context("cannot erase the database");
    }
    let logs = start_log(options)?;
    panics::end_the_process();
    let ended = run_node(options, &path);
    if let (Err(failure), true) = (&ended, logs) {
        error!("{failure:#}");
    }
    ended
}

/// Starts logging; whether the log goes to a file.
fn start_log(options: &StorageOptions) -> Result<bool> {
    let destination = match &options.logfile {
        Some(path) => LogDestination::File(path.clone()),
        None => LogDestination::Stderr,
    };
    let log = LogOptions {
        destinations: vec![destination],
        level: options.log_level.clone(),
        ..LogOptions::default()
    };
    logging::start(&log)?;
    Ok(options.logfile.is_some())
}

fn run_node(options: &StorageOptions, path: &Path) -> Result<()> {
    let tls = match (&options.ca, &options.cert, &options.key) {
        (Some(authority), Some(certificate), Some(key)) => {
            let tls = NodeTls::load(authority, certificate, key);
            Some(tls.context("cannot set up TLS")?)
        }
        _ => None,
    };
    let masters = addresses::masters(&options.masters)?;
    let bind = addresses::numeric(&options.bind, Some(0))?;
    let (database, saved) = open(options, path)?;
    let listener = TcpListener::bind(bind);
    let listener = listener.with_context(|| format!("cannot listen on {bind}"))?;
    let address = listener.local_addr()?;
    let saved = Saved { node: saved.node.or(options.nid.and_then(NodeId::new)), ..saved };
    let node = saved.node.map(|node| node.to_string());
    info!(%address, database = %path.display(), node, "starting a NEO storage node");
    let settings = Settings {
        cluster: options.cluster.clone(),
        masters,
        address: address.into(),
        topology: topology(path)?,
        packs: !options.disable_pack,
        drops_partitions: !options.disable_drop_partitions,
    };
    let database = Arc::new(database);
    let serve_node =
        ServeNode { settings, saved, store: Arc::clone(&database) as _, listener, tls };
    let ended = block_on(serve_node)?;
    info!("the node has ended");
    match (ended, Arc::into_inner(database)) {
        (Ended::Removed, Some(database)) => {
            database.into_erased().context("cannot erase the database")
        }
        (Ended::Removed, None) => bail!("cannot erase the database: it is still being read"),
        (Ended::Stopped, _) => Ok(()),
    }
}

fn block_on(node: ServeNode) -> Result<Ended> {
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
        Ok(serve(node, stop).await?)
    });
    // Reads that are still under way have no peer left to answer.
    runtime.shutdown_timeout(Duration::from_secs(1));
    ended
}

/// Opens the database; one that another process uses is waited for as `--wait` says.
fn open(options: &StorageOptions, path: &Path) -> Result<(NodeDatabase, Saved)> {
    let open = NodeOptions { path, cluster: &options.cluster, keep_equal_data_once: options.dedup };
    let start = Instant::now();
    loop {
        match NodeDatabase::open(&open) {
            Err(SqlError::InUse { .. } | SqlError::Busy { .. })
                if options.wait < 0.0 || start.elapsed().as_secs_f64() < options.wait =>
            {
                std::thread::sleep(WAIT_PAUSE);
            }
            opened => return opened.context("cannot open the database"),
        }
    }
}

/// The path of a database, which may be a URI as NEO's adapter takes them.
fn path(database: &str) -> Result<PathBuf> {
    if database == ":memory:" {
        bail!("--database :memory: would lose everything at the end; give the path of a file");
    }
    let Some(uri) = database.strip_prefix("file:") else { return Ok(database.into()) };
    let (path, pragmas) = uri.split_once('?').unwrap_or((uri, ""));
    if pragmas.contains("cksumvfs=1") {
        bail!("--database with cksumvfs=1 is not implemented; use a plain database");
    }
    if !pragmas.is_empty() {
        eprintln!("zodium: ignoring {pragmas:?}: the journal, and when it is synced, are ours");
    }
    Ok(path.into())
}

/// Where the database is: copies of a partition should differ in it.
fn topology(path: &Path) -> Result<Vec<String>> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let device = std::fs::metadata(path)?.dev();
    Ok(vec![host, device.to_string()])
}
