//! The commands that a script calls: each is executed at once, within the hold of the script.
//!
//! Key decision: `redis.call` is made once for each Lua state. It finds what executes commands in
//! a place of the thread, where that is for the time of a run. Lua's functions know no lifetimes.
//! To make a function for each run, which ends with it, took as long as a short script itself.

use std::cell::Cell;

use bytes::BytesMut;
use mlua::{Error, Lua, MultiValue, Result, Value};
use scoped_tls_hkt::scoped_thread_local;
use zodium_keyspace::{Hold, Stripes};
use zodium_resp::{Arguments, OwnedRequest, Version};

use super::answer::Answer;
use super::room::{BYTES_MAX, with_room};
use super::{arguments, host};
use crate::call::{Call, is};
use crate::client::Client;
use crate::commands::{self, Command, Run, flags};
use crate::fail::{Fail, OUT_OF_MEMORY, Outcome};
use crate::monitoring::{Sender, show};
use crate::objects;
use crate::reply::{Limited, Reply};
use crate::server::Server;

/// Longer buffers are not kept for the next command.
const BUFFER_BYTES_MAX: usize = 64 << 10;

scoped_thread_local! {
    /// What executes the commands of the script that runs on this thread.
    pub(super) static mut COMMANDS: for<'a> &'a mut (dyn Execute + 'a)
}

/// Executes commands of a script.
pub(super) trait Execute {
    /// Executes a command, and returns its answer.
    fn execute(&mut self, lua: &Lua, arguments: &MultiValue) -> Result<Value>;
}

/// `redis.call`
pub(super) fn call(lua: &Lua, arguments: MultiValue) -> Result<Value> {
    if !COMMANDS.is_set() {
        return Err(Error::runtime("a command is being executed"));
    }
    COMMANDS.with(|commands| commands.execute(lua, &arguments))
}

/// `redis.pcall`: errors are returned.
pub(super) fn pcall(lua: &Lua, arguments: MultiValue) -> Result<Value> {
    call(lua, arguments).or_else(|error| host::failure(lua, &error))
}

/// What executes the commands of a script.
pub(super) struct Commands<'a, 'k> {
    pub(super) server: &'a Server,
    pub(super) client: Option<&'a Client>,
    pub(super) hold: &'a mut Hold<'k>,
    pub(super) version: &'a Cell<Version>,
    pub(super) may_write: bool,
    /// As with the stock server, only a script that begins with full memory is refused more of it.
    pub(super) may_grow: bool,
    pub(super) buffers: Buffers,
}

/// Memory for a command and its answer, kept from one command to the next.
#[derive(Default)]
pub(super) struct Buffers {
    request: OwnedRequest,
    answer: BytesMut,
}

impl Execute for Commands<'_, '_> {
    fn execute(&mut self, lua: &Lua, arguments: &MultiValue) -> Result<Value> {
        let Buffers { mut request, answer } = std::mem::take(&mut self.buffers);
        // A longer answer would have no room in Lua's memory.
        let mut limited = Limited::in_buffer(answer, BYTES_MAX);
        let answered = self.answer(lua, arguments, &mut request, &mut limited);
        self.buffers.keep(request, limited.bytes);
        answered
    }
}

impl Commands<'_, '_> {
    fn answer(
        &mut self,
        lua: &Lua,
        arguments: &MultiValue,
        request: &mut OwnedRequest,
        limited: &mut Limited,
    ) -> Result<Value> {
        arguments::read(arguments, request).map_err(host::refusal)?;
        let outcome = self.run(request.arguments(), limited);
        outcome.map_err(|Fail(text)| host::refusal(text))?;
        if limited.is_over {
            return Err(host::refusal(
                "ERR the answer of the command is too large for a script. Ask for fewer values",
            ));
        }
        let mut answer = Answer::of(&limited.bytes);
        match answer.error() {
            Some(text) => Err(host::refusal(String::from_utf8_lossy(text))),
            // It takes no memory.
            None if answer.is_number() => answer.value(lua),
            None => with_room(lua, limited.bytes.len(), || answer.value(lua)),
        }
    }

    fn run(&mut self, arguments: Arguments, limited: &mut Limited) -> Outcome {
        let command = commands::find(arguments).map_err(|fail| {
            Fail::fixed(match fail.0.contains("wrong number") {
                true => "ERR Wrong number of args calling command from script",
                false => "ERR Unknown command called from script",
            })
        })?;
        let (Run::Data(run), false) = (command.run, command.has(flags::NO_SCRIPT)) else {
            return Err(Fail::fixed("ERR This Redis command is not allowed from script"));
        };
        if objects::is_object(self.server, command, arguments) {
            return Err(objects::READ_ONLY);
        }
        self.admit(command)?;
        let stripes = self.stripes(command, arguments);
        self.server.widen(self.hold, stripes);
        let reply = Reply::to_limited(limited, self.version.get());
        let mut call = Call::new((self.server, self.client), self.hold, arguments, reply);
        let outcome = call.execute(command, run);
        if let Some(client) = self.client {
            self.hold.database = client.database.get();
        }
        let sender = Sender { database: self.hold.database, name: "lua" };
        show(&self.server.clients, self.hold.now, &sender, (command, arguments));
        outcome
    }

    /// Checks whether the script may execute a command now.
    fn admit(&self, command: &Command) -> Outcome {
        let writes = command.has(flags::WRITE);
        // A message is no change of a key, and yet one that all see.
        if (writes || command.name == "publish") && !self.may_write {
            return Err(Fail::fixed("ERR Write commands are not allowed from read-only scripts."));
        }
        let running = &self.server.scripts.running;
        // What has begun to write may go on: half a move of an element would lose it.
        if command.has(flags::DENY_OOM) && !self.may_grow && !running.has_written() {
            return Err(OUT_OF_MEMORY);
        }
        if writes {
            if !running.has_written() {
                self.server.log.check()?;
            }
            running.note_write();
        }
        Ok(())
    }

    /// The stripes that a command needs. All for a message, which others get before the script
    /// ends: they are not to see a key as it was before. All as well for one that ties a key: the
    /// script is to see the key until it ends, and then all other keys as they were when it was
    /// tied.
    fn stripes(&self, command: &Command, arguments: Arguments) -> Stripes {
        let Server { keyspace, beside, .. } = self.server;
        let is_message = command.name == "publish";
        let ties = || {
            command.name == "ztie"
                || command.name == "set" && arguments.from(3).iter().any(|word| is(word, "tie"))
        };
        match is_message || beside.is_attached() && ties() {
            true => Stripes::ALL,
            false => command.stripes(keyspace, arguments),
        }
    }
}

impl Buffers {
    fn keep(&mut self, mut request: OwnedRequest, mut answer: BytesMut) {
        if request.kept_bytes() <= BUFFER_BYTES_MAX {
            request.clear();
            self.request = request;
        }
        if answer.capacity() <= BUFFER_BYTES_MAX {
            answer.clear();
            self.answer = answer;
        }
    }
}
