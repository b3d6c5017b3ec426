//! What clients do with the database, and the invariants of everything they read in one view.
//!
//! - accounts: transfers between accounts; the sum is constant;
//! - ring: each object names the next; it is rewired, and stays one ring;
//! - counters: increments; clients resolve their conflicts;
//! - logs: each client appends numbered items; no gap, no repetition;
//! - pairs: at least one of two is on; turning one off demands that the other is still current.

use std::collections::BTreeMap;

use zodium_types::{Oid, Tid};

use crate::plan::{Objects, Plan};
use crate::random::Chance;

/// Initial balance of each account.
const BALANCE: u64 = 1000;

/// A task of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    ReadAccounts,
    ReadRing,
    ReadLogs,
    ReadPairs,
    Transfer { from: Oid, to: Oid },
    Rewire { first: Oid },
    Count { counter: Oid },
    Append { log: Oid },
    Switch { pair: u64 },
}

/// What was read in one view, by object: the transaction that wrote it, and its values.
pub(crate) type Seen = BTreeMap<Oid, (Tid, Vec<u64>)>;

/// The next step of a task after its objects were read.
#[derive(Debug)]
pub(crate) enum Step {
    /// Read more objects.
    Read(Vec<Oid>),
    /// The task is done: it only reads, or there is nothing to do.
    Done,
    /// Write new values to objects, provided that the other objects named are still current.
    Write(Vec<(Oid, Vec<u64>)>, Vec<Oid>),
}

impl Objects {
    fn accounts(&self) -> impl Iterator<Item = Oid> + use<> {
        (1..=self.accounts).map(Oid)
    }

    fn ring(&self) -> impl Iterator<Item = Oid> + use<> {
        (100..100 + self.ring).map(Oid)
    }

    fn counters(&self) -> impl Iterator<Item = Oid> + use<> {
        (200..200 + self.counters).map(Oid)
    }

    fn logs(&self) -> impl Iterator<Item = Oid> + use<> {
        (300..300 + self.logs).map(Oid)
    }

    fn pair(pair: u64) -> [Oid; 2] {
        [Oid(400 + 2 * pair), Oid(401 + 2 * pair)]
    }

    fn in_pairs(&self) -> impl Iterator<Item = Oid> + use<> {
        (0..self.pairs).flat_map(Objects::pair)
    }

    pub(crate) fn is_counter(oid: Oid) -> bool {
        (200..300).contains(&oid.0)
    }

    pub(crate) fn is_log(oid: Oid) -> bool {
        (300..400).contains(&oid.0)
    }

    /// All objects with their initial values.
    pub(crate) fn first_values(&self, clients: usize) -> Vec<(Oid, Vec<u64>)> {
        let next = |oid: Oid| 100 + (oid.0 - 99) % self.ring;
        let root = [(Oid::ROOT, Vec::new())];
        let accounts = self.accounts().map(|oid| (oid, vec![BALANCE]));
        let ring = self.ring().map(|oid| (oid, vec![next(oid)]));
        let counters = self.counters().map(|oid| (oid, vec![0]));
        let logs = self.logs().map(|oid| (oid, vec![0; clients]));
        let pairs = self.in_pairs().map(|oid| (oid, vec![1]));
        root.into_iter()
            .chain(accounts)
            .chain(ring)
            .chain(counters)
            .chain(logs)
            .chain(pairs)
            .collect()
    }
}

impl Task {
    pub(crate) fn choose(plan: &Plan, chance: &Chance) -> Task {
        let objects = &plan.objects;
        let account = || Oid(chance.number(1..=objects.accounts));
        match chance.number(0..=15) {
            0..=3 => Task::ReadAccounts,
            4 | 5 => Task::ReadRing,
            6 => Task::ReadLogs,
            7 => Task::ReadPairs,
            8 | 9 => Task::Transfer { from: account(), to: account() },
            10 | 11 => Task::Rewire { first: Oid(chance.number(100..=99 + objects.ring)) },
            12 | 13 => Task::Count { counter: Oid(chance.number(200..=199 + objects.counters)) },
            14 => Task::Append { log: Oid(chance.number(300..=299 + objects.logs)) },
            _ => Task::Switch { pair: chance.number(0..=objects.pairs - 1) },
        }
    }

    pub(crate) fn is_reading(self) -> bool {
        matches!(self, Task::ReadAccounts | Task::ReadRing | Task::ReadLogs | Task::ReadPairs)
    }

    /// The objects to read first.
    pub(crate) fn reads(self, objects: &Objects) -> Vec<Oid> {
        match self {
            Task::ReadAccounts => objects.accounts().collect(),
            Task::ReadRing => objects.ring().collect(),
            Task::ReadLogs => objects.logs().collect(),
            Task::ReadPairs => objects.in_pairs().collect(),
            Task::Transfer { from, to } => vec![from, to],
            Task::Rewire { first } => vec![first],
            Task::Count { counter } => vec![counter],
            Task::Append { log } => vec![log],
            Task::Switch { pair } => Objects::pair(pair).to_vec(),
        }
    }

    /// Continues the task of client number `client` with what it has read; fails if that violates
    /// an invariant.
    pub(crate) fn step(
        self,
        objects: &Objects,
        client: usize,
        seen: &Seen,
        chance: &Chance,
    ) -> Result<Step, String> {
        let value = |oid: Oid| seen.get(&oid).and_then(|(_, values)| values.first()).copied();
        let value = |oid: Oid| value(oid).ok_or_else(|| format!("object {oid} has no value"));
        match self {
            Task::ReadAccounts => check_sum(objects, seen).map(|()| Step::Done),
            Task::ReadRing => check_ring(objects, seen).map(|()| Step::Done),
            Task::ReadPairs => check_pairs(objects, seen).map(|()| Step::Done),
            Task::ReadLogs => Ok(Step::Done),
            Task::Transfer { from, to } => {
                let (rich, poor) = (value(from)?, value(to)?);
                let amount = chance.number(0..=rich);
                if from == to {
                    return Ok(Step::Done);
                }
                Ok(write([(from, rich - amount), (to, poor + amount)]))
            }
            Task::Rewire { first } => {
                let Ok(second) = value(first).map(Oid) else { return Ok(Step::Done) };
                let Ok(third) = value(second).map(Oid) else { return Ok(Step::Read(vec![second])) };
                let Ok(fourth) = value(third) else { return Ok(Step::Read(vec![third])) };
                // first -> third -> second -> fourth
                Ok(write([(first, third.0), (second, fourth), (third, second.0)]))
            }
            Task::Count { counter } => Ok(write([(counter, value(counter)? + 1)])),
            Task::Append { log } => {
                let mut next = seen.get(&log).map(|(_, next)| next.clone()).unwrap_or_default();
                let own = next.get_mut(client).ok_or("a log without room for its client")?;
                *own += 1;
                Ok(Step::Write(vec![(log, next)], Vec::new()))
            }
            Task::Switch { pair } => {
                let [mut turned, mut other] = Objects::pair(pair);
                if chance.permille(500) {
                    (turned, other) = (other, turned);
                }
                match (value(turned)?, value(other)?) {
                    (0, _) => Ok(write([(turned, 1)])),
                    (_, 0) => Ok(Step::Done),
                    (_, _) => Ok(Step::Write(vec![(turned, vec![0])], vec![other])),
                }
            }
        }
    }
}

fn write<const COUNT: usize>(values: [(Oid, u64); COUNT]) -> Step {
    Step::Write(values.map(|(oid, value)| (oid, vec![value])).to_vec(), Vec::new())
}

fn check_sum(objects: &Objects, seen: &Seen) -> Result<(), String> {
    let sum: u64 = seen.values().filter_map(|(_, values)| values.first()).sum();
    let expected = BALANCE * objects.accounts;
    (sum == expected).then_some(()).ok_or_else(|| format!("accounts hold {sum}, not {expected}"))
}

fn check_ring(objects: &Objects, seen: &Seen) -> Result<(), String> {
    let first = Oid(100);
    let (mut at, mut length) = (first, 0);
    loop {
        let next = seen.get(&at).and_then(|(_, values)| values.first());
        at = Oid(*next.ok_or_else(|| format!("the ring leads to {at}, which is not of it"))?);
        length += 1;
        if at == first {
            break;
        }
        if length > objects.ring {
            return Err("the ring does not come back to its beginning".to_owned());
        }
    }
    let expected = objects.ring;
    (length == expected)
        .then_some(())
        .ok_or_else(|| format!("the ring has {length} objects, not {expected}"))
}

fn check_pairs(objects: &Objects, seen: &Seen) -> Result<(), String> {
    let on = |oid: &Oid| seen.get(oid).is_some_and(|(_, values)| values.first() == Some(&1));
    let dark = (0..objects.pairs).find(|pair| !Objects::pair(*pair).iter().any(on));
    dark.map_or(Ok(()), |pair| Err(format!("both of pair {pair} are off")))
}
