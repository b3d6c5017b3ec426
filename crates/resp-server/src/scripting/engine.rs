//! The Lua state of a worker: it compiles scripts, and runs one at a time.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use mlua::chunk::ChunkMode;
use mlua::state::{GcIncParams, GcMode};
use mlua::{
    Error, Function, HookTriggers, Lua, LuaOptions, MultiValue, Result, StdLib, Table, Value,
    VmState,
};
use rustc_hash::FxHashMap;
use zodium_resp::{Arguments, Version};

use super::answer::sequence;
use super::commands::{self, Buffers, COMMANDS, Commands};
use super::errors::{internal, text_of};
use super::host::{self, CHUNK};
use super::room::{BYTES_MAX, with_room};
use super::running::{Running, must_end};
use super::shebang::{self, Traits};
use super::{Digest, Script, arguments, result};
use crate::call::Call;
use crate::fail::{Fail, Outcome};
use crate::memory::{Room, make_room};
use crate::server::Server;

/// Garbage that scripts may leave behind, and half of what is no garbage. A collection looks at all
/// that is there; but more garbage leaves the caches of the processor before its memory is used
/// again. With four times as much a short script took a third longer.
const GARBAGE_BYTES_MAX: usize = 256 << 10;
/// Work of the garbage collector in a step, as a share in percent of what was allocated since the
/// last one. Lua's own share suits small objects: texts of a megabyte outrun it up to the limit.
const COLLECTED_PERCENT: i32 = 100_000;
/// A collection begins once the memory has grown to so many percent of what the last one has left.
const GROWTH_PERCENT: i32 = 150;
/// Instructions between two looks at whether the script must end.
const INSTRUCTIONS: u32 = 10_000;
/// Compiled scripts of a worker, before all are forgotten.
const COMPILED_MAX: usize = 2000;
/// Memory that they may take before that, about; twice as much with garbage.
const COMPILED_BYTES_MAX: usize = BYTES_MAX / 8;

thread_local! {
    /// The state of this worker, from its first script on.
    static ENGINE: RefCell<Option<Engine>> = const { RefCell::new(None) };
}

/// A Lua state, and what has been compiled in it.
struct Engine {
    lua: Lua,
    /// What scripts see as globals.
    environment: Table,
    run: Function,
    /// The version of RESP that the script wants answers in.
    version: Rc<Cell<Version>>,
    compiled: FxHashMap<Digest, (Function, Traits)>,
    /// For the commands of a script.
    buffers: Cell<Buffers>,
    /// How the script of a server is told to end.
    running: Option<Arc<Running>>,
    /// Flushes of scripts that it knows of.
    flushes: u64,
    /// Bytes that the last collection of garbage has left.
    kept: usize,
    /// Bytes after the last script.
    used: usize,
}

/// Compiles a script, to see whether that works.
pub(crate) fn check(server: &Server, script: &Script) -> Outcome {
    with_engine(server, |engine| engine.function(script).map(drop))
}

/// A script as a command names it.
pub(crate) struct Wish<'a> {
    pub(crate) script: &'a Script,
    /// Number of keys behind the third argument.
    pub(crate) keys: usize,
    /// Whether the command is one that changes nothing.
    pub(crate) is_readonly: bool,
    /// Whether the script came with the command, and is kept if it can be compiled.
    pub(crate) is_new: bool,
}

/// Runs the script of a command, and writes its answer.
pub(crate) fn run(call: &mut Call, wish: &Wish) -> Outcome {
    let running = &call.server.scripts.running;
    with_engine(call.server, |engine| {
        // Others are not to wait in vain for a script that takes long to compile.
        running.begin();
        let outcome = engine.run(call, wish);
        running.end();
        engine.clean();
        if outcome.is_err() {
            engine.make_room();
        }
        outcome
    })
}

fn with_engine<T>(
    server: &Server,
    work: impl FnOnce(&mut Engine) -> std::result::Result<T, Fail>,
) -> std::result::Result<T, Fail> {
    ENGINE.with(|engine| {
        let mut engine = engine
            .try_borrow_mut()
            .map_err(|_| Fail::fixed("ERR a script cannot run within a script"))?;
        let engine = match &mut *engine {
            Some(engine) => engine,
            absent => absent.insert(Engine::new().map_err(internal)?),
        };
        if engine.flushes != server.scripts.flushes() {
            engine.forget();
            engine.flushes = server.scripts.flushes();
        }
        engine.obey(&server.scripts.running);
        work(engine)
    })
}

impl Engine {
    fn new() -> Result<Engine> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::default())?;
        lua.set_memory_limit(BYTES_MAX)?;
        set_growth(&lua, GROWTH_PERCENT);
        let triggers = HookTriggers::new().every_nth_instruction(INSTRUCTIONS);
        lua.set_global_hook(triggers, |lua, _| match must_end(lua) {
            Some(text) => Err(Error::runtime(text)),
            None => Ok(VmState::Continue),
        })?;
        let host = host::functions(&lua)?;
        let is_over = lua.create_function(|lua, ()| Ok(must_end(lua).is_some()))?;
        host.raw_set("is_over", is_over)?;
        let version = Rc::new(Cell::new(Version::Two));
        let chosen = Rc::clone(&version);
        let set_version = lua.create_function(move |_, given: MultiValue| {
            chosen.set(version_of(&given)?);
            Ok(())
        })?;
        host.raw_set("setresp", set_version)?;
        host.raw_set("call", lua.create_function(commands::call)?)?;
        host.raw_set("pcall", lua.create_function(commands::pcall)?)?;
        let prelude = lua.load(include_str!("prelude.lua")).set_name("=prelude");
        let (environment, globals, run) =
            prelude.set_mode(ChunkMode::Text).call::<(Table, Table, Function)>(&host)?;
        let loader = host::loader(&lua, &environment)?;
        globals.raw_set("load", &loader)?;
        globals.raw_set("loadstring", loader)?;
        let (compiled, kept) = (FxHashMap::default(), lua.used_memory());
        let mut engine = Engine {
            lua,
            environment,
            run,
            version,
            compiled,
            buffers: Cell::default(),
            running: None,
            flushes: 0,
            kept,
            used: kept,
        };
        engine.collect();
        Ok(engine)
    }

    /// Has scripts end as the running one of a server must.
    fn obey(&mut self, running: &Arc<Running>) {
        if !self.running.as_ref().is_some_and(|set| Arc::ptr_eq(set, running)) {
            self.lua.set_app_data(Arc::clone(running));
            self.running = Some(Arc::clone(running));
        }
    }

    /// A script as a function.
    fn function(&mut self, script: &Script) -> std::result::Result<(Function, Traits), Fail> {
        if let Some((function, traits)) = self.compiled.get(&script.digest) {
            return Ok((function.clone(), *traits));
        }
        let (traits, source) = shebang::split(&script.source)?;
        self.make_room();
        let compile =
            |engine: &Engine| host::compiled(&engine.lua, source, CHUNK, &engine.environment);
        let mut function = compile(self);
        if matches!(function, Err(Error::MemoryError(_))) {
            self.forget();
            function = compile(self);
        }
        let function = function.map_err(|error| {
            let text = text_of(&error);
            Fail::text(format!("ERR Error compiling script (new function): {text}"))
        })?;
        if self.compiled.len() >= COMPILED_MAX {
            self.compiled.clear();
        }
        self.compiled.insert(script.digest, (function.clone(), traits));
        Ok((function, traits))
    }

    fn run(&mut self, call: &mut Call, wish: &Wish) -> Outcome {
        let server = call.server;
        let (function, traits) = self.function(wish.script)?;
        if wish.is_new {
            server.scripts.add(wish.script, false);
        }
        if let Some(end) = server.scripts.running.must_end() {
            let text = end.text();
            return Err(Fail::text(format!("ERR {text}")));
        }
        if wish.is_readonly && traits.is_declared && !traits.is_readonly {
            return Err(Fail::fixed(
                "ERR Can not execute a script with write flag using *_ro command.",
            ));
        }
        let may_write = !wish.is_readonly && !traits.is_readonly;
        self.execute(call, &function, wish.keys, (may_write, traits), &wish.script.digest)
    }

    fn execute(
        &self,
        call: &mut Call,
        script: &Function,
        keys: usize,
        (may_write, traits): (bool, Traits),
        digest: &Digest,
    ) -> Outcome {
        // Keys that the script has locked go after it.
        let may_grow = traits.allows_oom || make_room(call.server) != Room::None;
        if !may_grow && may_write && traits.is_declared {
            return Err(Fail::fixed(
                "OOM allow-oom flag is not set on the script, can not run it when used memory > \
                 'maxmemory'",
            ));
        }
        let database = call.hold.database;
        self.version.set(Version::Two);
        let mut commands = Commands {
            server: call.server,
            client: call.client,
            hold: &mut *call.hold,
            version: &self.version,
            may_write,
            may_grow,
            buffers: self.buffers.take(),
        };
        let returned = self.call(script, call.arguments.from(3), keys, &mut commands);
        self.buffers.set(commands.buffers);
        // A script that selects another database does so for itself.
        call.hold.database = database;
        if let Some(client) = call.client {
            client.select(database);
        }
        let (is_whole, value) = returned.map_err(internal)?;
        if !is_whole {
            return Err(failure(&value, digest.as_str()));
        }
        let bytes_max = call.server.settings.bulk_bytes_max();
        result::write(&self.lua, &mut call.reply, &value, (self.version.get(), bytes_max))
    }

    /// Runs a function, whose commands are executed by these; whether it came to its end, and with
    /// what or why not. The first `keys` words are its keys.
    fn call(
        &self,
        script: &Function,
        words: Arguments,
        keys: usize,
        commands: &mut Commands,
    ) -> Result<(bool, Value)> {
        let word_bytes = words.iter().map(|word| word.len() + 1).sum();
        let (keys, others) = with_room(&self.lua, word_bytes, || {
            let list = |words: Arguments, count| {
                let words = words.iter().take(count);
                sequence(&self.lua, words.map(|word| self.lua.create_string(word)))
            };
            Ok((list(words, keys)?, list(words.from(keys), words.len())?))
        })?;
        COMMANDS.set(commands, || self.run.call((script, keys, others)))
    }

    /// Forgets compiled scripts if they take so much that others would find too little.
    fn make_room(&mut self) {
        if self.lua.used_memory() <= 2 * COMPILED_BYTES_MAX {
            return;
        }
        self.collect();
        // With more it would soon come to this again.
        if self.kept > COMPILED_BYTES_MAX {
            self.forget();
        }
    }

    /// Forgets all compiled scripts: they are compiled again when they are called.
    fn forget(&mut self) {
        self.compiled.clear();
        self.collect();
    }

    /// Frees what scripts have left behind, if that is much.
    fn clean(&mut self) {
        let used = self.lua.used_memory();
        let garbage_max = GARBAGE_BYTES_MAX + self.kept / 2;
        // With less than before Lua has collected by itself, and would do so often from now on.
        if used > self.kept + garbage_max || used < self.used {
            self.collect();
        } else {
            self.used = used;
        }
    }

    /// Frees what scripts have left behind. Lua itself begins with that only when more is left
    /// behind than [`Engine::clean`] leaves: each time it looks at all that is there.
    fn collect(&mut self) {
        loop {
            let share = 2 * GARBAGE_BYTES_MAX * 100 / self.kept.max(1);
            set_growth(&self.lua, GROWTH_PERCENT + i32::try_from(share).unwrap_or(0));
            // An error would be one of a finalizer: scripts have none.
            let _ = self.lua.gc_collect();
            let before = std::mem::replace(&mut self.kept, self.lua.used_memory());
            if self.kept <= before.saturating_mul(2) {
                break;
            }
        }
        self.used = self.kept;
        set_growth(&self.lua, GROWTH_PERCENT);
    }
}

/// Has a collection begin once the memory has grown to so many percent of what one leaves that ends
/// after this.
fn set_growth(lua: &Lua, percent: i32) {
    let collection = GcIncParams::default().pause(percent).step_multiplier(COLLECTED_PERCENT);
    lua.gc_set_mode(GcMode::Incremental(collection));
}

/// The version of RESP that a script wants answers in.
fn version_of(given: &MultiValue) -> Result<Version> {
    if given.len() != 1 {
        return Err(host::refusal("ERR server.setresp() requires one argument."));
    }
    match given.front().and_then(arguments::number) {
        Some(2.0) => Ok(Version::Two),
        Some(3.0) => Ok(Version::Three),
        _ => Err(host::refusal("ERR RESP version must be 2 or 3.")),
    }
}

/// The error of a script that has failed.
fn failure(reason: &Value, digest: &str) -> Fail {
    let Value::Table(table) = reason else {
        let text = host::plain(reason);
        return Fail::text(format!("ERR Error running script {digest}, {text}"));
    };
    let text = |name: &str| match table.raw_get::<Value>(name) {
        Ok(value @ (Value::String(_) | Value::Integer(_))) => Some(host::plain(&value)),
        _ => None,
    };
    let mut message = text("err").unwrap_or_else(|| "ERR unknown error".to_owned());
    if let (Some(source), Some(line)) = (text("source"), text("line")) {
        message.push_str(&format!(" script: {digest}, on {source}:{line}."));
    }
    Fail::text(message)
}
