//! Clients that wait for a list or a sorted set to be filled.
//!
//! Key decision: a command that waits is tried again, as a whole, by the worker whose client has
//! filled one of its keys: right after that command or transaction, first come first served. What
//! was taken goes to the client's worker with the letter that ends the waiting.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use bytes::BytesMut;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use zodium_keyspace::{DATABASES, EntryRef, Removed, Stripes, ValueRef, Word, now};
use zodium_resp::{Arguments, OwnedRequest, Version};

use crate::call::{Blocking, Call};
use crate::client::ClientShared;
use crate::commands::{Awaits, Command, Run, flags};
use crate::reply::Reply;
use crate::{Letter, Server};

/// A command that waits.
pub(crate) struct Waiter {
    /// Its place in the order of all.
    number: u64,
    client: Arc<ClientShared>,
    version: Version,
    database: usize,
    command: &'static Command,
    request: OwnedRequest,
    stripes: Stripes,
    /// Whether its client is told of changes of the keys that it reads.
    is_remembered: bool,
    /// Whether it is served, or its client has given up. Locked after the stripes.
    is_over: Mutex<bool>,
}

/// Commands that wait for a key, by their numbers.
type InOrder = BTreeMap<u64, Arc<Waiter>>;

/// All commands that wait.
#[derive(Default)]
pub(crate) struct Waiting {
    /// Number of them. Written under the stripes of their keys, so that a command that fills one
    /// of these sees it.
    count: AtomicUsize,
    number: AtomicU64,
    /// Whether any was not served, since the log could not be written, or a script took long.
    is_put_off: AtomicBool,
    /// Locked last, and never while another lock is waited for.
    index: Mutex<Index>,
}

#[derive(Default)]
struct Index {
    by_key: FxHashMap<(usize, Word), InOrder>,
    /// A client waits with one command at a time.
    by_client: FxHashMap<u64, Arc<Waiter>>,
}

impl Waiter {
    /// The place of a key among those that it waits for.
    fn place_of(&self, key: &[u8]) -> Option<usize> {
        let mut keys = keys_waited_for(self.command, self.request.arguments());
        keys.position(|other| other == key)
    }
}

impl Waiting {
    /// Whether any command waits.
    pub(crate) fn is_any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Number of commands that wait.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Has a command wait. The caller holds the stripes of its keys.
    pub(crate) fn enter(
        &self,
        call: &Call,
        client: Arc<ClientShared>,
        command: &'static Command,
        stripes: Stripes,
    ) -> Arc<Waiter> {
        let waiter = Arc::new(Waiter {
            number: self.number.fetch_add(1, Ordering::Relaxed) + 1,
            client,
            version: call.reply.version,
            database: call.hold.database,
            command,
            request: call.waits_as.clone().unwrap_or_else(|| call.arguments.to_request()),
            stripes,
            is_remembered: call.is_remembered(command),
            is_over: Mutex::new(false),
        });
        self.count.fetch_add(1, Ordering::Relaxed);
        let mut index = self.index.lock();
        index.by_client.insert(waiter.client.id, Arc::clone(&waiter));
        for key in keys_waited_for(command, call.arguments) {
            let waiters = index.by_key.entry((waiter.database, key.into())).or_default();
            waiters.insert(waiter.number, Arc::clone(&waiter));
        }
        waiter
    }

    /// Ends a command's waiting, unless it was served; whether it was not.
    pub(crate) fn leave(&self, waiter: &Waiter) -> bool {
        let mut is_over = waiter.is_over.lock();
        let leaves = !std::mem::replace(&mut *is_over, true);
        drop(is_over);
        if leaves {
            self.remove(waiter);
        }
        leaves
    }

    fn remove(&self, waiter: &Waiter) {
        self.count.fetch_sub(1, Ordering::Relaxed);
        let mut index = self.index.lock();
        index.by_client.remove(&waiter.client.id);
        for key in keys_waited_for(waiter.command, waiter.request.arguments()) {
            let place = (waiter.database, Word::from(key));
            if let Some(waiters) = index.by_key.get_mut(&place) {
                waiters.remove(&waiter.number);
                if waiters.is_empty() {
                    index.by_key.remove(&place);
                }
            }
        }
    }

    /// What a client waits with, if it waits.
    pub(crate) fn of_client(&self, client: u64) -> Option<Arc<Waiter>> {
        self.index.lock().by_client.get(&client).cloned()
    }

    /// The first command that waits for a key, after those up to a number.
    fn after(&self, key: &Removed, number: u64) -> Option<Arc<Waiter>> {
        let index = self.index.lock();
        let waiters = index.by_key.get(&(key.database, key.key.clone()))?;
        waiters.range(number + 1..).next().map(|(_, waiter)| Arc::clone(waiter))
    }

    /// All keys of a database that commands wait for: those first for which one has waited longest.
    pub(crate) fn keys_of(&self, database: usize) -> Vec<Removed> {
        let index = self.index.lock();
        let of_database = index.by_key.iter().filter(|((of, _), _)| *of == database);
        let mut keys: Vec<_> = of_database
            .map(|((_, key), waiters)| {
                let first = waiters
                    .first_key_value()
                    .map(|(number, waiter)| (*number, waiter.place_of(key)));
                (first, Removed { database, key: key.clone() })
            })
            .collect();
        keys.sort_unstable_by_key(|(first, _)| *first);
        keys.into_iter().map(|(_, key)| key).collect()
    }
}

/// The keys that a command waits for.
fn keys_waited_for<'a>(
    command: &Command,
    arguments: Arguments<'a>,
) -> impl Iterator<Item = &'a [u8]> {
    let is_of_first = command.awaits == Awaits::SourceList;
    command.keys_of(arguments).take(if is_of_first { 1 } else { usize::MAX })
}

/// Whether a value may be what a command waits for: it is not tried again for one of another type.
fn may_serve(command: &Command, value: Option<ValueRef<'_>>) -> bool {
    match command.awaits {
        Awaits::List | Awaits::SourceList => matches!(value, Some(ValueRef::List(_))),
        Awaits::SortedSet => matches!(value, Some(ValueRef::SortedSet(_))),
        Awaits::Stream => matches!(value, Some(ValueRef::Stream(_))),
        Awaits::Any => true,
    }
}

/// Serves the commands that wait for keys which have come into being. The caller holds no
/// stripes.
pub(crate) fn serve(server: &Server, created: Vec<Removed>) {
    let mut created = VecDeque::from(created);
    while let Some(key) = created.pop_front() {
        let mut number = 0;
        while let Some(waiter) = server.waiting.after(&key, number) {
            number = waiter.number;
            let (is_there, more) = try_again(server, &waiter, &key);
            created.extend(more);
            if !is_there {
                break;
            }
        }
    }
}

/// Serves the commands that were not served while the log could not be written, or a script took
/// long. The caller holds no stripes.
pub(crate) fn serve_put_off(server: &Server) {
    let is_put_off = &server.waiting.is_put_off;
    if is_put_off.load(Ordering::Relaxed) && server.log.check().is_ok() {
        // Another failure sets it again.
        is_put_off.store(false, Ordering::Relaxed);
        serve(server, (0..DATABASES).flat_map(|number| server.waiting.keys_of(number)).collect());
    }
}

/// Executes a command that waits. Returns whether the key is still there, as far as is known, and
/// keys that the command itself has filled.
fn try_again(server: &Server, waiter: &Waiter, key: &Removed) -> (bool, Vec<Removed>) {
    // A script may hold some of its stripes, or the gate of several. Clients of this worker do not
    // wait for that any longer than for their own commands: one of them may end the script.
    let Ok(mut hold) = server.lock(waiter.stripes, now()) else {
        server.waiting.is_put_off.store(true, Ordering::Relaxed);
        return (false, Vec::new());
    };
    hold.database = waiter.database;
    hold.news.filled.is_noted = true;
    let mut is_over = waiter.is_over.lock();
    let mut buffer = BytesMut::new();
    let value = hold.entry(&key.key).map(EntryRef::value);
    let may_serve = may_serve(waiter.command, value);
    // The letter that ends the connection of a killed client may still be on its way.
    let waits = !*is_over && !waiter.client.is_killed.load(Ordering::Relaxed);
    let (Run::Data(run), true, true) = (waiter.command.run, waits, may_serve) else {
        return (hold.has(&key.key), Vec::new());
    };
    if waiter.command.has(flags::WRITE) && server.log.check().is_err() {
        // As other commands that write. It would take what its client may not be told of.
        server.waiting.is_put_off.store(true, Ordering::Relaxed);
        return (true, Vec::new());
    }
    let (arguments, reply) =
        (waiter.request.arguments(), Reply::to_buffer(&mut buffer, waiter.version));
    let mut call = Call::new((server, None), &mut hold, arguments, reply);
    call.blocking = Blocking::May;
    let outcome = call.execute(waiter.command, run);
    let still_waits = matches!(call.blocking, Blocking::Waits { .. });
    if let Err(fail) = outcome {
        call.reply.error(&fail.0);
    }
    if waiter.is_remembered && !still_waits {
        // What was entered when it came has been told of the change that serves it.
        call.remember_for(waiter.command, waiter.client.id);
    }
    let position = server.log.append(&mut hold);
    if !still_waits {
        *is_over = true;
        server.waiting.remove(waiter);
        let worker = waiter.client.worker.load(Ordering::Relaxed);
        let (client, answer) = (waiter.client.id, buffer.freeze());
        server.clients.send(worker, Letter::Served { client, answer, position });
    }
    drop(is_over);
    // After the answer, for the client itself.
    server.tracking.invalidate(&server.clients, &mut hold);
    let is_there = hold.has(&key.key);
    (is_there, server.unlock(hold))
}
