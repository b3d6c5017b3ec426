//! `GET key` and `SET key value`: most of the requests of most clients. They are executed without a
//! [`zodium_keyspace::Hold`] while only their answers matter.
//!
//! Invariant: the answer and all effects are those of the general way. A request that may have
//! others, such as a message to a client that watches keys, is left to that.

use std::sync::LazyLock;
use std::sync::atomic::Ordering;

use zodium_keyspace::{Place, ReadableKey, WritableKey};
use zodium_resp::Arguments;

use crate::client::{Client, Replies};
use crate::commands::{self, Command};
use crate::local::LocalServer;
use crate::reply::Reply;
use crate::server::Server;
use crate::storages::PREFIX;

static GET: LazyLock<Option<&Command>> = LazyLock::new(|| commands::named(b"get"));
static SET: LazyLock<Option<&Command>> = LazyLock::new(|| commands::named(b"set"));

/// Executes a request, and appends the answer to the client's output; `false` if that is left to
/// the general way. Nothing has happened then. `place` is that of its key, if that is known.
pub(crate) fn execute(
    local: &LocalServer,
    client: &Client,
    arguments: Arguments,
    place: Option<Place>,
) -> bool {
    let (server, name) = (&*local.server, arguments.word(0));
    let command = match arguments.len() {
        2 if name.eq_ignore_ascii_case(b"get") => *GET,
        3 if name.eq_ignore_ascii_case(b"set") => *SET,
        _ => None,
    };
    let (Some(command), key) = (command, arguments.word(1)) else { return false };
    if !client.is_plain() || !is_plain(server, key) {
        return false;
    }
    let place = place.unwrap_or_else(|| server.keyspace.place(key));
    let (database, now) = (client.database.get(), local.clock.time());
    let keyspace = &server.keyspace;
    match arguments.len() {
        2 => keyspace
            .try_read_key(&local.reader, place, database, key, now)
            .is_some_and(|key| get(local, client, command, &key)),
        _ => keyspace
            .try_lock_key(place, database, key, now)
            .is_some_and(|key| set(local, client, command, key, arguments.word(2))),
    }
}

fn get(local: &LocalServer, client: &Client, command: &'static Command, key: &ReadableKey) -> bool {
    let server = &*local.server;
    // A value of another type is an error, of the general way.
    let Ok(found) = key.read_string(!client.keeps_uses.get()) else { return false };
    client.note_command(command);
    local.count_command();
    let counted = if found.is_some() { (1, 0) } else { (0, 1) };
    local.statistics(|of| of.count_found(counted));
    if let Some(keeper) = server.log.keeper() {
        local.note_position(client, key.unsynced(keeper.safe()));
    }
    let outcome = local.counted(command, || {
        let mut output = client.link.output();
        let mut reply = Reply::to_link(&mut output, client.version.get());
        match found {
            Some(text) => reply.stored(text),
            None => reply.null(),
        }
        Ok(())
    });
    outcome.is_ok()
}

fn set(
    local: &LocalServer,
    client: &Client,
    command: &'static Command,
    mut key: WritableKey,
    value: &[u8],
) -> bool {
    let server = &*local.server;
    // Looked at under the lock: clients that read the key, to be told of changes, hold it too. That
    // a key has gone is told as well, and a large value is freed elsewhere.
    if tells_changes(server) || key.has_gone() || key.is_large() {
        return false;
    }
    client.note_command(command);
    local.count_command();
    server.statistics.changes.fetch_add(1, Ordering::Relaxed);
    let outcome = local.counted(command, || {
        key.put_string(value, None);
        Reply::to_link(&mut client.link.output(), client.version.get()).ok();
        Ok(())
    });
    outcome.is_ok()
}

impl Client {
    /// Whether its requests are executed at once, and are answered.
    fn is_plain(&self) -> bool {
        self.is_authenticated.get()
            && self.queue.borrow().is_none()
            && self.replies.get() == Replies::On
            && !self.is_caching.get()
            && self.tracked.borrow().is_none()
            && !self.is_restricted()
    }
}

/// Whether a request for a key concerns nothing but the keyspace.
fn is_plain(server: &Server, key: &[u8]) -> bool {
    let is_alone = !server.clients.is_any_monitor() && !server.scripts.running.is_any();
    is_alone && !(key.starts_with(PREFIX) && server.beside.is_attached())
}

/// Whether anything is to be done about a change besides the change.
fn tells_changes(server: &Server) -> bool {
    server.log.keeper().is_some()
        || server.tracking.is_any()
        || server.publishing.events().is_any()
        || server.settings.memory_max.load(Ordering::Relaxed) != 0
}
