//! Channels: subscriptions, and publishing to them.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use zodium_keyspace::Word;

use crate::client::Client;
use crate::glob;
use crate::{Letter, Server};

/// The subscribers of channels and of patterns.
#[derive(Default)]
pub(crate) struct Channels {
    pub(crate) channels: FxHashMap<Word, Vec<Subscriber>>,
    pub(crate) patterns: FxHashMap<Word, Vec<Subscriber>>,
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
    payload: Word,
    /// The storage that it comes from, which not every client may use.
    storage: Option<usize>,
}

impl Channels {
    /// Whether there is no subscriber.
    pub(crate) fn is_empty(&self) -> bool {
        self.channels.is_empty() && self.patterns.is_empty()
    }
}

impl Server {
    /// Publishes a message; returns the number of subscriptions that it is sent for.
    pub(crate) fn publish(&self, channel: &[u8], payload: &[u8]) -> usize {
        self.publish_of(None, channel, || payload.to_vec())
    }

    /// As [`Server::publish`], for a message of a storage, which is made if it has receivers.
    pub(crate) fn publish_of(
        &self,
        storage: Option<usize>,
        channel: &[u8],
        payload: impl FnOnce() -> Vec<u8>,
    ) -> usize {
        let channels = self.channels.read();
        let of_channel = channels.channels.get(channel).map(|of_channel| (None, of_channel));
        let fitting = channels.patterns.iter().filter(|(pattern, _)| glob::fits(pattern, channel));
        let of_patterns = fitting.map(|(pattern, of_pattern)| (Some(pattern.clone()), of_pattern));
        let mut all = of_channel.into_iter().chain(of_patterns).peekable();
        if all.peek().is_none() {
            return 0;
        }
        let payload: Word = payload().into();
        let send = |(pattern, subscribers): (Option<Word>, &Vec<Subscriber>)| {
            let (channel, payload) = (channel.into(), payload.clone());
            self.send_to(subscribers, Publication { channel, pattern, payload, storage })
        };
        all.map(send).sum()
    }

    /// Sends each worker one letter for all its clients. Subscriptions cannot change meanwhile, so
    /// that messages of one publisher come in order.
    fn send_to(&self, subscribers: &[Subscriber], publication: Publication) -> usize {
        let publication = Arc::new(publication);
        let mut by_worker: FxHashMap<usize, Vec<u64>> = FxHashMap::default();
        for Subscriber { client, worker } in subscribers {
            by_worker.entry(*worker).or_default().push(*client);
        }
        for (worker, clients) in by_worker {
            let publication = Arc::clone(&publication);
            self.clients.send(worker, Letter::Published { clients, publication });
        }
        subscribers.len()
    }
}

impl Publication {
    /// Sends it to a client, if the client is still subscribed, and may see it.
    pub(crate) fn deliver(&self, server: &Server, client: &Client) {
        if self.storage.is_some_and(|storage| !server.may_see(client, storage)) {
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
        client.push(|reply| {
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
            reply.bulk(&self.payload);
        });
    }
}
