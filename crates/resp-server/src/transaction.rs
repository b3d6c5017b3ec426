//! Transactions: `MULTI`, `EXEC`, `DISCARD`, and the keys that a client watches.
//!
//! `EXEC` locks the stripes of all its commands and of all watched keys at once, so that no other
//! client sees a state in between.

use std::rc::Rc;
use std::sync::atomic::Ordering;

use bytes::BytesMut;
use zodium_keyspace::Hold;
use zodium_resp::Arguments;

use crate::After;
use crate::call::Call;
use crate::client::{Client, Queue, Watch};
use crate::commands::{Command, Request, Run, flags};
use crate::fail::{ABORTED_FOR, Fail, OUT_OF_MEMORY, Outcome};
use crate::local::LocalServer;
use crate::locking::{stripes_of, watched_stripes};
use crate::memory::{Room, make_room};
use crate::monitoring;
use crate::reply::Reply;
use crate::server::Server;

/// Memory that a queued word takes besides its bytes, about.
const WORD_BYTES: usize = 32;
/// Most bytes of queued commands while the memory of all clients is full.
const QUEUE_BYTES_LOW: usize = 64 << 10;

const ANSWERS_TOO_LONG: &str =
    "ERR not executed: the answers of this transaction are longer than proto-max-bulk-len";

pub(crate) const ABORTED: Fail =
    Fail::fixed("EXECABORT Transaction discarded because of previous errors.");

/// Notes that a command was refused: `EXEC` will do nothing.
pub(crate) fn note_refusal(client: &Client) {
    if let Some(queue) = client.queue.borrow_mut().as_mut() {
        queue.is_broken = true;
    }
}

/// Notes that a command of a name was refused. `EXEC` itself ends the transaction then, and its
/// error says so also outside of one.
pub(crate) fn refused(server: &Server, client: &Client, name: &[u8], reason: Fail) -> Fail {
    if name.eq_ignore_ascii_case(b"exec") {
        take_queue(client);
        forget_watch(server, client);
        return aborted(reason);
    }
    note_refusal(client);
    reason
}

/// Queues a command of a transaction, whose commands may have so many bytes.
pub(crate) fn queue(
    client: &Client,
    command: &'static Command,
    arguments: Arguments,
    bytes_max: usize,
) -> Outcome {
    if command.has(flags::NO_MULTI) {
        let name = command.name;
        return Err(Fail::text(format!("ERR Command '{name}' not allowed inside a transaction")));
    }
    let mut queue = client.queue.borrow_mut();
    // Those of a broken transaction are not executed.
    let Some(queue) = queue.as_mut().filter(|queue| !queue.is_broken) else { return Ok(()) };
    let request: usize = arguments.iter().map(|word| word.len() + WORD_BYTES).sum();
    let bytes = queue.bytes.saturating_add(request);
    let most = match client.link.memory().is_full() {
        true => QUEUE_BYTES_LOW.min(bytes_max),
        false => bytes_max,
    };
    if bytes > most {
        queue.drop_requests();
        return Err(Fail::text(format!(
            "ERR the commands of the transaction are longer than {most} bytes. Send fewer or \
             shorter ones, or raise client-query-buffer-limit or --memory-limit"
        )));
    }
    queue.requests.push((command, arguments.to_request()));
    queue.bytes = bytes;
    queue.held.set(bytes);
    client.shared.facts.lock().queued = i64::try_from(queue.requests.len()).unwrap_or(0);
    Ok(())
}

impl Queue {
    fn new(client: &Client) -> Queue {
        let held = client.link.memory().holder();
        Queue { requests: Vec::new(), bytes: 0, held, is_broken: false }
    }

    /// Frees the commands of a transaction that will not be executed.
    fn drop_requests(&mut self) {
        self.is_broken = true;
        self.requests = Vec::new();
        self.bytes = 0;
        self.held.set(0);
    }
}

pub(crate) fn multi(Request { client, reply, .. }: Request) -> Result<After, Fail> {
    let mut queue = client.queue.borrow_mut();
    if let Some(queue) = queue.as_mut() {
        queue.is_broken = true;
        return Err(Fail::fixed("ERR Command 'multi' not allowed inside a transaction"));
    }
    *queue = Some(Queue::new(client));
    client.shared.facts.lock().queued = 0;
    reply.ok();
    Ok(After::Continue)
}

pub(crate) fn discard(Request { local, client, reply, .. }: Request) -> Result<After, Fail> {
    if take_queue(client).is_none() {
        return Err(Fail::fixed("ERR DISCARD without MULTI"));
    }
    forget_watch(&local.server, client);
    reply.ok();
    Ok(After::Continue)
}

pub(crate) fn exec(request: Request) -> Result<After, Fail> {
    let client = request.client;
    let queue = take_queue(client).ok_or(Fail::fixed("ERR EXEC without MULTI"))?;
    let server = &request.local.server;
    // What is refused ends the transaction too.
    execute(&queue, request).inspect_err(|_| forget_watch(server, client))
}

/// Executes a transaction. An error is a refusal: nothing was executed.
fn execute(queue: &Queue, Request { local, client, reply, .. }: Request) -> Result<After, Fail> {
    let server = &local.server;
    server.scripts.running.check_not_long(&server.settings).map_err(aborted)?;
    if queue.is_broken {
        return Err(ABORTED);
    }
    if queue.requests.iter().any(|(command, _)| command.has(flags::WRITE)) {
        server.log.check().map_err(aborted)?;
    }
    let adds = queue.requests.iter().any(|(command, _)| command.has(flags::DENY_OOM));
    if adds && make_room(server) == Room::None {
        return Err(aborted(OUT_OF_MEMORY));
    }
    let stripes = queue.requests.iter().map(|(command, request)| {
        stripes_of(&server.keyspace, client, command, request.arguments())
    });
    let stripes = stripes.fold(watched_stripes(&server.keyspace, client), |all, one| all | one);
    let mut hold = server.lock(stripes, local.clock.time()).map_err(aborted)?;
    local.clock.freeze(&mut hold);
    if end_watch(client, &mut hold) {
        let position = server.settle(hold);
        local.note_position(client, position);
        reply.null_array();
        return Ok(After::Continue);
    }
    reply.array(queue.requests.len());
    let most = reply.written().saturating_add(server.settings.bulk_bytes_max());
    let mut unsent = BytesMut::new();
    for (command, request) in &queue.requests {
        // As with the stock server, a client that has killed itself gets no answers behind that.
        let mut reply = match client.shared.is_killed.load(Ordering::Relaxed) {
            true => Reply::to_buffer(&mut unsent, client.version.get()),
            false => reply.part(),
        };
        if command.only_reads() && reply.written() > most {
            reply.error(ANSWERS_TOO_LONG);
            continue;
        }
        let arguments = request.arguments();
        monitoring::shown(local, client, (command, arguments), || {
            run_queued(local, client, &mut hold, (command, arguments), &mut reply);
        });
        unsent.clear();
    }
    let position = server.settle(hold);
    local.note_position(client, position);
    Ok(After::Continue)
}

/// The error of a transaction of which nothing was executed, for a reason.
fn aborted(reason: Fail) -> Fail {
    let reason = reason.0.strip_prefix("ERR ").unwrap_or(&reason.0);
    Fail::text(format!("{ABORTED_FOR}{reason}"))
}

/// Executes a command of a transaction, under locks that the transaction holds.
fn run_queued(
    local: &Rc<LocalServer>,
    client: &Rc<Client>,
    hold: &mut Hold,
    (command, arguments): (&'static Command, Arguments),
    reply: &mut Reply,
) {
    hold.database = client.database.get();
    // HELLO may have changed it.
    reply.version = client.version.get();
    let outcome = match command.run {
        Run::Connection(run) => {
            let request = Request { local, client, arguments, reply };
            local.counted(command, || run(request)).map(drop)
        }
        Run::Data(run) => {
            let parties = (&*local.server, Some(&**client));
            Call::new(parties, hold, arguments, reply.part()).execute(command, run)
        }
    };
    if let Err(fail) = outcome {
        reply.error(&fail.0);
    }
}

pub(crate) fn watch(call: &mut Call) -> Outcome {
    let client = call.client()?;
    if client.queue.borrow().is_some() {
        note_refusal(client);
        return Err(Fail::fixed("ERR Command 'watch' not allowed inside a transaction"));
    }
    let mut watch = client.watch.borrow_mut();
    let Watch { watcher, keys } = watch.get_or_insert_default();
    for key in call.arguments.from(1).iter() {
        if keys.insert((call.hold.database, key.into())) {
            call.hold.watch(key, watcher);
        }
    }
    client.shared.facts.lock().watched = keys.len();
    call.reply.ok();
    Ok(())
}

pub(crate) fn unwatch(call: &mut Call) -> Outcome {
    end_watch(call.client()?, call.hold);
    call.reply.ok();
    Ok(())
}

pub(crate) fn take_queue(client: &Client) -> Option<Queue> {
    client.shared.facts.lock().queued = -1;
    client.queue.borrow_mut().take()
}

/// Ends watching; whether a watched key has changed. The stripes of these keys are held.
fn end_watch(client: &Client, hold: &mut Hold) -> bool {
    let Some(watch) = take_watch(client) else { return false };
    let selected = hold.database;
    for (database, key) in &watch.keys {
        hold.database = *database;
        // A key that has expired since is removed now, which marks its watchers.
        hold.remove_expired(key);
    }
    hold.database = selected;
    watch.end(hold);
    watch.watcher.is_changed()
}

fn take_watch(client: &Client) -> Option<Watch> {
    let watch = client.watch.borrow_mut().take()?;
    client.shared.facts.lock().watched = 0;
    Some(watch)
}

impl Watch {
    /// The keys have this watcher no longer. Their stripes are held.
    fn end(&self, hold: &mut Hold) {
        let selected = hold.database;
        for (database, key) in &self.keys {
            hold.database = *database;
            hold.unwatch(key, &self.watcher);
        }
        hold.database = selected;
    }
}

/// Ends watching, for a client that holds no stripes. It waits for none: a script may hold them.
pub(crate) fn forget_watch(server: &Server, client: &Client) {
    let stripes = watched_stripes(&server.keyspace, client);
    let Some(watch) = take_watch(client) else { return };
    match server.keyspace.try_lock(stripes, 0, None) {
        Some(mut hold) => watch.end(&mut hold),
        None => server.left_watches.lock().push(watch),
    }
}

/// Ends what clients have watched that did not wait for it. Neither does this.
pub(crate) fn end_left_watches(server: &Server) {
    let left = std::mem::take(&mut *server.left_watches.lock());
    for watch in left {
        let stripes = watch.stripes(&server.keyspace);
        match server.keyspace.try_lock(stripes, 0, None) {
            Some(mut hold) => watch.end(&mut hold),
            None => server.left_watches.lock().push(watch),
        }
    }
}
