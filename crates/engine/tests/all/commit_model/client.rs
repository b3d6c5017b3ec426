//! One client of the model: its transaction, and what it knows of its state.

use std::time::Duration;

use zodium_engine::commit::{
    CommitState, Conflict, LockKey, LockMode, LockSet, ObjectRead, ObjectWrite, TransactionNumber,
};
use zodium_types::Tid;

/// A client with its transaction.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) number: TransactionNumber,
    /// The tid that it brings: with one, it restores.
    pub(crate) explicit_tid: Option<Tid>,
    pub(crate) writes: Vec<ObjectWrite>,
    /// What each of `writes` writes.
    pub(crate) values: Vec<u64>,
    pub(crate) reads: Vec<ObjectRead>,
    /// What the machine should say; `None` before the vote.
    pub(crate) state: Option<CommitState>,
    /// What the check found when it first looked.
    pub(crate) verdict: Option<Result<(), Vec<Conflict>>>,
    /// What it asked to lock, while it has a state.
    pub(crate) locks: Locks,
    /// When it asked, in steps of requests.
    pub(crate) arrival: u64,
    pub(crate) granted_at: Duration,
    /// As `granted_at`, later by the time of its checks.
    pub(crate) client_since: Duration,
    pub(crate) checking_since: Duration,
    /// The end of its reservation, while it has one.
    pub(crate) reserved_until: Option<Duration>,
}

impl Client {
    pub(crate) fn new(number: TransactionNumber, explicit_tid: Option<Tid>) -> Client {
        Client {
            number,
            explicit_tid,
            writes: Vec::new(),
            values: Vec::new(),
            reads: Vec::new(),
            state: None,
            verdict: None,
            locks: Locks::default(),
            arrival: 0,
            granted_at: Duration::ZERO,
            client_since: Duration::ZERO,
            checking_since: Duration::ZERO,
            reserved_until: None,
        }
    }

    pub(crate) fn note_grant(&mut self, now: Duration) {
        (self.granted_at, self.client_since, self.checking_since) = (now, now, now);
    }

    pub(crate) fn end_check(&mut self, state: CommitState, now: Duration) {
        self.state = Some(state);
        self.client_since += now - self.checking_since;
    }

    /// The keys to ask for, duplicates included; without the clock, which the machine adds.
    pub(crate) fn keys(&self) -> LockSet {
        self.key_modes().collect()
    }

    /// What [`Client::keys`] and the clock come to.
    pub(crate) fn all_locks(&self) -> Locks {
        let clock = match self.explicit_tid {
            Some(_) => LockMode::Exclusive,
            None => LockMode::Shared,
        };
        let clock = [(LockKey::Clock, clock)];
        self.key_modes().chain(clock).collect()
    }

    fn key_modes(&self) -> impl Iterator<Item = (LockKey, LockMode)> + '_ {
        let reads = self.reads.iter().map(|read| (LockKey::Object(read.oid), LockMode::Shared));
        let writes =
            self.writes.iter().map(|write| (LockKey::Object(write.oid), LockMode::Exclusive));
        reads.chain(writes)
    }
}

/// A set of locks as bits: one per object, 31 for the clock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Locks {
    shared: u32,
    exclusive: u32,
}

impl Locks {
    /// Whether these are all that `other` needs, in modes as strong.
    pub(crate) fn cover(self, other: Locks) -> bool {
        let any = self.shared | self.exclusive;
        other.shared & !any == 0 && other.exclusive & !self.exclusive == 0
    }

    pub(crate) fn conflict_with(self, other: Locks) -> bool {
        let all = |locks: Locks| locks.shared | locks.exclusive;
        self.exclusive & all(other) != 0 || other.exclusive & all(self) != 0
    }
}

impl FromIterator<(LockKey, LockMode)> for Locks {
    fn from_iter<I: IntoIterator<Item = (LockKey, LockMode)>>(keys: I) -> Locks {
        let mut locks = Locks::default();
        for (key, mode) in keys {
            let bit = match key {
                LockKey::Object(oid) => 1 << oid.0,
                LockKey::Clock => 1 << 31,
            };
            match mode {
                LockMode::Shared => locks.shared |= bit,
                LockMode::Exclusive => locks.exclusive |= bit,
            }
        }
        locks
    }
}
