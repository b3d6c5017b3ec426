//! From a request to its answer: which command it is, whether the client may send it now, and
//! executing it under the locks of its keys.

use std::rc::Rc;

use bytes::BytesMut;
use zodium_net::{Link, Refusal};
use zodium_resp::Arguments;

use crate::call::{Blocking, Call};
use crate::client::{Client, Replies};
use crate::commands::{Command, Request, Run, flags};
use crate::fail::{Fail, OUT_OF_MEMORY, Outcome};
use crate::local::LocalServer;
use crate::locking::stripes_of;
use crate::memory::{Room, make_room, make_room_behind, used_if_limited};
use crate::reply::Reply;
use crate::{commands, monitoring, objects, transaction};

/// What follows a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// The next one.
    Continue,
    /// The end of the connection.
    Close,
}

const NO_AUTH: Fail = Fail::fixed("NOAUTH Authentication required.");

/// Executes a request, and appends the answer to the client's output.
pub(crate) fn execute(local: &Rc<LocalServer>, client: &Rc<Client>, arguments: Arguments) -> After {
    local.count_command();
    let mut discarded = BytesMut::new();
    let found = commands::find(arguments);
    // What answers a subscription is a message, which a client gets also without answers.
    let is_message = found.as_ref().is_ok_and(|c| c.has(flags::PUBSUB) && c.has(flags::SUBSCRIBED));
    // `CLIENT REPLY ON` is answered; its other forms answer nothing.
    let is_switch = found.as_ref().is_ok_and(|command| command.name == "reply");
    let mut output = client.link.output();
    let skips = !is_switch
        && match client.replies.get() {
            Replies::On => false,
            Replies::SkipNext => {
                client.replies.set(Replies::Skip);
                true
            }
            Replies::Off | Replies::Skip => true,
        };
    let mut reply = match skips && !is_message {
        true => Reply::to_buffer(&mut discarded, client.version.get()),
        false => Reply::to_link(&mut output, client.version.get()),
    };
    let admitted = admit(local, client, found, arguments, &mut reply);
    if admitted.is_err()
        && let Some(command) = commands::meant(arguments)
    {
        local.statistics(|of| of.reject(command));
    }
    let outcome = admitted.and_then(|admitted| match admitted {
        Admitted::Answered(after) => Ok(after),
        Admitted::Runs(command) => monitoring::shown(local, client, (command, arguments), || {
            run(command, Request { local, client, arguments, reply: &mut reply })
        }),
    });
    if client.is_caching.get() && !arguments.word(0).eq_ignore_ascii_case(b"client") {
        // It is for one command, or for one transaction.
        client.is_caching.set(client.queue.borrow().is_some());
    }
    client.end_skip();
    match outcome {
        Ok(after) => after,
        Err(fail) => {
            local.server.statistics.note_fail(&fail);
            reply.error(&fail.0);
            After::Continue
        }
    }
}

/// Logs that an HTTP request came: scrapers and health checks come again and again.
fn refuse_http(link: &Link) {
    link.count_refusal(Refusal::Protocol);
    let (peer, text) = (link.peer(), "an HTTP request came to the RESP port, disconnecting");
    match link.admits_log_of(Refusal::Protocol) {
        true => tracing::warn!(peer, "{text}"),
        false => tracing::debug!(peer, "{text}"),
    }
}

/// What follows the checks of a request.
enum Admitted {
    /// It is answered, or queued.
    Answered(After),
    /// The command is executed.
    Runs(&'static Command),
}

/// Checks whether the client may send a request now. An error is a refusal: nothing was executed.
fn admit(
    local: &Rc<LocalServer>,
    client: &Rc<Client>,
    found: Result<&'static Command, Fail>,
    arguments: Arguments,
    reply: &mut Reply,
) -> Result<Admitted, Fail> {
    let name = arguments.word(0);
    let refused = |fail| transaction::refused(&local.server, client, name, fail);
    if name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:") {
        refuse_http(&client.link);
        return Ok(Admitted::Answered(After::Close));
    }
    let command = found.map_err(refused)?;
    if !client.is_authenticated.get() && !command.has(flags::NO_AUTH) {
        return Err(refused(NO_AUTH));
    }
    if client.is_restricted() && !command.has(flags::SUBSCRIBED) {
        let name = command.full_name;
        return Err(refused(Fail::text(format!(
            "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / \
             RESET are allowed in this context"
        ))));
    }
    client.note_command(command);
    let server = &*local.server;
    server.scripts.running.check_busy(&server.settings, command).map_err(refused)?;
    if command.has(flags::WRITE) {
        local.server.log.check().map_err(refused)?;
    }
    if command.may_add() {
        // Keys that go for a script do so before it locks any.
        let room = make_room(&local.server);
        // The command waits as well for threads that hold what may go, and makes room afterwards.
        if command.has(flags::DENY_OOM) && room == Room::None {
            return Err(refused(OUT_OF_MEMORY));
        }
    }
    if objects::is_object(&local.server, command, arguments) {
        let after = monitoring::shown(local, client, (command, arguments), || {
            objects::read(command, Request { local, client, arguments, reply })
        });
        return after.map(Admitted::Answered).map_err(refused);
    }
    if client.queue.borrow().is_some() && !command.has(flags::CONTROL) {
        let bytes_max = server.settings.request_bytes_max();
        transaction::queue(client, command, arguments, bytes_max).map_err(refused)?;
        reply.simple("QUEUED");
        return Ok(Admitted::Answered(After::Continue));
    }
    Ok(Admitted::Runs(command))
}

/// Executes a command.
fn run(command: &'static Command, request: Request) -> Result<After, Fail> {
    let Request { local, client, .. } = request;
    let server = &*local.server;
    let may_add = command.may_add() || command.name == "exec";
    let before = if may_add { used_if_limited(server) } else { 0 };
    let outcome = match command.run {
        Run::Data(run) => run_data(command, run, request).map(|()| After::Continue),
        Run::Connection(run) => local.counted(command, || run(request)),
    };
    if may_add {
        // What has become too much goes before the client's next command.
        make_room_behind(local, client, before);
    }
    outcome
}

/// Executes a command under the locks of its keys; then serves the clients that wait for them.
fn run_data(command: &'static Command, run: fn(&mut Call) -> Outcome, request: Request) -> Outcome {
    let Request { local, client, arguments, reply } = request;
    let server = &*local.server;
    let stripes = match command.is_script() {
        true => server.keyspace.stripes(command.keys_of(arguments)),
        false => stripes_of(&server.keyspace, client, command, arguments),
    };
    let now = local.clock.time();
    let mut hold = match () {
        () if command.is_script() => server.lock_first(stripes, now)?,
        () if command.only_reads() => server.lock_to_read(&local.reader, stripes, now)?,
        () => server.lock(stripes, now)?,
    };
    if command.is_script() {
        local.clock.freeze(&mut hold);
    }
    hold.database = client.database.get();
    hold.keeps_uses = client.keeps_uses.get();
    let mut call = Call::new((server, Some(&**client)), &mut hold, arguments, reply.part());
    call.blocking = Blocking::May;
    let outcome = call.execute(command, run);
    if let Blocking::Waits { seconds } = call.blocking {
        let shared = std::sync::Arc::clone(&client.shared);
        let waiter = server.waiting.enter(&call, shared, command, stripes);
        local.begin_wait(client, waiter, seconds);
    }
    let position = server.settle(hold);
    local.note_position(client, position);
    outcome
}
