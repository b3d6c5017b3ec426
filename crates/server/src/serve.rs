//! `zodium serve`: opens the file, starts the workers, accepts until told to stop.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytesize::ByteSize;
use tokio::signal::unix::{SignalKind, signal};
use tracing::info;
use zodium_disk::{RealDisk, SystemClock};
use zodium_engine::Storage;
use zodium_filestorage::{FileStorage, Magic, OpenOptions, StorageError};
use zodium_net::{Bound, Limits, Listener, Workers};
use zodium_types::{Address, Tid};
use zodium_zeo::codec::Encoding;
use zodium_zeo::server::{Config, Server, ZeoService};

use crate::cli::{LogFormat, ServeOptions};
use crate::logging;
use crate::progress::Progress;

/// How long a stop waits for clients to take what they are owed.
const STOP_PATIENCE: Duration = Duration::from_secs(3);

/// Serves until SIGTERM or SIGINT.
pub(crate) fn run(options: &ServeOptions) -> Result<()> {
    logging::start(&options.logging)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(options))
}

async fn serve(options: &ServeOptions) -> Result<()> {
    let bound = bind(&options.address).await?;
    // A signal that comes while this takes its time ends the process: there is nothing to lose.
    let storage = open(options)?;
    let listeners = listen(bound)?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let workers = start_workers(options, &storage)?;
    announce(options, &storage, &listeners);
    let accepting = listeners.into_iter().map(|listener| {
        let workers = Arc::clone(&workers);
        tokio::spawn(async move {
            loop {
                let (incoming, peer) = listener.accept().await;
                workers.assign(incoming, peer);
            }
        })
    });
    let accepting: Vec<_> = accepting.collect();
    tokio::select! {
        _ = terminate.recv() => info!("SIGTERM, stopping"),
        _ = interrupt.recv() => info!("SIGINT, stopping"),
    }
    for task in &accepting {
        task.abort();
    }
    for task in accepting {
        // Aborted, and with that its listener is closed.
        let _ = task.await;
    }
    // Those who wait for it are answered before their connections are closed.
    storage.cancel_pack();
    if let Some(workers) = Arc::into_inner(workers) {
        workers.stop(STOP_PATIENCE);
    }
    storage.close().context("the index could not be saved (it will be built anew at start)")?;
    info!("stopped");
    Ok(())
}

async fn bind(addresses: &[Address]) -> Result<Vec<Bound>> {
    let mut bound = Vec::new();
    for address in addresses {
        let taken = Bound::bind(address).await;
        bound.push(taken.with_context(|| format!("cannot listen on {address}"))?);
    }
    Ok(bound)
}

fn listen(bound: Vec<Bound>) -> Result<Vec<Listener>> {
    bound.into_iter().map(|bound| bound.listen().context("cannot listen")).collect()
}

fn open(options: &ServeOptions) -> Result<Arc<Storage>> {
    let path = options.path.as_path();
    check_folder(path)?;
    let progress = Progress::new("building the index");
    let file = FileStorage::open(
        Arc::new(RealDisk),
        &OpenOptions {
            path: path.to_owned(),
            read_only: options.read_only,
            create: !options.read_only,
            cache_bytes: usize::try_from(options.cache_size.as_u64()).unwrap_or(usize::MAX),
            progress: &|done, total| progress.report(done, total),
        },
    );
    drop(progress);
    let file = file.map_err(explain)?;
    let config = zodium_engine::Config {
        invalidation_queue_size: options.invalidation_queue_size,
        invalidation_age: options.invalidation_age,
        transaction_timeout: options.transaction_timeout,
        pack_gc: !options.no_pack_gc,
        pack_keep_old: !options.no_pack_keep_old,
    };
    Ok(Storage::start(file, Arc::new(SystemClock::new()), &config)?)
}

fn check_folder(path: &Path) -> Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    match folder {
        Some(folder) if !folder.is_dir() => {
            bail!("{}: there is no such directory; make it first", folder.display())
        }
        _ => Ok(()),
    }
}

/// Adds what to do next where an option would help.
fn explain(error: StorageError) -> anyhow::Error {
    let denied = match &error {
        StorageError::Io { source, .. } => matches!(
            source.kind(),
            std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem
        ),
        _ => false,
    };
    let error = anyhow::Error::from(error);
    match denied {
        true => error.context("cannot open for writing (--read-only serves it as it is)"),
        false => error,
    }
}

fn start_workers(options: &ServeOptions, storage: &Arc<Storage>) -> Result<Arc<Workers>> {
    let config = Config {
        encoding: if options.msgpack { Encoding::Msgpack } else { Encoding::Pickle },
        frame_bytes_max: options.message_size_max,
        read_only: options.read_only,
    };
    let storages = BTreeMap::from([(options.storage_name.clone(), Arc::clone(storage))]);
    let server = Arc::new(Server::new(config, storages));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let count = options.workers.map_or(cores, usize::from);
    let workers =
        Workers::start(count, Limits::default(), move |_| ZeoService::new(Arc::clone(&server)))?;
    Ok(Arc::new(workers))
}

/// Says where it listens, what it serves, and how to connect.
fn announce(options: &ServeOptions, storage: &Storage, listeners: &[Listener]) {
    let file = storage.file();
    let last = storage.last_tid();
    for listener in listeners {
        info!(
            address = %listener.address(),
            file = %file.path().display(),
            bytes = file.size(),
            objects = file.object_count(),
            last_transaction = %last,
            "serving"
        );
    }
    if options.logging.log_format == LogFormat::Json {
        return;
    }
    println!("Zodium {} serves {}", env!("CARGO_PKG_VERSION"), file.path().display());
    println!(
        "  size {}, {} objects, last transaction {}{}",
        ByteSize(file.size()),
        file.object_count(),
        moment(last),
        if file.magic() == Magic::Fs21 { ", pickles of Python 2" } else { "" },
    );
    for listener in listeners {
        println!("  listening on {}", listener.address());
    }
    if let Some(listener) = listeners.first() {
        println!("Connect from Python (pip install ZEO):");
        println!("  import ZEO");
        println!("  db = ZEO.DB({})", python_address(listener.address()));
    }
}

fn moment(tid: Tid) -> String {
    if tid == Tid::ZERO {
        return "none yet".to_owned();
    }
    let seconds = i64::try_from(tid.to_unix_nanos() / 1_000_000_000).unwrap_or(i64::MAX);
    match jiff::Timestamp::from_second(seconds) {
        Ok(time) => format!("{tid} ({})", time.strftime("%Y-%m-%d %H:%M:%S UTC")),
        Err(_) => tid.to_string(),
    }
}

fn python_address(address: &Address) -> String {
    match address {
        Address::Tcp { host, port } if host == "0.0.0.0" => format!("('127.0.0.1', {port})"),
        Address::Tcp { host, port } => format!("('{host}', {port})"),
        Address::Unix(path) => format!("'{}'", path.display()),
    }
}
