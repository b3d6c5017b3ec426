//! Which of the threads that wait for replies reads the connection.
//!
//! Key decision: no dedicated I/O thread between callers and the socket. This is the
//! leader/followers pattern: the first thread that waits for a reply becomes the **leader**, and
//! reads for all until its own reply is there. Then a follower takes over. While no thread waits, a
//! background thread watches the socket. It must not meet serial callers there: each reply would
//! wake two threads. So it polls only after a short idle time, and the next caller interrupts that
//! poll.
//!
//! Invariant: if there is no leader but a parked follower, one follower has been woken and will
//! take over. So no reply stays unread while all threads wait for each other.

use std::thread::{self, Thread};
use std::time::Duration;

/// How long a connection must be idle before the background thread polls the socket.
pub(crate) const IDLE_DELAY: Duration = Duration::from_millis(10);

/// The threads of a connection that wait for replies, and the one that reads.
#[derive(Debug, Default)]
pub(crate) struct Leadership {
    /// Whether a thread is reading.
    has_leader: bool,
    /// Number of times that a caller became the leader.
    leader_count: u64,
    /// That number when the background thread last looked.
    seen_count: u64,
    /// Followers: threads that wait for replies and do not read.
    parked: Vec<Thread>,
    /// Whether the background thread polls the socket.
    pub(crate) is_watched: bool,
    /// The background thread, if it waits for the leader to stop.
    background: Option<Thread>,
}

/// The role of a thread that waits for a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It reads for all.
    Leader {
        /// The background thread has to be interrupted in its poll.
        wakes_background: bool,
    },
    /// It parks.
    Follower,
}

/// What the background thread does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watch {
    /// Poll the socket.
    Socket,
    /// Callers read now and then: check again after a delay.
    Recheck,
    /// One caller has been reading for a while, and will wake the background thread when it stops.
    UntilWoken,
}

impl Leadership {
    /// Assigns a role to the calling thread, which is already registered to be woken on completion.
    pub(crate) fn take_role(&mut self) -> Role {
        if self.has_leader {
            let me = thread::current();
            // A follower looks again now and then, also when it was not woken.
            if self.parked.iter().all(|parked| parked.id() != me.id()) {
                self.parked.push(me);
            }
            return Role::Follower;
        }
        self.has_leader = true;
        self.leader_count += 1;
        Role::Leader { wakes_background: std::mem::take(&mut self.is_watched) }
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
        if let Some(background) = self.background.take() {
            background.unpark();
        }
    }

    fn wake_one(&mut self) {
        if let Some(next) = self.parked.pop() {
            next.unpark();
        }
    }

    /// Decides what the background thread does next.
    pub(crate) fn watch(&mut self) -> Watch {
        if self.leader_count != self.seen_count {
            self.seen_count = self.leader_count;
            return Watch::Recheck;
        }
        if self.has_leader {
            self.background = Some(thread::current());
            return Watch::UntilWoken;
        }
        self.is_watched = true;
        Watch::Socket
    }

    /// Called by the background thread after its poll; returns whether it is to read.
    pub(crate) fn lead_in_background(&mut self, has_something: bool) -> bool {
        self.is_watched = false;
        let leads = has_something && !self.has_leader;
        self.has_leader |= leads;
        leads
    }

    /// As the background thread, becomes the leader without a poll; `false` if there is one, which
    /// will wake the background thread when it stops.
    pub(crate) fn lead_at_once(&mut self) -> bool {
        if self.has_leader {
            self.background = Some(thread::current());
            return false;
        }
        self.has_leader = true;
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// A leader and so many followers.
    fn led(followers: usize) -> Arc<Mutex<Leadership>> {
        let leadership = Arc::new(Mutex::new(Leadership::default()));
        let role = leadership.lock().unwrap().take_role();
        assert_eq!(role, Role::Leader { wakes_background: false });
        for _ in 0..followers {
            let leadership = Arc::clone(&leadership);
            let follower = thread::spawn(move || leadership.lock().unwrap().take_role());
            assert_eq!(follower.join().unwrap(), Role::Follower);
        }
        leadership
    }

    #[test]
    fn a_leader_that_stops_wakes_one_follower() {
        let leadership = led(2);
        let mut leadership = leadership.lock().unwrap();
        leadership.hand_over();
        assert_eq!(leadership.parked.len(), 1);
        assert_eq!(leadership.take_role(), Role::Leader { wakes_background: false });
    }

    #[test]
    fn a_follower_that_leaves_wakes_another_when_there_is_no_leader() {
        let leadership = led(2);
        let mut leadership = leadership.lock().unwrap();
        assert_eq!(leadership.take_role(), Role::Follower);
        leadership.leave();
        assert_eq!(leadership.parked.len(), 2, "the leader goes on");
        assert_eq!(leadership.take_role(), Role::Follower);
        leadership.hand_over();
        leadership.leave();
        assert_eq!(leadership.parked.len(), 1, "it was woken to lead");
    }

    #[test]
    fn the_background_thread_leads_only_without_a_leader() {
        let mut leadership = Leadership::default();
        assert_eq!(leadership.watch(), Watch::Socket);
        assert_eq!(leadership.take_role(), Role::Leader { wakes_background: true });
        assert!(!leadership.lead_in_background(true) && !leadership.lead_at_once());
        assert_eq!(leadership.watch(), Watch::Recheck);
        assert_eq!(leadership.watch(), Watch::UntilWoken);
        leadership.hand_over();
        assert!(leadership.lead_at_once());
        assert_eq!(leadership.take_role(), Role::Follower);
    }

    #[test]
    fn a_follower_that_looks_again_is_parked_once() {
        let mut leadership = Leadership::default();
        assert!(matches!(leadership.take_role(), Role::Leader { .. }));
        for _ in 0..3 {
            assert_eq!(leadership.take_role(), Role::Follower);
        }
        assert_eq!(leadership.parked.len(), 1);
    }
}
