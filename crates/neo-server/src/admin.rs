//! Serves the admin of a cluster from its start to its end.

use std::cell::RefCell;
use std::io;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::LocalSet;
use tokio::time::{sleep, timeout};
use zodium_neo::{Address, ConnectionId, Packet};
use zodium_neo_admin::{Admin, Output, Settings, Status};
use zodium_net::{Bound, LinkMetrics};

use crate::driver::MastersTold;
use crate::links::{Events, KEEPALIVE, Links};
use crate::tls::NodeTls;

/// Longest time to send the last answers.
const FAREWELL_TIME_MAX: Duration = Duration::from_secs(1);
/// Pause before it is looked again whether they are sent.
const FAREWELL_PAUSE: Duration = Duration::from_millis(5);

/// An admin to serve.
pub struct ServeAdmin {
    /// Its options.
    pub settings: Settings,
    /// Where it listens, at the address of its settings.
    pub listener: std::net::TcpListener,
    /// Its certificates; `None`: the cluster has no TLS.
    pub tls: Option<NodeTls>,
    /// A view of it for other threads.
    pub watch: AdminWatch,
    /// Told when other masters are known than those of the settings.
    pub masters_told: Option<MastersTold>,
}

/// A view of an admin for other threads: the monitor's. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct AdminWatch {
    status: Arc<Mutex<Status>>,
    links: Arc<LinkMetrics>,
}

impl AdminWatch {
    /// How the admin is.
    pub fn status(&self) -> Status {
        self.status.lock().clone()
    }

    /// The counters of its connections.
    pub fn links(&self) -> &LinkMetrics {
        &self.links
    }
}

/// Serves an admin until its cluster, or `stop`, ends it. Answers that were given are sent then.
/// Must run in a current-thread runtime of tokio.
///
/// # Errors
/// When the system refuses the listener.
pub async fn serve_admin(admin: ServeAdmin, stop: impl Future<Output = ()>) -> io::Result<()> {
    LocalSet::new().run_until(serve_here(admin, stop)).await
}

async fn serve_here(admin: ServeAdmin, stop: impl Future<Output = ()>) -> io::Result<()> {
    let ServeAdmin { settings, listener, tls, watch, masters_told } = admin;
    let listener = Bound::inherited_tcp(listener)?.listen()?.with_keepalive(KEEPALIVE);
    let listener = match &tls {
        Some(tls) => listener.with_tls(tls.accepting()),
        None => listener,
    };
    let masters = masters_told.map(|told| (told, RefCell::new(settings.masters.clone())));
    let driver = Rc::new_cyclic(|this: &Weak<Driver>| {
        let events: Weak<dyn Events> = this.clone();
        let links = Links::new(events, tls, Arc::clone(&watch.links));
        let admin = RefCell::new(Admin::new(settings));
        Driver { this: this.clone(), admin, links, watch, masters, ends: Notify::new() }
    });
    let accepting = tokio::task::spawn_local(Rc::clone(&driver.links).accept(listener));
    driver.admin.borrow_mut().start();
    driver.apply();
    tokio::select! {
        () = driver.ends.notified() => {}
        () = stop => {}
    }
    accepting.abort();
    send_last(&driver.links).await;
    Ok(())
}

/// Waits until what there is to send is sent, for some time.
pub(crate) async fn send_last(links: &Links) {
    let sent = async {
        while links.unsent_bytes() > 0 {
            sleep(FAREWELL_PAUSE).await;
        }
    };
    // A peer that does not read misses the end of what it was told.
    let _ = timeout(FAREWELL_TIME_MAX, sent).await;
}

/// The admin with its connections. All of it is on one thread.
struct Driver {
    /// Itself, for tasks.
    this: Weak<Driver>,
    admin: RefCell<Admin>,
    links: Rc<Links>,
    watch: AdminWatch,
    /// Told when other masters are known, and those that were told last.
    masters: Option<(MastersTold, RefCell<Vec<Address>>)>,
    ends: Notify,
}

impl Driver {
    /// Does what the admin asks for.
    fn apply(&self) {
        loop {
            let outputs = self.admin.borrow_mut().take_outputs();
            if outputs.is_empty() {
                break;
            }
            outputs.into_iter().for_each(|output| self.apply_one(output));
        }
        let admin = self.admin.borrow();
        *self.watch.status.lock() = admin.status();
        if let Some((told, known)) = &self.masters
            && known.borrow()[..] != *admin.masters()
        {
            *known.borrow_mut() = admin.masters().to_vec();
            told(admin.masters());
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
                    self.admin.borrow_mut().closed(connection);
                }
            }
            Output::Wake { alarm, after } => {
                let this = self.this.clone();
                tokio::task::spawn_local(async move {
                    sleep(after).await;
                    if let Some(driver) = this.upgrade() {
                        driver.admin.borrow_mut().woken(alarm);
                        driver.apply();
                    }
                });
            }
            Output::Exit => self.ends.notify_one(),
        }
    }
}

impl Events for Driver {
    fn accepted(&self, peer: &str) -> ConnectionId {
        self.admin.borrow_mut().accepted(peer.to_owned())
    }

    fn connected(&self, connection: ConnectionId) {
        self.admin.borrow_mut().connected(connection);
    }

    fn received(&self, connection: ConnectionId, packet: Packet<'_>) {
        self.admin.borrow_mut().received(connection, packet);
    }

    fn handled(&self) {
        self.apply();
    }

    fn lost(&self, connection: ConnectionId) {
        self.admin.borrow_mut().closed(connection);
        self.apply();
    }
}
