//! What clients are told without having asked: messages, events of keys, invalidations.

use std::collections::BTreeSet;

use super::content::Place;
use super::{Caller, Model};
use crate::resp::reply::Reply;
use crate::resp::stream::Source;

/// How a client is told of changes, for its cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cache {
    /// Whether it is told of all keys, or of those that it has read.
    pub(super) is_broadcast: bool,
    /// Whether it is not told of its own changes.
    pub(super) skips_own: bool,
}

/// Commands whose keys a client with a cache has read.
const READS: [&[u8]; 11] = [
    b"GET", b"MGET", b"EXISTS", b"TYPE", b"PTTL", b"LLEN", b"LRANGE", b"ZRANGE", b"ZCARD",
    b"XREAD", b"XLEN",
];

impl Model {
    /// Notes a change of a key, and tells of it.
    pub(super) fn changed(&mut self, caller: Caller, place: &Place, event: &'static str) {
        self.touch(place);
        self.altered.push(place.1.clone());
        self.notify(caller, place, event);
    }

    /// Transactions of clients that watch a key will not be executed.
    pub(super) fn touch(&mut self, place: &Place) {
        for session in self.sessions.values_mut() {
            session.is_dirty |= session.watched.contains(place);
        }
    }

    /// Publishes an event of a key.
    pub(super) fn notify(&mut self, caller: Caller, (database, key): &Place, event: &'static str) {
        if !self.has_events {
            return;
        }
        self.tell_readers(caller.changes_as);
        self.happened.push("event");
        let of_key = [format!("__keyspace@{database}__:").as_bytes(), key].concat();
        self.publish(&of_key, event.as_bytes());
        self.publish(format!("__keyevent@{database}__:{event}").as_bytes(), key);
    }

    /// Sends a message; how many subscriptions it is for.
    pub(super) fn publish(&mut self, channel: &[u8], message: &[u8]) -> usize {
        let mut receivers = 0;
        for session in self.sessions.values_mut() {
            if session.channels.contains(channel) {
                receivers += 1;
                let words = [b"message", channel, message].map(Reply::bulk);
                let bytes = Reply::Push(words.to_vec()).encoded(session.is_resp3);
                session.stream.message(bytes, Source::Channel(channel.to_vec()));
            }
            let fits = |pattern: &&Vec<u8>| {
                let begin = pattern.strip_suffix(b"*").unwrap_or(pattern);
                channel.starts_with(begin)
            };
            for pattern in session.patterns.iter().filter(fits) {
                receivers += 1;
                let words = [b"pmessage", &pattern[..], channel, message].map(Reply::bulk);
                let bytes = Reply::Push(words.to_vec()).encoded(session.is_resp3);
                session.stream.message(bytes, Source::Pattern(pattern.clone()));
            }
        }
        self.happened.extend((receivers > 0).then_some("message"));
        receivers
    }

    /// A client subscribes, or no longer does; the answer.
    pub(super) fn subscribe(&mut self, connection: usize, request: &[Vec<u8>]) -> Reply {
        let Some(session) = self.sessions.get_mut(&connection) else { return Reply::None };
        let name = request[1].clone();
        let word = String::from_utf8_lossy(&request[0]).to_ascii_lowercase();
        match &*word {
            "subscribe" => drop(session.channels.insert(name.clone())),
            "psubscribe" => drop(session.patterns.insert(name.clone())),
            "unsubscribe" => {
                session.channels.remove(&name);
                session.stream.unsubscribe(&Source::Channel(name.clone()));
            }
            _ => {
                session.patterns.remove(&name);
                session.stream.unsubscribe(&Source::Pattern(name.clone()));
            }
        }
        let count = Reply::count(session.channels.len() + session.patterns.len());
        Reply::Push(vec![Reply::bulk(word), Reply::Bulk(name), count])
    }

    /// Notes the keys that a command has read, if its client has a cache.
    pub(super) fn remember(&mut self, connection: usize, request: &[Vec<u8>]) {
        if !self.remembers(connection, request) {
            return;
        }
        let keys: Vec<_> = super::keys_of(request).to_vec();
        for key in keys {
            self.readers.entry(key).or_default().insert(connection);
        }
    }

    /// Whether a client is told of changes of what a command reads.
    pub(super) fn remembers(&self, connection: usize, request: &[Vec<u8>]) -> bool {
        let cache = self.sessions.get(&connection).and_then(|session| session.cache);
        cache.is_some_and(|cache| !cache.is_broadcast) && READS.contains(&&*request[0])
    }

    /// A client begins to be told of changes, or ends it.
    pub(super) fn track(&mut self, connection: usize, cache: Option<Cache>) {
        if let Some(session) = self.sessions.get_mut(&connection) {
            session.cache = cache;
        }
        self.forget_readers();
    }

    /// Without clients with caches nothing is remembered.
    pub(super) fn forget_readers(&mut self) {
        if self.sessions.values().all(|session| session.cache.is_none()) {
            self.readers.clear();
        }
    }

    /// Tells clients of what has changed, now that a command or a transaction has ended.
    pub(super) fn tell_changes(&mut self, changer: Option<usize>) {
        self.tell_readers(changer);
        let keys: BTreeSet<_> = std::mem::take(&mut self.altered).into_iter().collect();
        self.told = 0;
        if !keys.is_empty() {
            let keys: Vec<_> = keys.iter().map(Reply::bulk).collect();
            let tracking = self.sessions.iter();
            let tracking = tracking.filter(|(_, s)| s.cache.is_some_and(|c| c.is_broadcast));
            let clients: Vec<usize> = tracking.map(|(client, _)| *client).collect();
            for client in clients {
                self.invalidate(client, changer, Reply::Array(keys.clone()));
            }
        }
    }

    /// Tells clients of changes of what they have read.
    pub(super) fn tell_readers(&mut self, changer: Option<usize>) {
        if std::mem::take(&mut self.is_all_altered) {
            self.readers.clear();
            (self.told, self.altered) = (0, Vec::new());
            for client in self.sessions.keys().copied().collect::<Vec<_>>() {
                self.invalidate(client, None, Reply::Null);
            }
        }
        let from = std::mem::replace(&mut self.told, self.altered.len());
        let untold: Vec<_> = self.altered[from..].to_vec();
        for key in untold {
            for client in self.readers.remove(&key).unwrap_or_default() {
                let cache = self.sessions.get(&client).and_then(|session| session.cache);
                if cache.is_some_and(|cache| !cache.is_broadcast) {
                    self.invalidate(client, changer, Reply::Array(vec![Reply::bulk(&key)]));
                }
            }
        }
    }

    fn invalidate(&mut self, client: usize, changer: Option<usize>, keys: Reply) {
        let Some(session) = self.sessions.get_mut(&client) else { return };
        let Some(cache) = session.cache else { return };
        if cache.skips_own && changer == Some(client) {
            return;
        }
        self.happened.push("invalidation");
        let message = Reply::Push(vec![Reply::bulk("invalidate"), keys]);
        session.stream.message(message.encoded(true), Source::Server);
    }
}
