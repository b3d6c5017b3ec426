//! Channels: subscriptions, and publishing to them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::RwLock;
use rustc_hash::FxHashMap;
use zodium_keyspace::Word;

use crate::Letter;
use crate::beside::Beside;
use crate::client::Client;
use crate::clients::Clients;
use crate::events::{Class, Events};
use crate::glob;

/// The subscribers of channels and patterns, and the events of keys that are published.
#[derive(Default)]
pub(crate) struct Publishing {
    subscribers: RwLock<Subscribers>,
    events: Events,
    /// Number of messages of storages that had subscribers. It orders nothing.
    told: AtomicU64,
}

/// Channels or patterns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Channels,
    Patterns,
}

/// Subscribers by the names of their channels or patterns.
type ByName = FxHashMap<Word, Vec<Subscriber>>;

#[derive(Default)]
struct Subscribers {
    of_channels: ByName,
    of_patterns: ByName,
}

/// A client with subscriptions. It stays with its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Subscriber {
    pub(crate) client: u64,
    pub(crate) worker: usize,
}

/// A message on its way to clients.
pub(crate) struct Publication {
    channel: Word,
    /// The pattern that the channel fits; `None` for subscribers of the channel.
    pattern: Option<Word>,
    payload: Bytes,
    /// Its number among those of storages, from 1. A client gets it for each pattern that it fits.
    number: u64,
    /// The storage that it comes from, which not every client may use.
    storage: Option<usize>,
}

impl Subscribers {
    fn of(&mut self, kind: Kind) -> &mut ByName {
        match kind {
            Kind::Channels => &mut self.of_channels,
            Kind::Patterns => &mut self.of_patterns,
        }
    }

    fn remove(&mut self, kind: Kind, name: &[u8], client: u64) {
        let subscribers = self.of(kind);
        if let Some(of_name) = subscribers.get_mut(name) {
            of_name.retain(|subscriber| subscriber.client != client);
            if of_name.is_empty() {
                subscribers.remove(name);
            }
        }
    }
}

impl Publishing {
    /// Enters a subscription.
    pub(crate) fn subscribe(&self, kind: Kind, name: &[u8], subscriber: Subscriber) {
        let mut subscribers = self.subscribers.write();
        subscribers.of(kind).entry(name.into()).or_default().push(subscriber);
    }

    /// Ends a subscription of a client.
    pub(crate) fn unsubscribe(&self, kind: Kind, name: &[u8], client: u64) {
        self.subscribers.write().remove(kind, name, client);
    }

    /// Ends all subscriptions of a client that has gone.
    pub(crate) fn unsubscribe_all(&self, client: &Client) {
        let subscriptions = std::mem::take(&mut *client.subscriptions.borrow_mut());
        for channel in &subscriptions.channels {
            self.unsubscribe(Kind::Channels, channel, client.id());
        }
        for pattern in &subscriptions.patterns {
            self.unsubscribe(Kind::Patterns, pattern, client.id());
        }
    }

    /// Whether there is no subscriber.
    pub(crate) fn is_unused(&self) -> bool {
        self.counts() == (0, 0)
    }

    /// Number of channels, and of patterns, that have subscribers.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let subscribers = self.subscribers.read();
        (subscribers.of_channels.len(), subscribers.of_patterns.len())
    }

    /// The channels that have subscribers, and whose names fit.
    pub(crate) fn channels(&self, fits: impl Fn(&[u8]) -> bool) -> Vec<Word> {
        let subscribers = self.subscribers.read();
        subscribers.of_channels.keys().filter(|name| fits(name)).cloned().collect()
    }

    /// Number of subscribers of each of these channels.
    pub(crate) fn subscribers_of<'a>(&self, names: impl Iterator<Item = &'a [u8]>) -> Vec<usize> {
        let subscribers = self.subscribers.read();
        names.map(|name| subscribers.of_channels.get(name).map_or(0, Vec::len)).collect()
    }

    /// The events of keys that are published.
    pub(crate) fn events(&self) -> &Events {
        &self.events
    }

    /// Publishes an event of a key, if it is asked for.
    pub(crate) fn announce(
        &self,
        clients: &Clients,
        (database, key): (usize, &[u8]),
        class: Class,
        event: &str,
    ) {
        let ways = self.events.ways(class);
        if ways.by_key {
            let channel = [format!("__keyspace@{database}__:").as_bytes(), key].concat();
            self.publish(clients, &channel, event.as_bytes());
        }
        if ways.by_event {
            let channel = format!("__keyevent@{database}__:{event}");
            self.publish(clients, channel.as_bytes(), key);
        }
    }

    /// Publishes a message; returns the number of subscriptions that it is sent for.
    pub(crate) fn publish(&self, clients: &Clients, channel: &[u8], payload: &[u8]) -> usize {
        self.publish_of(clients, None, channel, || payload.to_vec())
    }

    /// As [`Publishing::publish`], for a message of a storage, which is made if it has receivers.
    pub(crate) fn publish_of(
        &self,
        clients: &Clients,
        storage: Option<usize>,
        channel: &[u8],
        payload: impl FnOnce() -> Vec<u8>,
    ) -> usize {
        // Subscriptions cannot change meanwhile, so that messages of one publisher come in order.
        let subscribers = self.subscribers.read();
        let of_channel = subscribers.of_channels.get(channel).map(|of_channel| (None, of_channel));
        let of_patterns = subscribers.of_patterns.iter();
        let fitting = of_patterns.filter(|(pattern, _)| glob::fits(pattern, channel));
        let fitting = fitting.map(|(pattern, of_pattern)| (Some(pattern.clone()), of_pattern));
        let mut all = of_channel.into_iter().chain(fitting).peekable();
        if all.peek().is_none() {
            return 0;
        }
        let payload = Bytes::from(payload());
        let number = storage.map_or(0, |_| self.told.fetch_add(1, Ordering::Relaxed) + 1);
        let send = |(pattern, receivers): (Option<Word>, &Vec<Subscriber>)| {
            let (channel, payload) = (channel.into(), payload.clone());
            let publication = Publication { channel, pattern, payload, number, storage };
            send_to(clients, receivers, publication)
        };
        all.map(send).sum()
    }
}

/// Sends each worker one letter for all its clients.
fn send_to(clients: &Clients, receivers: &[Subscriber], publication: Publication) -> usize {
    let publication = Arc::new(publication);
    let mut by_worker: FxHashMap<usize, Vec<u64>> = FxHashMap::default();
    for Subscriber { client, worker } in receivers {
        by_worker.entry(*worker).or_default().push(*client);
    }
    for (worker, clients_there) in by_worker {
        let publication = Arc::clone(&publication);
        clients.send(worker, Letter::Published { clients: clients_there, publication });
    }
    receivers.len()
}

impl Publication {
    /// Sends it to a client, if the client is still subscribed, and may see it.
    pub(crate) fn deliver(&self, beside: &Beside, client: &Client) {
        if self.storage.is_some_and(|storage| !beside.may_see(client, storage)) {
            return;
        }
        let subscriptions = client.subscriptions.borrow();
        let is_subscribed = match &self.pattern {
            Some(pattern) => subscriptions.patterns.contains(pattern),
            None => subscriptions.channels.contains(&self.channel),
        };
        drop(subscriptions);
        if !is_subscribed {
            return;
        }
        let bytes = client.append(|reply| {
            match &self.pattern {
                Some(pattern) => {
                    reply.push(4);
                    reply.bulk(b"pmessage");
                    reply.bulk(pattern);
                }
                None => {
                    reply.push(3);
                    reply.bulk(b"message");
                }
            }
            reply.bulk(&self.channel);
            reply.shared(&self.payload);
        });
        match self.storage {
            Some(_) => self.note_told(client, bytes),
            None => client.link.note_push(bytes),
        }
        client.link.wake();
    }

    /// Counts the bytes of a commit. What it has written is sent whole, however much that is, and
    /// counts once for all patterns of the client that it fits.
    fn note_told(&self, client: &Client, bytes: usize) {
        let (bytes, before) = match client.told.get() {
            (number, before) if number == self.number => (bytes - self.payload.len(), before),
            _ => (bytes, 0),
        };
        let counted = client.link.note_shared_push(bytes, before);
        client.told.set((self.number, before + counted));
    }
}
