//! Commits as a stream: each is published on the channel of its storage, `zodb:NAME`.

use std::fmt::Write;

use crate::clients::Clients;
use crate::publishing::Publishing;
use crate::storages::{Commit, PREFIX};

/// Publishes commits of a storage to the subscribers of its channel.
pub(crate) fn publish(
    publishing: &Publishing,
    clients: &Clients,
    (storage, name): (usize, &str),
    commits: &[Commit],
) {
    if publishing.is_unused() {
        return;
    }
    let channel = [PREFIX, name.as_bytes()].concat();
    for commit in commits {
        let payload = || message(commit).into_bytes();
        publishing.publish_of(clients, Some(storage), &channel, payload);
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
