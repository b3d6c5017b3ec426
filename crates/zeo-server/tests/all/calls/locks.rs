//! A model of object locks: a list of requests in the order of asking.
//!
//! A request is granted if no earlier one in the list wants the same object in an incompatible
//! mode. A waiting request holds no locks, but later requests queue behind it.

use std::collections::BTreeSet;

use zodium_types::Oid;

/// The locks that a vote requests, all at once.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    pub(super) exclusive: BTreeSet<Oid>,
    pub(super) shared: BTreeSet<Oid>,
}

#[derive(Debug, Default)]
pub(super) struct Locks {
    requests: Vec<Request>,
}

#[derive(Debug)]
struct Request {
    client: usize,
    wanted: Wanted,
    granted: bool,
}

impl Locks {
    /// Whether a request would be granted at once.
    pub(super) fn are_free(&self, wanted: &Wanted) -> bool {
        !self.requests.iter().any(|request| request.wanted.conflicts(wanted))
    }

    /// Adds a request; returns whether it is granted at once.
    pub(super) fn request(&mut self, client: usize, wanted: Wanted) -> bool {
        let granted = self.are_free(&wanted);
        self.requests.push(Request { client, wanted, granted });
        granted
    }

    /// Removes the request of a client; returns the clients whose requests are granted by it, in
    /// order.
    pub(super) fn release(&mut self, client: usize) -> Vec<usize> {
        self.requests.retain(|request| request.client != client);
        let mut granted = Vec::new();
        for index in 0..self.requests.len() {
            let (before, rest) = self.requests.split_at_mut(index);
            let Some(request) = rest.first_mut().filter(|request| !request.granted) else {
                continue;
            };
            if !before.iter().any(|earlier| earlier.wanted.conflicts(&request.wanted)) {
                request.granted = true;
                granted.push(request.client);
            }
        }
        granted
    }
}

impl Wanted {
    fn conflicts(&self, other: &Wanted) -> bool {
        self.exclusive.iter().any(|oid| other.exclusive.contains(oid) || other.shared.contains(oid))
            || self.shared.iter().any(|oid| other.exclusive.contains(oid))
    }
}
