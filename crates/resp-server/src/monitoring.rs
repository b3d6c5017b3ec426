//! What clients that monitor see: a line for each command that is executed.
//!
//! Key decision: a line has no passwords, and commands of administrators have no lines, since a
//! client that monitors may be less trusted than the client that it sees.

use std::sync::Arc;

use zodium_resp::Arguments;

use crate::call::is;
use crate::client::Client;
use crate::clients::Clients;
use crate::commands::{Command, flags};
use crate::{Letter, LocalServer};

/// What stands for a password.
const REDACTED: &str = "\"(redacted)\"";

/// Executes a command of a client, and shows it. As a rule it is shown afterwards, with the
/// database that it may have selected; a script is shown before the commands that it calls.
pub(crate) fn shown<T>(
    local: &LocalServer,
    client: &Client,
    (command, arguments): (&Command, Arguments),
    execute: impl FnOnce() -> T,
) -> T {
    let clients = &local.server.clients;
    let show = || {
        if is_shown(clients, command) {
            let sender = Sender { database: client.database.get(), name: client.link.peer() };
            send(clients, local.clock.time(), &sender, arguments);
        }
    };
    if command.is_script() {
        show();
        return execute();
    }
    let outcome = execute();
    show();
    outcome
}

/// Where a command comes from, as a line has it.
pub(crate) struct Sender<'a> {
    pub(crate) database: usize,
    /// An address, or what has executed it in place of a client.
    pub(crate) name: &'a str,
}

/// Shows a command that no client has sent by itself. `now` is in milliseconds since 1970.
pub(crate) fn show(
    clients: &Clients,
    now: u64,
    sender: &Sender,
    (command, arguments): (&Command, Arguments),
) {
    if is_shown(clients, command) {
        send(clients, now, sender, arguments);
    }
}

fn is_shown(clients: &Clients, command: &Command) -> bool {
    // The flag of scripts says that they are shown in their own way.
    let is_hidden =
        command.has(flags::ADMIN) || command.has(flags::SKIP_MONITOR) && !command.is_script();
    clients.is_any_monitor() && !is_hidden
}

/// Sends a line to all workers.
fn send(clients: &Clients, now: u64, sender: &Sender, arguments: Arguments) {
    let (seconds, micros) = (now / 1000, now % 1000 * 1000);
    let mut line = format!("{seconds}.{micros:06} [{} {}]", sender.database, sender.name);
    let secrets = secrets(arguments);
    for (place, word) in arguments.iter().enumerate() {
        line.push(' ');
        match secrets.contains(&place) {
            true => line.push_str(REDACTED),
            false => push_quoted(&mut line, word),
        }
    }
    let line: Arc<str> = line.into();
    clients.send_to_all(|| Letter::Monitored { line: Arc::clone(&line) });
}

/// The places of users and passwords among the words of a request.
fn secrets(arguments: Arguments) -> Vec<usize> {
    let is = |place, name| is(arguments.word(place), name);
    if is(0, "auth") {
        return (1..arguments.len()).collect();
    }
    let mut secrets = Vec::new();
    if is(0, "hello") {
        let mut place = 2;
        while place < arguments.len() {
            place += if is(place, "auth") {
                secrets.extend([place + 1, place + 2]);
                3
            } else {
                1 + usize::from(is(place, "setname"))
            };
        }
    }
    secrets
}

/// Appends a word in quotes, as the stock server writes it.
fn push_quoted(line: &mut String, word: &[u8]) {
    line.push('"');
    for byte in word {
        match byte {
            b'\\' | b'"' => line.extend(['\\', char::from(*byte)]),
            b'\n' => line.push_str("\\n"),
            b'\r' => line.push_str("\\r"),
            b'\t' => line.push_str("\\t"),
            0x07 => line.push_str("\\a"),
            0x08 => line.push_str("\\b"),
            b' '..=b'~' => line.push(char::from(*byte)),
            other => line.push_str(&format!("\\x{other:02x}")),
        }
    }
    line.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_as_the_stock_server_does() {
        let mut line = String::new();
        push_quoted(&mut line, b"a\r\n\t\x07\x08\x00\"\\'\xff ~\x7f");
        assert_eq!(line, r#""a\r\n\t\a\b\x00\"\\'\xff ~\x7f""#);
    }
}
