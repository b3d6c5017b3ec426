//! One client of the model: its transaction, and what it knows of its state.

use std::time::Duration;

use zodium_engine::commit::{
    CommitState, Conflict, LockKey, LockMode, LockSet, ObjectRead, ObjectWrite, TransactionNumber,
    WriteKind,
};
use zodium_types::Tid;

/// What the client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Commits; with a tid of its own, it restores.
    Commit { explicit_tid: Option<Tid> },
    /// Does the last step of a pack.
    Pack,
}

/// A client with its transaction.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) number: TransactionNumber,
    pub(crate) role: Role,
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
}

impl Client {
    pub(crate) fn new(number: TransactionNumber, role: Role) -> Client {
        Client {
            number,
            role,
            writes: Vec::new(),
            values: Vec::new(),
            reads: Vec::new(),
            state: None,
            verdict: None,
            locks: Locks::default(),
            arrival: 0,
            granted_at: Duration::ZERO,
        }
    }

    /// The keys to ask for, duplicates included; without the clock, which the machine adds.
    pub(crate) fn keys(&self) -> LockSet {
        self.key_modes().collect()
    }

    /// What [`Client::keys`] and the clock come to.
    pub(crate) fn all_locks(&self) -> Locks {
        let clock = match self.role {
            Role::Commit { explicit_tid: Some(_) } => Some(LockMode::Exclusive),
            Role::Commit { explicit_tid: None } => Some(LockMode::Shared),
            Role::Pack => None,
        };
        let clock = clock.map(|mode| (LockKey::Clock, mode));
        self.key_modes().chain(clock).collect()
    }

    pub(crate) fn explicit_tid(&self) -> Option<Tid> {
        match self.role {
            Role::Commit { explicit_tid } => explicit_tid,
            Role::Pack => None,
        }
    }

    fn key_modes(&self) -> impl Iterator<Item = (LockKey, LockMode)> + '_ {
        let pack = (self.role == Role::Pack).then_some((LockKey::Positions, LockMode::Exclusive));
        let restores = self.writes.iter().filter(|write| write.kind == WriteKind::Restore);
        let reads = self.reads.iter().map(|read| (LockKey::Object(read.oid), LockMode::Shared));
        let writes =
            self.writes.iter().map(|write| (LockKey::Object(write.oid), LockMode::Exclusive));
        reads
            .chain(writes)
            .chain(restores.map(|_| (LockKey::Positions, LockMode::Shared)))
            .chain(pack)
    }
}

/// A set of locks as bits: one per object, 30 for the positions, 31 for the clock.
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
                LockKey::Positions => 1 << 30,
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
