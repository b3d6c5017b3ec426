//! Serves the admin of a cluster.

use std::io;

use zodium_neo::{Address, ConnectionId, Output, Packet};
use zodium_neo_admin::{Admin, Settings, Status};

use crate::light::{LightNode, LightWatch, ServeLight, serve_light};

/// The admin to serve.
pub type ServeAdmin = ServeLight<Settings, Status>;

/// A view of the admin for other threads: the monitor's. Clones share it.
pub type AdminWatch = LightWatch<Status>;

/// Serves the admin until its cluster, or `stop`, ends it. Answers that were given are sent then.
/// Must run in a current-thread runtime of tokio.
///
/// # Errors
/// When the system refuses the listener.
pub async fn serve_admin(admin: ServeAdmin, stop: impl Future<Output = ()>) -> io::Result<()> {
    let masters = admin.settings.masters.clone();
    serve_light(admin, masters, Admin::new, stop).await
}

impl LightNode for Admin {
    type Status = Status;

    fn start(&mut self) {
        Admin::start(self);
    }

    fn accepted(&mut self, name: String) -> ConnectionId {
        Admin::accepted(self, name)
    }

    fn connected(&mut self, connection: ConnectionId) {
        Admin::connected(self, connection);
    }

    fn received(&mut self, connection: ConnectionId, packet: Packet<'_>) {
        Admin::received(self, connection, packet);
    }

    fn closed(&mut self, connection: ConnectionId) {
        Admin::closed(self, connection);
    }

    fn woken(&mut self, alarm: u64) {
        Admin::woken(self, alarm);
    }

    fn take_outputs(&mut self) -> Vec<Output> {
        Admin::take_outputs(self)
    }

    fn status(&mut self) -> Status {
        Admin::status(self)
    }

    fn masters(&self) -> &[Address] {
        Admin::masters(self)
    }
}
