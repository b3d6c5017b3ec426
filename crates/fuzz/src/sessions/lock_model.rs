//! Who holds the locks of which objects, and who waits for them: a list in the order of asking.
//!
//! A request is granted when nobody before it in the list wants the same object in a way that does
//! not go together. Who waits holds nothing, but what comes later waits behind it.

use std::collections::BTreeSet;

use zodium_types::Oid;

/// What a vote asks for, all at once.
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

    /// Adds a request; whether it is granted at once.
    pub(super) fn request(&mut self, client: usize, wanted: Wanted) -> bool {
        let granted = self.are_free(&wanted);
        self.requests.push(Request { client, wanted, granted });
        granted
    }

    /// Removes the request of a client; gives those that are granted by it, in their order.
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
