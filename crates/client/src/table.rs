//! What is asked on a connection, and who reads the answers.
//!
//! Invariant: when nobody leads and somebody is parked, one of those who were parked has been
//! woken and will come by; so no answer stays unread because everybody waits for the others.

use std::fs::File;
use std::sync::Arc;
use std::thread::{self, Thread};

use rustc_hash::FxHashMap;
use zodium_pickle::Value;
use zodium_types::{Oid, Tid};

use crate::Revision;
use crate::promise::Promise;

/// What the server says to a load: a revision, or that the object had none then.
pub(crate) type Loaded = Option<Revision>;
/// The object, and the transaction before which its revision is asked for.
pub(crate) type LoadKey = (Oid, Tid);

/// A call that is not answered yet.
pub(crate) struct Call {
    pub(crate) promise: Arc<Promise<Value<'static>>>,
    /// What the order of the stream wants done with the answer before anything after it is read.
    pub(crate) then: Option<Then>,
}

pub(crate) type Then = Box<dyn FnOnce(&Value<'_>) + Send>;

#[derive(Default)]
pub(crate) struct Table {
    pub(crate) calls: FxHashMap<u64, Call>,
    pub(crate) loads: FxHashMap<LoadKey, Arc<Promise<Loaded>>>,
    /// Where blobs go that are on their way.
    pub(crate) blobs: FxHashMap<(Oid, Tid), File>,
    /// Nothing is asked any more.
    pub(crate) is_over: bool,
    last_id: u64,
    /// Whether somebody reads.
    has_leader: bool,
    /// How often somebody began to.
    leader_count: u64,
    /// Threads that wait for answers and do not read.
    parked: Vec<Thread>,
    /// Whether the connector waits at the socket, until it is woken.
    is_watched: bool,
    /// The connector, when it wants to know that nobody leads any more.
    connector: Option<Thread>,
}

/// What a thread that waits for an answer does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It reads, for all.
    Leader {
        /// The connector has to be called away from the socket.
        wakes_connector: bool,
    },
    /// It parks.
    Follower,
}

/// What the connector does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watch {
    /// Wait at the socket.
    Socket,
    /// Callers read now and then: look again in a moment.
    Recheck,
    /// The same caller has been reading for a while: it will say when it stops.
    UntilWoken,
}

impl Table {
    pub(crate) fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// For the calling thread, which has seen to it that it is woken when its answer is there.
    pub(crate) fn take_role(&mut self) -> Role {
        if self.has_leader {
            self.parked.push(thread::current());
            return Role::Follower;
        }
        self.has_leader = true;
        self.leader_count += 1;
        Role::Leader { wakes_connector: std::mem::take(&mut self.is_watched) }
    }

    /// The calling thread does not wait any more. If it was to lead, another will.
    pub(crate) fn leave(&mut self) {
        let me = thread::current().id();
        self.parked.retain(|thread| thread.id() != me);
        if !self.has_leader {
            self.wake_one();
        }
    }

    /// Who led does not any more.
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

    /// For the connector, which has last seen `seen` leads, and then slept.
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

    /// For the connector, which has waited at the socket; whether it is to read.
    pub(crate) fn lead_as_connector(&mut self, has_something: bool) -> bool {
        self.is_watched = false;
        let leads = has_something && !self.has_leader;
        self.has_leader |= leads;
        leads
    }
}
