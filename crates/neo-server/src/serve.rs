//! Serves a node from its start to its end.

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use thiserror::Error;
use tokio::task::LocalSet;
use zodium_neo_storage::{DatabaseError, Exit, Node, Saved, Settings, Store};
use zodium_net::{Bound, inbox};

use crate::driver::{Driver, Observers};
use crate::known_masters::MastersTold;
use crate::links::KEEPALIVE;
use crate::reader::Reader;
use crate::tls::NodeTls;
use crate::watch::Watched;
use crate::writer::Writer;

/// A node to serve.
pub struct ServeNode {
    /// Its options.
    pub settings: Settings,
    /// What its database knows.
    pub saved: Saved,
    /// Its database.
    pub store: Arc<dyn Store>,
    /// Where it listens, at the address of its settings.
    pub listener: std::net::TcpListener,
    /// Its certificates; `None`: the cluster has no TLS.
    pub tls: Option<Arc<NodeTls>>,
    /// Ask the master for a new id, for a database that is the copy of another node's. The master
    /// ends the node then.
    pub asks_new_id: bool,
    /// The node's end of a view, for other threads.
    pub watched: Watched,
    /// Told when other masters are known than those of the settings.
    pub masters_told: Option<MastersTold>,
}

/// Why a node has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The master, or the caller, has stopped it.
    Stopped,
    /// The master has removed it: the database is to be erased.
    Removed,
}

/// Why a node cannot go on.
#[derive(Debug, Error)]
pub enum NodeError {
    /// The database failed.
    #[error("the database failed, so the node ends: {0}")]
    Database(#[from] DatabaseError),
    /// The system refuses something.
    #[error("cannot start the node: {0}")]
    Io(#[from] io::Error),
}

/// Serves a node until the master, or `stop`, ends it. Everything that was asked of the database is
/// done then. Must run in a current-thread runtime of tokio.
///
/// # Errors
/// When the database fails.
pub async fn serve(node: ServeNode, stop: impl Future<Output = ()>) -> Result<Ended, NodeError> {
    LocalSet::new().run_until(serve_here(node, stop)).await
}

async fn serve_here(serve: ServeNode, stop: impl Future<Output = ()>) -> Result<Ended, NodeError> {
    let ServeNode { settings, saved, store, listener, tls, .. } = serve;
    let Watched { notes, questions, links } = serve.watched;
    let listener = Bound::inherited_tcp(listener)?.listen()?.with_keepalive(KEEPALIVE);
    let listener = match &tls {
        Some(tls) => listener.with_tls(tls.accepting()),
        None => listener,
    };
    let (sender, done) = inbox();
    let writer = Writer::start(Arc::clone(&store), sender)?;
    let mut node = Node::new(settings, saved);
    if serve.asks_new_id {
        node.ask_new_id();
    }
    let observers = Observers { notes, links, masters_told: serve.masters_told };
    let driver = Driver::new(node, tls, Reader::new(store), writer, observers);
    tokio::task::spawn_local(Rc::clone(&driver).answer(questions));
    tokio::task::spawn_local(Rc::clone(&driver).take_done(done));
    tokio::task::spawn_local(Rc::clone(&driver.links).accept(listener));
    driver.start();
    let ending = tokio::select! {
        () = driver.ends.notified() => driver.take_ending(),
        () = stop => None,
    };
    if let Some(writer) = driver.writer.borrow_mut().take() {
        writer.finish();
    }
    match ending {
        Some(Err(error)) => Err(error.into()),
        Some(Ok(Exit::Erase)) => Ok(Ended::Removed),
        Some(Ok(Exit::Stopped)) | None => Ok(Ended::Stopped),
    }
}
