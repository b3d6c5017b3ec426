//! Commands whose answers no client gets: those of the log, and those of a committed transaction.

use bytes::BytesMut;
use zodium_keyspace::Hold;
use zodium_resp::{Arguments, Version};

use crate::Server;
use crate::call::{Call, ItsCommit};
use crate::commands::{Command, Run};
use crate::fail::Outcome;
use crate::reply::Reply;

/// Executes a command whose answer no client gets: its stripes are held. One that touches a
/// connection does nothing.
pub(crate) fn execute_unanswered(
    server: &Server,
    hold: &mut Hold,
    command: &'static Command,
    arguments: Arguments,
    commit: Option<ItsCommit>,
) -> Outcome {
    let Run::Data(run) = command.run else { return Ok(()) };
    let mut unsent = BytesMut::new();
    let reply = Reply::to_buffer(&mut unsent, Version::Two);
    let mut call = Call { commit, ..Call::new((server, None), hold, arguments, reply) };
    call.execute(command, run)
}
