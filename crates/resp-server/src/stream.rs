//! Commits as a stream: each is published on the channel of its storage, `zodb:NAME`.

use std::fmt::Write;

use crate::Server;
use crate::client::Client;
use crate::fail::Fail;
use crate::storages::Commit;

/// The beginning of the channels of storages, and of the keys of objects.
pub(crate) const PREFIX: &[u8] = b"zodb:";

impl Server {
    /// Publishes commits to the subscribers of a storage's channel.
    pub(crate) fn publish_commits(&self, storage: usize, commits: &[Commit]) {
        let Ok(storages) = self.storages() else { return };
        if self.publishing.is_unused() {
            return;
        }
        let channel = [PREFIX, storages.name(storage).as_bytes()].concat();
        for commit in commits {
            let payload = || message(commit).into_bytes();
            self.publishing.publish_of(&self.clients, Some(storage), &channel, payload);
        }
    }

    /// Whether messages of a channel come from a storage.
    pub(crate) fn is_stream(&self, channel: &[u8]) -> bool {
        channel.starts_with(PREFIX) && self.storages.get().is_some()
    }

    /// Checks that a client may subscribe to a channel.
    pub(crate) fn check_channel(&self, client: &Client, channel: &[u8]) -> Result<(), Fail> {
        match self.is_stream(channel) {
            true => self.admitted(&channel[PREFIX.len()..], client.identity()).map(drop),
            false => Ok(()),
        }
    }

    /// Whether a client may see messages of a storage.
    pub(crate) fn may_see(&self, client: &Client, storage: usize) -> bool {
        self.storages().is_ok_and(|storages| storages.admits(storage, client.identity()))
    }
}

/// The tid, then the oids, in 16 hexadecimal digits each.
fn message(commit: &Commit) -> String {
    let mut text = commit.tid.to_string();
    for oid in commit.oids {
        // Writing to a string does not fail.
        let _ = write!(text, " {oid}");
    }
    text
}
