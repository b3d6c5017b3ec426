//! A cluster in this process: a master, storages and a client.

use std::net::TcpListener;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tempfile::TempDir;
use tokio::runtime::Builder;
use tokio::sync::oneshot::{self, Receiver, Sender};
use zodium_neo::Address;
use zodium_neo_client::{NeoStorage, Options};
use zodium_neo_master::Settings as MasterSettings;
use zodium_neo_server::{LightWatch, NodeWatch, ServeMaster, ServeNode, serve, serve_master};
use zodium_neo_storage::{RECORDS_BYTES_MAX, Settings, TRANSACTION_BYTES_MAX};
use zodium_sql::{Location, NodeDatabase, NodeOptions};
use zodium_storage::Storage;

const CLUSTER: &str = "test";
/// Longest wait of a call. A claim fails that waits longer.
const WAIT: Duration = Duration::from_secs(10);

/// The shape of a cluster.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) storages: u32,
    pub(crate) partitions: u32,
    pub(crate) replicas: u32,
}

/// The nodes of a cluster, each on a thread of its own. They end when this is dropped.
pub(crate) struct Nodes {
    running: Vec<(Sender<()>, JoinHandle<()>)>,
    _folder: TempDir,
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for (stop, node) in self.running.drain(..) {
            drop(stop);
            // One that has panicked has said so.
            let _ = node.join();
        }
    }
}

/// An empty cluster, opened as its client.
pub(crate) fn open(shape: Shape) -> (Arc<dyn Storage>, Nodes) {
    // In memory where that is possible: none of the claims is about durability.
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let (listener, address) = listen();
    let own = address.clone();
    let mut running = vec![run(async move |stop| {
        serve_master(master(shape, listener, own), ended(stop)).await.unwrap();
    })];
    for number in 0..shape.storages {
        let location = folder.path().join(format!("{number}.sqlite")).into();
        let master = address.clone();
        running.push(run(async move |stop| {
            serve(storage(&location, master, number), ended(stop)).await.unwrap();
        }));
    }
    let master = zodium_types::Address::Tcp { host: address.host, port: address.port };
    let options = Options { wait: WAIT, ..Options::new(CLUSTER.to_owned(), vec![master]) };
    let client = NeoStorage::open(options).unwrap();
    (Arc::new(client), Nodes { running, _folder: folder })
}

fn listen() -> (TcpListener, Address) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().into();
    (listener, address)
}

/// Runs a node on a thread of its own, until the sender is dropped.
fn run(serve: impl AsyncFnOnce(Receiver<()>) + Send + 'static) -> (Sender<()>, JoinHandle<()>) {
    let (stop, stopped) = oneshot::channel();
    let node = thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(serve(stopped));
    });
    (stop, node)
}

async fn ended(stop: Receiver<()>) {
    // The sender only ever goes.
    let _ = stop.await;
}

fn master(shape: Shape, listener: TcpListener, address: Address) -> ServeMaster {
    let settings = MasterSettings {
        cluster: CLUSTER.to_owned(),
        masters: vec![address.clone()],
        address,
        node: None,
        replicas: shape.replicas,
        partitions: shape.partitions,
        autostart: Some(shape.storages),
        upstream: None,
        begins_as_backup: false,
    };
    let watch = LightWatch::default();
    ServeMaster { settings, listener, tls: None, watch, masters_told: None }
}

fn storage(location: &Location, master: Address, number: u32) -> ServeNode {
    let options =
        NodeOptions { location, cluster: CLUSTER, keep_equal_data_once: false, room_bytes: 0 };
    let (database, saved) = NodeDatabase::open(&options).unwrap();
    let (listener, address) = listen();
    let settings = Settings {
        cluster: CLUSTER.to_owned(),
        masters: vec![master],
        address,
        topology: vec![number.to_string()],
        packs: true,
        drops_partitions: true,
        transaction_bytes_max: TRANSACTION_BYTES_MAX,
        records_bytes_max: RECORDS_BYTES_MAX,
    };
    let (_, watched) = NodeWatch::new();
    ServeNode {
        settings,
        saved,
        store: Arc::new(database),
        listener,
        tls: None,
        asks_new_id: false,
        watched,
        masters_told: None,
    }
}
