//! `CLIENT PAUSE`: for a time no commands are taken, or none that write.
//!
//! A command that comes meanwhile stays in its link's input, and its client takes no requests until
//! the pause ends. So nothing of it has happened yet when it ends.

use std::rc::{Rc, Weak};
use std::time::Duration;

use zodium_keyspace::now;
use zodium_resp::Arguments;

use crate::call::{Call, is};
use crate::client::Client;
use crate::commands::{self, Command, flags};
use crate::fail::{Fail, Outcome, SYNTAX};
use crate::local::{Letter, LocalServer};
use crate::pause::Pause;
use crate::scripting::{self, Scripts};
use crate::server::Server;

/// Time after which a client that waits looks again: the clock may have been set meanwhile, and the
/// client may have gone.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Longest pause: a week.
const PAUSE_MS_MAX: u64 = 7 * 24 * 3600 * 1000;

/// Whether a request has to wait.
fn is_stopped(server: &Server, client: &Client, arguments: Arguments) -> bool {
    match server.pause.is_of_all() {
        None => false,
        // Otherwise nothing could end the pause before its time.
        Some(true) => !commands::find(arguments).is_ok_and(|command| command.name == "unpause"),
        Some(false) => commands::find(arguments)
            .is_ok_and(|command| may_write(&server.scripts, client, command, arguments)),
    }
}

/// Whether a command may change keys, or sends a message to all.
fn may_write(scripts: &Scripts, client: &Client, command: &Command, arguments: Arguments) -> bool {
    if command.is_script() && !command.has(flags::READONLY) {
        let script = arguments.word(1);
        return !match command.name {
            "evalsha" => {
                let script = scripts.find(script);
                script.is_some_and(|script| scripting::is_readonly(&script.source))
            }
            _ => scripting::is_readonly(script),
        };
    }
    if command.name != "exec" {
        return command.has(flags::WRITE) || command.name == "publish";
    }
    let queue = client.queue.borrow();
    let mut queued = queue.iter().flat_map(|queue| &queue.requests);
    queued.any(|(command, request)| may_write(scripts, client, command, request.arguments()))
}

impl LocalServer {
    /// Has a client wait if its request has to; whether it does.
    pub(crate) fn postpone(self: &Rc<Self>, client: &Rc<Client>, arguments: Arguments) -> bool {
        if !is_stopped(&self.server, client, arguments) {
            return false;
        }
        client.is_paused.set(true);
        self.server.pause.enter();
        let (local, client) = (Rc::clone(self), Rc::downgrade(client));
        tokio::task::spawn_local(async move {
            wait(&local.server.pause, &client).await;
            if let Some(client) = client.upgrade() {
                local.go_on(&client);
            }
        });
        true
    }

    /// Has a client take requests again, if a pause has stopped it.
    pub(crate) fn go_on(&self, client: &Client) {
        if self.end_pause_of(client) {
            client.link.wake();
        }
    }

    /// Notes that a client does not wait for a pause any more; whether it did.
    pub(crate) fn end_pause_of(&self, client: &Client) -> bool {
        let was_paused = client.is_paused.replace(false);
        if was_paused {
            self.server.pause.leave();
        }
        was_paused
    }

    /// Has all clients of this worker take requests again.
    pub(crate) fn end_pause(&self) {
        self.each_client(|client| self.go_on(client));
    }
}

/// Waits until a pause ends, or the client has gone.
async fn wait(pause: &Pause, client: &Weak<Client>) {
    // It may be made longer meanwhile, or end early.
    while client.strong_count() > 0
        && let Some(until) = pause.until()
    {
        let left = Duration::from_millis(until.saturating_sub(now()).max(1));
        tokio::time::sleep(left.min(LOOK_AGAIN)).await;
    }
}

/// `CLIENT PAUSE milliseconds [WRITE | ALL]`
pub(crate) fn client_pause(call: &mut Call) -> Outcome {
    let is_of_all = match call.len() {
        3 => true,
        4 if is(call.word(3), "all") => true,
        4 if is(call.word(3), "write") => false,
        4 => return Err(Fail::fixed("ERR CLIENT PAUSE mode must be WRITE or ALL")),
        _ => return Err(SYNTAX),
    };
    let time = zodium_resp::parse_integer(call.word(2))
        .ok_or(Fail::fixed("ERR timeout is not an integer or out of range"))?;
    let time = u64::try_from(time).map_err(|_| Fail::fixed("ERR timeout is negative"))?;
    if time > PAUSE_MS_MAX {
        return Err(Fail::fixed("ERR timeout is out of range: a pause takes a week at most"));
    }
    call.server.pause.begin(now().saturating_add(time), is_of_all);
    call.reply.ok();
    Ok(())
}

/// `CLIENT UNPAUSE`
pub(crate) fn client_unpause(call: &mut Call) -> Outcome {
    call.server.pause.end();
    call.server.clients.send_to_all(|| Letter::PauseEnded);
    call.reply.ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_has_gone_waits_for_no_pause() {
        let pause = Pause::default();
        pause.begin(now() + PAUSE_MS_MAX, true);
        let waited = tokio::time::timeout(2 * LOOK_AGAIN, wait(&pause, &Weak::new())).await;
        assert!(waited.is_ok() && pause.until().is_some());
    }
}
