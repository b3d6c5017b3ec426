//! `zodium explore`.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use serde_json::json;
use tokio::runtime::{Builder, Runtime};
use zodium_client::{Client, ClientError, Options, TransactionOptions};
use zodium_explorer::{Explorer, ExplorerOptions, Hosts, Undo};
use zodium_http::{HttpServer, Listener};
use zodium_types::{Address, Tid};

use super::open::StorageArguments;
use super::storage_name::StorageName;
use crate::listen_error::cannot_listen;
use crate::serve::signals::{Signals, Wish};
use crate::streams::{complain, print};

/// Options of `zodium explore`.
#[derive(Debug, Args)]
pub(crate) struct ExploreOptions {
    #[command(flatten)]
    storage: StorageArguments,

    /// Where to listen: HOST:PORT or PORT; port 0 lets the system choose one
    ///
    /// There is no password: each program that reaches the address can read the whole database.
    #[arg(short, long, value_name = "HOST:PORT", default_value = "127.0.0.1:8180")]
    address: Address,

    /// Offer to undo transactions, of a storage on a server
    #[arg(long)]
    allow_undo: bool,

    /// Print where it listens as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(options: &ExploreOptions) -> Result<ExitCode> {
    let (name, how) = (options.storage.alone()?, options.storage.how());
    let (storage, undo) = match (&name, options.allow_undo) {
        (StorageName::Server(_), true) => {
            let (storage, client) = how.read_and_write(&name)?;
            (storage, Some(Arc::new(ServerUndo(client)) as Arc<dyn Undo>))
        }
        (_, true) => bail!(
            "--allow-undo needs a server: serve the storage with `zodium serve`, and give \
             zeo://HOST:PORT"
        ),
        (_, false) => (how.read(&name)?.storage, None),
    };
    // Before anyone can connect, and then stop the process.
    let mut end = End::catch()?;
    let address = &Listener::meant(&options.address);
    let listener = Listener::bind(address).map_err(|error| cannot_listen(address, error))?;
    let bound = listener.address();
    let hosts = Hosts::new(host_of(address));
    let shown = match &name {
        // Shorter than the name that the server's client has for ZODB's tools.
        StorageName::Server(options) => place_of(options),
        _ => storage.name(),
    };
    let explorer = Explorer::new(ExplorerOptions { storage, name: shown.clone(), hosts, undo });
    let server = HttpServer::start(listener, "explorer", Arc::new(explorer));
    let server = server.with_context(|| format!("cannot serve pages on {address}"))?;
    announce(&shown, bound, options.json);
    end.wait();
    drop(server);
    Ok(ExitCode::SUCCESS)
}

/// The addresses of a storage on a server, and its name if it is not the usual one.
fn place_of(options: &Options) -> String {
    let addresses: Vec<_> = options.addresses.iter().map(Address::to_string).collect();
    match (addresses.join(", "), options.storage.as_str()) {
        (addresses, "1") => addresses,
        (addresses, name) => format!("{addresses}/{name}"),
    }
}

/// Prints where it listens. It serves on if nothing reads that.
fn announce(name: &str, bound: SocketAddr, json: bool) {
    let url = format!("http://{bound}/");
    let printed = match json {
        true => print(&format!("{}\n", json!({ "name": name, "url": url }))),
        false => print(&format!("Exploring {name} at {url}\n")),
    };
    if let Err(error) = printed {
        complain!("zodium: {error:#}; exploring {name} at {url}");
    }
    if !bound.ip().is_loopback() {
        complain!("zodium: {bound} is not only for this machine, and there is no password");
    }
}

fn host_of(address: &Address) -> &str {
    match address {
        Address::Tcp { host, .. } => host,
        Address::Unix(_) => "",
    }
}

/// The signal that ends the process.
struct End {
    runtime: Runtime,
    signals: Signals,
}

impl End {
    fn catch() -> Result<End> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let signals = runtime.block_on(async { Signals::catch().context("cannot catch signals") });
        Ok(End { runtime, signals: signals? })
    }

    /// Waits for it.
    fn wait(&mut self) {
        let End { runtime, signals } = self;
        runtime.block_on(async { while !matches!(signals.next().await, Wish::End(_)) {} });
    }
}

/// Undoes transactions through a server.
struct ServerUndo(Arc<Client>);

impl Undo for ServerUndo {
    fn undo(&self, tid: Tid) -> Result<Tid, String> {
        self.undo_on_server(tid).map_err(|error| error.to_string())
    }
}

impl ServerUndo {
    fn undo_on_server(&self, tid: Tid) -> Result<Tid, ClientError> {
        let description = format!("undo of transaction {tid} with zodium explore").into_bytes();
        let options = TransactionOptions { description, ..TransactionOptions::default() };
        let mut transaction = self.0.begin(&options)?;
        // As FileStorage and its servers name transactions in their undo logs.
        transaction.undo(STANDARD.encode(tid.to_bytes()).as_bytes())?;
        transaction.vote()?;
        transaction.finish(|_| ())
    }
}
