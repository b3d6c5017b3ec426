//! Serves the admin of a cluster.

use std::io;

use zodium_neo::{Address, ConnectionId, Packet};
use zodium_neo_admin::{Admin, Output, Settings, Status};

use crate::light::{LightNode, LightWatch, ServeLight, Task, serve_light};

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

    fn take_tasks(&mut self) -> Vec<Task> {
        let outputs = Admin::take_outputs(self);
        outputs.into_iter().map(task).collect()
    }

    fn status(&mut self) -> Status {
        Admin::status(self)
    }

    fn masters(&self) -> &[Address] {
        Admin::masters(self)
    }
}

fn task(output: Output) -> Task {
    match output {
        Output::Dial { connection, address, after } => Task::Dial { connection, address, after },
        Output::Send { connection, packet } => Task::Send { connection, packet },
        Output::Close { connection } => Task::Close { connection },
        Output::Wake { alarm, after } => Task::Wake { alarm, after },
        Output::Exit => Task::Exit,
    }
}
