//! Serves a master of a cluster.

use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use zodium_neo::{Address, ConnectionId, Output, Packet};
use zodium_neo_master::{Master, Settings, Status};

use crate::light::{LightNode, LightWatch, ServeLight, serve_light};

/// A master to serve.
pub type ServeMaster = ServeLight<Settings, Status>;

/// A view of a master for other threads: the monitor's. Clones share it.
pub type MasterWatch = LightWatch<Status>;

/// Serves a master until its cluster, or `stop`, ends it. Answers that were given are sent then.
/// Must run in a current-thread runtime of tokio.
///
/// # Errors
/// When the system refuses the listener.
pub async fn serve_master(master: ServeMaster, stop: impl Future<Output = ()>) -> io::Result<()> {
    let masters = master.settings.masters.clone();
    serve_light(master, masters, |settings| Clocked(Master::new(settings)), stop).await
}

/// A master that is told the time before each event.
struct Clocked(Master);

impl Clocked {
    fn now(&mut self) -> &mut Master {
        // A clock before 1970 counts as 1970.
        self.0.set_time(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
        &mut self.0
    }
}

impl LightNode for Clocked {
    type Status = Status;

    fn start(&mut self) {
        self.now().start();
    }

    fn accepted(&mut self, name: String) -> ConnectionId {
        self.now().accepted(name)
    }

    fn connected(&mut self, connection: ConnectionId) {
        self.now().connected(connection);
    }

    fn received(&mut self, connection: ConnectionId, packet: Packet<'_>) {
        self.now().received(connection, packet);
    }

    fn closed(&mut self, connection: ConnectionId) {
        self.now().closed(connection);
    }

    fn woken(&mut self, alarm: u64) {
        self.now().woken(alarm);
    }

    fn take_outputs(&mut self) -> Vec<Output> {
        self.0.take_outputs()
    }

    fn status(&mut self) -> Status {
        self.0.status()
    }

    fn masters(&self) -> &[Address] {
        self.0.masters()
    }
}
