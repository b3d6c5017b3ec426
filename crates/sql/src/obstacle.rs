//! Whether the server of a database can be reached, for monitors.

use std::thread;

use crate::connection::{self, Purpose};
use crate::place::Place;

/// Why the server of the database cannot be reached, if so. Then a thread tries it, so that a
/// monitor learns of the end of it although no client asks for anything.
pub(crate) fn obstacle(place: &Place) -> Option<String> {
    let server = place.server()?;
    let reason = server.obstacle()?;
    if server.may_look() {
        let looking = place.clone();
        let look = move || {
            let opened = connection::open(&looking, Purpose::Read);
            // What comes of it, the connection notes.
            let _ = opened.map(|one| one.query_row("SELECT 1", [], |row| row.get::<i64>(0)));
            if let Some(server) = looking.server() {
                server.has_looked();
            }
        };
        let started = thread::Builder::new().name("database-look".to_owned()).spawn(look);
        if started.is_err() {
            server.has_looked();
        }
    }
    Some(format!("the database {} cannot be reached: {reason}", place.path().display()))
}
