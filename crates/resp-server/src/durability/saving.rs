//! `BGREWRITEAOF`, `BGSAVE`, `SAVE` and `LASTSAVE`: all of them are about the log, which has every
//! change already. To save is to compact it.

use std::rc::Rc;

use bytes::BytesMut;

use super::compaction;
use super::keeper::Keeper;
use crate::call::{Call, is};
use crate::commands::Request;
use crate::fail::{Fail, Outcome, SYNTAX};
use crate::reply::Reply;
use crate::{After, Server};

const NO_LOG: Fail = Fail::fixed(
    "ERR this server keeps keys in memory only: start it with --file, or --resp-file of 'zodium \
     serve'",
);
const GOES_ON: Fail = Fail::fixed("ERR Background save already in progress");
const REWRITE_GOES_ON: Fail =
    Fail::fixed("ERR Background append only file rewriting already in progress");
const FAILED: Fail = Fail::fixed("ERR the log could not be compacted: see the server's log");

/// `BGREWRITEAOF`
pub(crate) fn bgrewriteaof(Request { local, reply, .. }: Request) -> Result<After, Fail> {
    keeper(&local.server)?;
    match compaction::begin(&local.server, |_| ()) {
        true => reply.simple("Background append only file rewriting started"),
        false => return Err(REWRITE_GOES_ON),
    }
    Ok(After::Continue)
}

/// `BGSAVE [SCHEDULE]`
pub(crate) fn bgsave(Request { local, arguments, reply, .. }: Request) -> Result<After, Fail> {
    keeper(&local.server)?;
    let schedules = arguments.len() == 2 && is(arguments.word(1), "schedule");
    if arguments.len() > 1 && !schedules {
        return Err(SYNTAX);
    }
    match compaction::begin(&local.server, |_| ()) {
        true => reply.simple("Background saving started"),
        false if schedules => reply.simple("Background saving scheduled"),
        false => return Err(GOES_ON),
    }
    Ok(After::Continue)
}

/// `SAVE`: the client waits, and no other one.
pub(crate) fn save(Request { local, client, .. }: Request) -> Result<After, Fail> {
    keeper(&local.server)?;
    let (told, done) = tokio::sync::oneshot::channel();
    let begins = compaction::begin(&local.server, move |is_done| _ = told.send(is_done));
    if !begins {
        return Err(GOES_ON);
    }
    client.is_loading.set(true);
    let (local, id, version) = (Rc::clone(local), client.id(), client.version.get());
    tokio::task::spawn_local(async move {
        let is_done = done.await.unwrap_or(false);
        let mut buffer = BytesMut::new();
        let mut reply = Reply::to_buffer(&mut buffer, version);
        match is_done {
            true => reply.ok(),
            false => reply.error(&FAILED.0),
        }
        local.end_load(id, &buffer);
    });
    Ok(After::Continue)
}

/// `LASTSAVE`
pub(crate) fn lastsave(call: &mut Call) -> Outcome {
    let at = match keeper(call.server) {
        Ok(keeper) => keeper.compacted_at(),
        Err(_) => call.server.statistics.started_at / 1000,
    };
    call.reply.integer(i64::try_from(at).unwrap_or(i64::MAX));
    Ok(())
}

fn keeper(server: &Server) -> Result<&Keeper, Fail> {
    server.log.keeper().ok_or(NO_LOG)
}
