//! A server with one storage in memory, that can be stopped and started again.

pub(crate) mod peer;
pub(crate) mod stock_log;
pub(crate) mod switch;

// Not every test uses all of it.
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use tempfile::TempDir;
use tokio::sync::oneshot;
use zodium_client::{Client, Options, TransactionOptions};
use zodium_disk::{MemoryDisk, SystemClock};
use zodium_engine::{Config as StorageConfig, Database};
use zodium_filestorage::{FileStorage, OpenOptions};
use zodium_net::{Bound, WorkerOptions, Workers};
use zodium_pickle::Value;
use zodium_types::{Address, Oid, Tid};
use zodium_zeo::codec::Encoding;
use zodium_zeo_server::{Config, ServedStorage, Server as ZeoServer, ZeoService};

const DATA: &str = "Data.fs";
const BLOBS: &str = "blobs";

/// A server, and the state that it keeps while stopped.
pub(crate) struct Server {
    pub(crate) encoding: Encoding,
    pub(crate) read_only: bool,
    /// Commits that it remembers for reconnecting clients.
    pub(crate) remembered: usize,
    disk: MemoryDisk,
    folder: TempDir,
    running: Option<Running>,
}

struct Running {
    storage: Arc<Database>,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Server {
    pub(crate) fn start(encoding: Encoding) -> Server {
        let mut server = Server {
            encoding,
            read_only: false,
            remembered: 100,
            disk: MemoryDisk::volatile(),
            folder: tempfile::tempdir().unwrap(),
            running: None,
        };
        server.restart();
        server
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("zeo")
    }

    pub(crate) fn options(&self) -> Options {
        Options {
            wait_timeout: Duration::from_secs(20),
            ..Options::new(Address::Unix(self.path()))
        }
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.options()).unwrap()
    }

    /// The bytes of its file.
    pub(crate) fn data(&self) -> Vec<u8> {
        self.disk.bytes(Path::new(DATA)).unwrap()
    }

    /// Ends all connections, and the server.
    pub(crate) fn stop(&mut self) {
        let Some(Running { storage, stop, thread }) = self.running.take() else { return };
        let _ = stop.send(());
        thread.join().unwrap();
        storage.close().unwrap();
    }

    /// Restarts both servers, each with the other's data.
    pub(crate) fn exchange_data(&mut self, other: &mut Server) {
        self.stop();
        other.stop();
        std::mem::swap(&mut self.disk, &mut other.disk);
        self.restart();
        other.restart();
    }

    pub(crate) fn restart(&mut self) {
        self.stop();
        let options = OpenOptions {
            cache_bytes: 1 << 20,
            blob_directory: Some(BLOBS.into()),
            ..OpenOptions::new(DATA)
        };
        let file = FileStorage::open(Arc::new(self.disk.clone()), &options).unwrap();
        let config = StorageConfig {
            invalidation_queue_size: self.remembered,
            pack_gc: false,
            pack_keep_old: false,
            reopening: None,
            ..StorageConfig::default()
        };
        let storage =
            Database::start(Arc::new(file), Arc::new(SystemClock::new()), &config).unwrap();
        let (stop, stopped) = oneshot::channel();
        let (ready, listening) = std::sync::mpsc::channel();
        let config = Config {
            encoding: self.encoding,
            frame_bytes_max: 1 << 24,
            read_only: self.read_only,
            notice_interval: Duration::from_millis(1),
        };
        let storages = BTreeMap::from([(
            "1".to_owned(),
            ServedStorage { storage: Arc::clone(&storage), allow: None },
        )]);
        let server = Arc::new(ZeoServer::new(config, storages));
        let path = self.path();
        let thread = std::thread::spawn(move || serve(&server, &path, &ready, stopped));
        listening.recv().unwrap();
        self.running = Some(Running { storage, stop, thread });
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

fn serve(
    server: &Arc<ZeoServer>,
    path: &Path,
    ready: &std::sync::mpsc::Sender<()>,
    mut stopped: oneshot::Receiver<()>,
) {
    let served = Arc::clone(server);
    let make = move |_| ZeoService::new(Arc::clone(&served));
    let options = WorkerOptions { count: 2, ..WorkerOptions::default() };
    let workers = Workers::start(options, make).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let address = Address::Unix(path.to_owned());
        let listener = Bound::bind(&address).await.unwrap().listen().unwrap();
        ready.send(()).unwrap();
        loop {
            tokio::select! {
                (incoming, peer) = listener.accept() => workers.assign(incoming, peer),
                _ = &mut stopped => break,
            }
        }
    });
    workers.stop(Duration::from_secs(1));
}

/// Commits one revision of each of these objects, whatever was there.
pub(crate) fn commit(client: &Client, objects: &[(u64, &str)]) -> Tid {
    let mut transaction = client.begin(&TransactionOptions::default()).unwrap();
    for (oid, data) in objects {
        let oid = Oid(*oid);
        let serial = client.load_current(oid).map_or(Tid::ZERO, |revision| revision.serial);
        transaction.store(oid, serial, record(data)).unwrap();
    }
    assert_eq!(transaction.vote().unwrap(), zodium_client::Voted::default());
    transaction.finish(|_| ()).unwrap()
}

/// The extension of the metadata of [`commit_root`].
pub(crate) fn extension() -> Value<'static> {
    Value::dict([("key", 7.into())])
}

/// Commits the root object, with all metadata that a transaction may have.
pub(crate) fn commit_root(client: &Client) -> Tid {
    let options = TransactionOptions {
        user: b"user".to_vec(),
        description: b"something".to_vec(),
        extension: extension(),
        status: 'p',
        ..TransactionOptions::default()
    };
    let mut transaction = client.begin(&options).unwrap();
    transaction.store(Oid(0), Tid::ZERO, record("root")).unwrap();
    transaction.vote().unwrap();
    transaction.finish(|_| ()).unwrap()
}

/// A data record: two pickles.
pub(crate) fn record(data: &str) -> Bytes {
    let length = u8::try_from(data.len()).unwrap();
    let state = [b"N.U", &[length][..], data.as_bytes(), b"."].concat();
    Bytes::from(state)
}
