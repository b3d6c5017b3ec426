//! `ZEXEC`, `ZDISCARD` and `ZSTATE`: parking commands for a ZODB transaction.

use crate::After;
use crate::call::Call;
use crate::commands::{Command, Request, Run, check_set, check_ztie, flags};
use crate::fail::{Fail, Outcome};
use crate::parked::{Parcel, State};
use crate::transaction::{ABORTED, forget_watch, take_queue};

/// Longest token.
const TOKEN_BYTES_MAX: usize = 64;

const NO_MULTI: Fail = Fail::fixed("ERR ZEXEC without MULTI");
const WATCHES: Fail =
    Fail::fixed("ERR ZEXEC cannot watch keys: they could change until the transaction commits");
const TOO_LONG: Fail = Fail::fixed("ERR a token has 1 to 64 bytes");

/// `ZEXEC token`: in place of `EXEC`. The queued commands wait for a ZODB transaction that has the
/// token.
pub(crate) fn zexec(Request { local, client, arguments, reply }: Request) -> Result<After, Fail> {
    let server = &local.server;
    let queue = take_queue(client).ok_or(NO_MULTI)?;
    let watches = client.watch.borrow().is_some();
    forget_watch(server, client);
    if queue.is_broken {
        return Err(ABORTED);
    }
    if watches {
        return Err(WATCHES);
    }
    server.log.check()?;
    let token = arguments.word(1);
    if token.is_empty() || token.len() > TOKEN_BYTES_MAX {
        return Err(TOO_LONG);
    }
    if let Some((command, _)) = queue.requests.iter().find(|(command, _)| !may_wait(command)) {
        let name = command.name;
        return Err(Fail::text(format!(
            "ERR '{name}' cannot take effect with a ZODB transaction: only commands that write, \
             and PUBLISH, can"
        )));
    }
    for (command, request) in &queue.requests {
        // The client may have gone when they take effect.
        let (beside, rights) = (&server.beside, client.rights());
        match command.name {
            "set" => check_set(beside, rights, request.arguments())?,
            "ztie" => check_ztie(beside, rights, request.arguments())?,
            _ => {}
        }
    }
    let count = queue.requests.len();
    let connection = client;
    let (client, database) = (client.id(), client.database.get());
    let storages = server.beside.storages()?;
    let since = (0..storages.count())
        .map(|storage| (storages.name(storage).to_owned(), storages.last_tid(storage)));
    let (requests, _held) = (queue.requests, Some(queue.held));
    let parcel = Parcel { client, database, requests, _held, since: since.collect() };
    // The answer waits until the log has them: the transaction may be committed right after it.
    let position = server.beside.parked.park(&server.log, token, parcel)?;
    local.note_position(connection, position);
    reply.count(count);
    Ok(After::Continue)
}

/// Whether a command can be executed without a client, and has an effect then.
fn may_wait(command: &Command) -> bool {
    let has_effect = command.has(flags::WRITE) || command.name == "publish";
    matches!(command.run, Run::Data(_)) && has_effect
}

/// `ZDISCARD token`
pub(crate) fn zdiscard(call: &mut Call) -> Outcome {
    let was_there = call.server.beside.parked.discard(&call.server.log, call.word(1));
    call.reply.flag(was_there);
    Ok(())
}

/// `ZSTATE token`
pub(crate) fn zstate(call: &mut Call) -> Outcome {
    call.reply.simple(match call.server.beside.parked.state(call.word(1)) {
        State::Absent => "none",
        State::Parked => "parked",
        State::Voted => "voted",
    });
    Ok(())
}
