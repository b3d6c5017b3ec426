//! Clients with a cache of their own, which are told when keys change: `CLIENT TRACKING`.
//!
//! Key decision: a read enters its keys while it holds their stripes, and a change sends its
//! messages before it unlocks them. So a client never keeps a value that has changed, without a
//! message on its way. While no client tracks keys, a hold reads one counter.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use zodium_keyspace::{Hold, Removed, Word};

use crate::call::Call;
use crate::clients::Clients;
use crate::commands::flags;
use crate::tracked::{Reads, Tracked};
use crate::{Client, Command, Letter, LocalServer};

/// The channel on which RESP2 clients get invalidations.
const CHANNEL: &[u8] = b"__redis__:invalidate";

/// All clients that are told of changes.
#[derive(Default)]
pub(crate) struct Tracking {
    /// Number of them. A client that reads a key was counted before; the lock of the key's stripe
    /// orders that before later changes.
    count: AtomicUsize,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    clients: FxHashMap<u64, Tracker>,
    /// The clients that have read a key since they were told of it. Databases are not told apart.
    readers: FxHashMap<Word, FxHashSet<u64>>,
    /// Number of clients of all keys.
    items: usize,
    /// The clients of each prefix.
    prefixes: BTreeMap<Word, BTreeSet<u64>>,
}

/// What others need to know of a client that is told of changes.
struct Tracker {
    /// It stays with its worker.
    worker: usize,
    redirect: u64,
    skips_own: bool,
    is_broadcast: bool,
}

/// Keys that have changed, on their way to a client.
pub(crate) struct Invalidation {
    /// The client that tracks them.
    client: u64,
    /// The client that gets the message, which may be the same; 0 if none was named.
    redirect: u64,
    /// `None` for all keys.
    keys: Option<Arc<[Word]>>,
}

/// Sums for `INFO`.
pub(crate) struct TrackingTotals {
    pub(crate) clients: usize,
    pub(crate) keys: usize,
    pub(crate) items: usize,
    pub(crate) prefixes: usize,
}

impl Tracking {
    /// Whether any client is told of changes.
    pub(crate) fn is_any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn totals(&self) -> TrackingTotals {
        let table = self.table.lock();
        TrackingTotals {
            clients: table.clients.len(),
            keys: table.readers.len(),
            items: table.items,
            prefixes: table.prefixes.len(),
        }
    }

    /// Has a client of a worker be told of changes as it wishes, from now on.
    pub(crate) fn track(&self, client: &Client, worker: usize, wish: Tracked) {
        let is_broadcast = wish.reads == Reads::Broadcast;
        let mut table = self.table.lock();
        let (redirect, skips_own) = (wish.redirect, wish.skips_own);
        table.clients.insert(client.id(), Tracker { worker, redirect, skips_own, is_broadcast });
        for prefix in &wish.prefixes {
            table.prefixes.entry(prefix.clone()).or_default().insert(client.id());
        }
        self.count.store(table.clients.len(), Ordering::Relaxed);
        drop(table);
        let mut facts = client.shared.facts.lock();
        (facts.redirect, facts.is_broadcast) = (Some(wish.redirect), is_broadcast);
        facts.is_broken = false;
        drop(facts);
        *client.tracked.borrow_mut() = Some(wish);
    }

    /// Ends telling a client of changes.
    pub(crate) fn untrack(&self, client: &Client) {
        client.is_caching.set(false);
        if client.tracked.borrow_mut().take().is_none() {
            return;
        }
        let mut table = self.table.lock();
        table.remove(client.id());
        self.count.store(table.clients.len(), Ordering::Relaxed);
        drop(table);
        let mut facts = client.shared.facts.lock();
        (facts.redirect, facts.is_broadcast, facts.is_broken) = (None, false, false);
    }

    /// Tells clients of what a hold has changed. Its stripes are locked still.
    pub(crate) fn invalidate(&self, receivers: &Clients, hold: &mut Hold) {
        self.invalidate_readers(receivers, hold);
        let keys = hold.news.take_altered();
        if !keys.is_empty() {
            self.table.lock().tell_broadcast(receivers, &keys, hold.news.changer);
        }
    }

    /// Tells the clients that have read what a hold has changed until now. As with the stock
    /// server, those that are told of prefixes get one message for the whole hold.
    pub(crate) fn invalidate_readers(&self, receivers: &Clients, hold: &mut Hold) {
        let changer = hold.news.changer;
        match hold.news.tell_altered() {
            None => self.invalidate_all(receivers),
            Some([]) => {}
            Some(keys) => {
                let mut table = self.table.lock();
                keys.iter().for_each(|key| table.tell_readers(receivers, key, changer));
            }
        }
    }

    /// Tells clients of keys that were removed by the server itself.
    pub(crate) fn invalidate_removed(&self, receivers: &Clients, removed: &[Removed]) {
        if !removed.is_empty() && self.is_any() {
            let keys: Vec<Word> = removed.iter().map(|removed| removed.key.clone()).collect();
            let mut table = self.table.lock();
            keys.iter().for_each(|key| table.tell_readers(receivers, key, 0));
            table.tell_broadcast(receivers, &keys, 0);
        }
    }

    /// Forgets keys beyond the most that are remembered, 0 for all, and tells their readers.
    pub(crate) fn limit(&self, receivers: &Clients, keys_max: i64) {
        if !self.is_any() {
            return;
        }
        let most = usize::try_from(keys_max).ok().filter(|most| *most > 0).unwrap_or(usize::MAX);
        let mut table = self.table.lock();
        let excess = table.readers.len().saturating_sub(most);
        let forgotten: Vec<Word> = table.readers.keys().take(excess).cloned().collect();
        for key in forgotten {
            table.tell_readers(receivers, &key, 0);
        }
    }

    /// Tells all clients that any key may have changed.
    fn invalidate_all(&self, receivers: &Clients) {
        let mut table = self.table.lock();
        (table.readers, table.items) = (FxHashMap::default(), 0);
        for (client, tracker) in &table.clients {
            tracker.tell(receivers, *client, None);
        }
    }
}

impl Table {
    /// Takes the clients that have read a key.
    fn take_readers(&mut self, key: &[u8]) -> FxHashSet<u64> {
        let readers = self.readers.remove(key).unwrap_or_default();
        self.items -= readers.len();
        readers
    }

    fn enter(&mut self, key: &[u8], client: u64) {
        let readers = match self.readers.get_mut(key) {
            Some(readers) => readers,
            None => self.readers.entry(key.into()).or_default(),
        };
        // Before more memory is taken, those go that have left. If they are few, the set grows, so
        // that they are not looked for again soon.
        if readers.len() == readers.capacity() && !readers.contains(&client) {
            let before = readers.len();
            readers.retain(|reader| self.clients.contains_key(reader));
            self.items -= before - readers.len();
            if readers.len() > before / 2 {
                readers.reserve(before);
            }
        }
        self.items += usize::from(readers.insert(client));
    }

    fn remove(&mut self, client: u64) {
        self.clients.remove(&client);
        self.prefixes.retain(|_, clients| {
            clients.remove(&client);
            !clients.is_empty()
        });
        if self.clients.is_empty() {
            // Nothing that changes from now on is noted.
            (self.readers, self.items) = (FxHashMap::default(), 0);
        }
    }

    /// Tells the clients that have read a key, and forgets that they have.
    fn tell_readers(&mut self, receivers: &Clients, key: &Word, changer: u64) {
        let readers = self.take_readers(key);
        if readers.is_empty() {
            return;
        }
        let keys: Arc<[Word]> = [key.clone()].into();
        for (client, tracker) in readers.iter().filter_map(|id| self.clients.get_key_value(id)) {
            if !(tracker.is_broadcast || tracker.skips_own && *client == changer) {
                tracker.tell(receivers, *client, Some(Arc::clone(&keys)));
            }
        }
    }

    /// Tells clients of changed keys that begin with their prefixes.
    fn tell_broadcast(&self, receivers: &Clients, keys: &[Word], changer: u64) {
        for (prefix, clients) in &self.prefixes {
            let mut fitting: Vec<&Word> =
                keys.iter().filter(|key| key.starts_with(prefix)).collect();
            fitting.sort_unstable();
            fitting.dedup();
            if fitting.is_empty() {
                continue;
            }
            let fitting: Arc<[Word]> = fitting.into_iter().cloned().collect();
            for (client, tracker) in clients.iter().filter_map(|id| self.clients.get_key_value(id))
            {
                if !(tracker.skips_own && *client == changer) {
                    tracker.tell(receivers, *client, Some(Arc::clone(&fitting)));
                }
            }
        }
    }
}

impl Tracker {
    /// Sends the client, or the one that gets its messages, keys that have changed.
    fn tell(&self, receivers: &Clients, client: u64, keys: Option<Arc<[Word]>>) {
        let redirect = self.redirect;
        let worker = match redirect {
            0 => Some(self.worker),
            _ => receivers.worker_of(redirect),
        };
        match worker {
            Some(worker) => {
                let invalidation = Invalidation { client, redirect, keys };
                receivers.send(worker, Letter::Invalidated(invalidation));
            }
            None => receivers.send(self.worker, Letter::RedirectBroken { client }),
        }
    }
}

impl Call<'_, '_> {
    /// Enters the keys that a command has read, if the client is to be told of their changes.
    pub(crate) fn remember(&mut self, command: &Command) {
        if let Some(client) = self.client
            && self.is_remembered(command)
        {
            self.remember_for(command, client.id());
        }
    }

    /// Whether the client is to be told of changes of the keys that a command reads.
    pub(crate) fn is_remembered(&self, command: &Command) -> bool {
        let Some(client) = self.client else { return false };
        let tracked = client.tracked.borrow();
        let is_wanted = match tracked.as_ref().map(|tracked| tracked.reads) {
            Some(Reads::All) => true,
            Some(Reads::OptIn) => client.is_caching.get(),
            Some(Reads::OptOut) => !client.is_caching.get(),
            Some(Reads::Broadcast) | None => false,
        };
        // The commands that a script calls enter their keys themselves.
        is_wanted && !command.is_script() && command.has(flags::READONLY)
    }

    /// Enters the keys that a command has read for a client.
    pub(crate) fn remember_for(&mut self, command: &Command, client: u64) {
        let mut table = self.server.tracking.table.lock();
        for key in command.keys_of(self.arguments) {
            table.enter(key, client);
        }
        // A commit that has cut a tie meanwhile may have looked for readers before.
        if self.hold.misses_cuts() {
            for key in command.keys_of(self.arguments) {
                table.tell_readers(&self.server.clients, &key.into(), 0);
            }
        }
    }
}

impl LocalServer {
    /// Sends keys that have changed to a client of this worker.
    pub(crate) fn invalidate(&self, invalidation: Invalidation) {
        let Invalidation { client, redirect, keys } = invalidation;
        let is_redirected = redirect != 0;
        let target = if is_redirected { redirect } else { client };
        let Some(receiver) = self.client(target) else {
            // It has gone while the message was on its way.
            let worker = self.server.clients.worker_of(client);
            if let Some(worker) = worker.filter(|_| is_redirected) {
                self.server.clients.send(worker, Letter::RedirectBroken { client });
            }
            return;
        };
        let is_subscriber = is_redirected && receiver.subscriptions.borrow().count() > 0;
        receiver.push(|reply| {
            match (reply.is_resp3(), is_subscriber) {
                (true, _) => {
                    reply.push(2);
                    reply.bulk(b"invalidate");
                }
                (false, true) => {
                    reply.push(3);
                    reply.bulk(b"message");
                    reply.bulk(CHANNEL);
                }
                // RESP2 has no place for it.
                (false, false) => return,
            }
            match &keys {
                Some(keys) => reply.words(keys),
                None => reply.null(),
            }
        });
    }
}

impl Client {
    /// Notes, and tells the client, that the receiver of its invalidations has gone.
    pub(crate) fn note_broken_redirect(&self) {
        let mut tracked = self.tracked.borrow_mut();
        let Some(tracked) = tracked.as_mut() else { return };
        tracked.is_broken = true;
        self.shared.facts.lock().is_broken = true;
        let redirect = i64::try_from(tracked.redirect).unwrap_or(0);
        self.push(|reply| {
            if reply.is_resp3() {
                reply.push(2);
                reply.bulk(b"tracking-redir-broken");
                reply.integer(redirect);
            }
        });
    }
}
