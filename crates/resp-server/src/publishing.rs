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
}

impl Server {
    /// Publishes a message; returns the number of subscriptions that it is sent for.
    pub(crate) fn publish(&self, channel: &[u8], payload: &[u8]) -> usize {
        let channels = self.channels.read();
        let mut receivers = 0;
        if let Some(subscribers) = channels.channels.get(channel) {
            receivers += self.send_to(subscribers, channel, None, payload);
        }
        for (pattern, subscribers) in &channels.patterns {
            if glob::fits(pattern, channel) {
                receivers += self.send_to(subscribers, channel, Some(pattern.clone()), payload);
            }
        }
        receivers
    }

    /// Sends each worker one letter for all its clients. Subscriptions cannot change meanwhile, so
    /// that messages of one publisher come in order.
    fn send_to(
        &self,
        subscribers: &[Subscriber],
        channel: &[u8],
        pattern: Option<Word>,
        payload: &[u8],
    ) -> usize {
        let publication =
            Arc::new(Publication { channel: channel.into(), pattern, payload: payload.into() });
        let mut by_worker: FxHashMap<usize, Vec<u64>> = FxHashMap::default();
        for Subscriber { client, worker } in subscribers {
            by_worker.entry(*worker).or_default().push(*client);
        }
        for (worker, clients) in by_worker {
            let publication = Arc::clone(&publication);
            self.send(worker, Letter::Published { clients, publication });
        }
        subscribers.len()
    }
}

impl Publication {
    /// Sends it to a client, if the client is still subscribed.
    pub(crate) fn deliver(&self, client: &Client) {
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
