//! The pending requests of a connection, and which thread reads the replies.
//!
//! Invariant: if there is no leader but a parked follower, one follower has been woken and will
//! take over. So no reply stays unread while all threads wait for each other.

use std::fs::File;
use std::sync::Arc;
use std::thread::{self, Thread};

use rustc_hash::FxHashMap;
use zodium_pickle::Value;
use zodium_types::{Oid, Tid};

use crate::Revision;
use crate::promise::Promise;

/// The reply to a load: a revision, or `None` if the object did not exist then.
pub(crate) type Loaded = Option<Revision>;
/// An object, and the transaction before which its revision is requested.
pub(crate) type LoadKey = (Oid, Tid);

/// A pending call.
pub(crate) struct Call {
    pub(crate) promise: Arc<Promise<Value<'static>>>,
    /// Runs on the reading thread, before any later message is handled.
    pub(crate) then: Option<Then>,
}

pub(crate) type Then = Box<dyn FnOnce(&Value<'_>) + Send>;

#[derive(Default)]
pub(crate) struct Table {
    pub(crate) calls: FxHashMap<u64, Call>,
    pub(crate) loads: FxHashMap<LoadKey, Arc<Promise<Loaded>>>,
    /// Destinations of blobs that are being fetched.
    pub(crate) blobs: FxHashMap<(Oid, Tid), File>,
    /// No more requests are accepted.
    pub(crate) is_over: bool,
    last_id: u64,
    /// Whether a thread is reading.
    has_leader: bool,
    /// Number of times that a thread became the leader.
    leader_count: u64,
    /// Followers: threads that wait for replies and do not read.
    parked: Vec<Thread>,
    /// Whether the connector polls the socket.
    is_watched: bool,
    /// The connector, if it waits for the leader to stop.
    connector: Option<Thread>,
}

/// The role of a thread that waits for a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It reads for all.
    Leader {
        /// The connector has to be interrupted in its poll.
        wakes_connector: bool,
    },
    /// It parks.
    Follower,
}

/// What the connector does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watch {
    /// Poll the socket.
    Socket,
    /// Callers read now and then: check again after a delay.
    Recheck,
    /// One caller has been reading for a while, and will wake the connector when it stops.
    UntilWoken,
}

impl Table {
    pub(crate) fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Assigns a role to the calling thread, which is already registered to be woken on completion.
    pub(crate) fn take_role(&mut self) -> Role {
        if self.has_leader {
            self.parked.push(thread::current());
            return Role::Follower;
        }
        self.has_leader = true;
        self.leader_count += 1;
        Role::Leader { wakes_connector: std::mem::take(&mut self.is_watched) }
    }

    /// The calling thread no longer waits. If it was woken to lead, another follower is woken.
    pub(crate) fn leave(&mut self) {
        let me = thread::current().id();
        self.parked.retain(|thread| thread.id() != me);
        if !self.has_leader {
            self.wake_one();
        }
    }

    /// The leader stops.
    pub(crate) fn hand_over(&mut self) {
        self.has_leader = false;
        self.wake_one();
        if let Some(connector) = self.connector.take() {
            connector.unpark();
        }
    }

    fn wake_one(&mut self) {
        if let Some(next) = self.parked.pop() {
            next.unpark();
        }
    }

    /// Decides what the connector does next. `seen` is the leader count before its last sleep.
    pub(crate) fn watch(&mut self, seen: &mut u64) -> Watch {
        if self.leader_count != *seen {
            *seen = self.leader_count;
            return Watch::Recheck;
        }
        if self.has_leader {
            self.connector = Some(thread::current());
            return Watch::UntilWoken;
        }
        self.is_watched = true;
        Watch::Socket
    }

    /// Called by the connector after its poll; returns whether it is to read.
    pub(crate) fn lead_as_connector(&mut self, has_something: bool) -> bool {
        self.is_watched = false;
        let leads = has_something && !self.has_leader;
        self.has_leader |= leads;
        leads
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// A table with a leader and so many followers.
    fn led(followers: usize) -> Arc<Mutex<Table>> {
        let table = Arc::new(Mutex::new(Table::default()));
        let role = table.lock().unwrap().take_role();
        assert_eq!(role, Role::Leader { wakes_connector: false });
        for _ in 0..followers {
            let table = Arc::clone(&table);
            let follower = thread::spawn(move || table.lock().unwrap().take_role());
            assert_eq!(follower.join().unwrap(), Role::Follower);
        }
        table
    }

    #[test]
    fn a_leader_that_stops_wakes_one_follower() {
        let table = led(2);
        let mut table = table.lock().unwrap();
        table.hand_over();
        assert_eq!(table.parked.len(), 1);
        assert_eq!(table.take_role(), Role::Leader { wakes_connector: false });
    }

    #[test]
    fn a_follower_that_leaves_wakes_another_when_there_is_no_leader() {
        let table = led(2);
        let mut table = table.lock().unwrap();
        assert_eq!(table.take_role(), Role::Follower);
        table.leave();
        assert_eq!(table.parked.len(), 2, "the leader goes on");
        assert_eq!(table.take_role(), Role::Follower);
        table.hand_over();
        table.leave();
        assert_eq!(table.parked.len(), 1, "it was woken to lead");
    }
}
