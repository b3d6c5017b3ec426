//! Serves a master of a cluster from its start to its end.

use std::cell::{RefCell, RefMut};
use std::io;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::LocalSet;
use zodium_neo::{Address, ConnectionId, Packet};
use zodium_neo_master::{Master, Output, Settings, Status};
use zodium_net::{Bound, LinkMetrics};

use crate::admin::send_last;
use crate::driver::MastersTold;
use crate::links::{Events, KEEPALIVE, Links};
use crate::tls::NodeTls;

/// A master to serve.
pub struct ServeMaster {
    /// Its options.
    pub settings: Settings,
    /// Where it listens, at the address of its settings.
    pub listener: std::net::TcpListener,
    /// Its certificates; `None`: the cluster has no TLS.
    pub tls: Option<NodeTls>,
    /// A view of it for other threads.
    pub watch: MasterWatch,
    /// Told when other masters are known than those of the settings.
    pub masters_told: Option<MastersTold>,
}

/// A view of a master for other threads: the monitor's. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct MasterWatch {
    status: Arc<Mutex<Status>>,
    links: Arc<LinkMetrics>,
}

impl MasterWatch {
    /// How the master is.
    pub fn status(&self) -> Status {
        self.status.lock().clone()
    }

    /// The counters of its connections.
    pub fn links(&self) -> &LinkMetrics {
        &self.links
    }
}

/// Serves a master until its cluster, or `stop`, ends it. Answers that were given are sent then.
/// Must run in a current-thread runtime of tokio.
///
/// # Errors
/// When the system refuses the listener.
pub async fn serve_master(master: ServeMaster, stop: impl Future<Output = ()>) -> io::Result<()> {
    LocalSet::new().run_until(serve_here(master, stop)).await
}

async fn serve_here(master: ServeMaster, stop: impl Future<Output = ()>) -> io::Result<()> {
    let ServeMaster { settings, listener, tls, watch, masters_told } = master;
    let listener = Bound::inherited_tcp(listener)?.listen()?.with_keepalive(KEEPALIVE);
    let listener = match &tls {
        Some(tls) => listener.with_tls(tls.accepting()),
        None => listener,
    };
    let masters = masters_told.map(|told| (told, RefCell::new(settings.masters.clone())));
    let driver = Rc::new_cyclic(|this: &Weak<Driver>| {
        let events: Weak<dyn Events> = this.clone();
        let links = Links::new(events, tls, Arc::clone(&watch.links));
        let master = RefCell::new(Master::new(settings));
        Driver { master, links, watch, masters, ends: Notify::new() }
    });
    let accepting = tokio::task::spawn_local(Rc::clone(&driver.links).accept(listener));
    driver.now().start();
    driver.apply();
    tokio::select! {
        () = driver.ends.notified() => {}
        () = stop => {}
    }
    accepting.abort();
    send_last(&driver.links).await;
    Ok(())
}

/// The master with its connections. All of it is on one thread.
struct Driver {
    master: RefCell<Master>,
    links: Rc<Links>,
    watch: MasterWatch,
    /// Told when other masters are known, and those that were told last.
    masters: Option<(MastersTold, RefCell<Vec<Address>>)>,
    ends: Notify,
}

impl Driver {
    /// The master, after it was told the time.
    fn now(&self) -> RefMut<'_, Master> {
        let mut master = self.master.borrow_mut();
        // A clock before 1970 counts as 1970.
        master.set_time(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
        master
    }

    /// Does what the master asks for.
    fn apply(&self) {
        loop {
            let outputs = self.master.borrow_mut().take_outputs();
            if outputs.is_empty() {
                break;
            }
            outputs.into_iter().for_each(|output| self.apply_one(output));
        }
        let mut master = self.master.borrow_mut();
        *self.watch.status.lock() = master.status();
        if let Some((told, known)) = &self.masters
            && known.borrow()[..] != *master.masters()
        {
            *known.borrow_mut() = master.masters().to_vec();
            told(master.masters());
        }
    }

    fn apply_one(&self, output: Output) {
        match output {
            Output::Dial { connection, address, after } => {
                self.links.dial(connection, address, after);
            }
            Output::Send { connection, packet } => self.links.send(connection, packet),
            Output::Close { connection } => {
                if self.links.close(connection) {
                    self.now().closed(connection);
                }
            }
            Output::Exit => self.ends.notify_one(),
        }
    }
}

impl Events for Driver {
    fn accepted(&self, peer: &str) -> ConnectionId {
        self.now().accepted(peer.to_owned())
    }

    fn connected(&self, connection: ConnectionId) {
        self.now().connected(connection);
    }

    fn received(&self, connection: ConnectionId, packet: Packet<'_>) {
        self.now().received(connection, packet);
    }

    fn handled(&self) {
        self.apply();
    }

    fn lost(&self, connection: ConnectionId) {
        self.now().closed(connection);
        self.apply();
    }
}
