//! The shape of a run. Each seed leaves some faults out: a fault that is always present hides what
//! happens without it.

use zodium_neo::Address;

use super::addresses::address_of;
use super::net::End;
use crate::random::Chance;

/// A bug injected on purpose, to check that the simulation detects it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClusterBug {
    /// No bug.
    #[default]
    None,
    /// Durable writes of a storage are not durable.
    SyncsDoNothing,
    /// The answer to a store is not sent.
    LostAnswers,
    /// A record is left out of what a storage gives to a replica.
    LostRows,
    /// Stores are not checked for conflicts.
    NoConflicts,
    /// A byte of loaded data is changed.
    WrongBytes,
    /// A storage does not hear of the end of a commit.
    LostUnlocks,
    /// A storage does not say after a crash what it has locked. Of real masters only.
    LostLocks,
    /// A storage says that its partition table is an old one. Of real masters only.
    OldTables,
    /// Masters do not listen to each other. Of real masters only.
    DeafMasters,
}

/// The masters of a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClusterMasters {
    /// A model, which knows what is right.
    #[default]
    Model,
    /// Those of the program, which elect one of them, and an operator.
    Real,
}

/// The parameters of a run, from its seed.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// Real masters; 0: a model.
    pub(super) masters: usize,
    pub(super) storages: usize,
    pub(super) partitions: u32,
    pub(super) replicas: u32,
    pub(super) clients: usize,
    pub(super) objects: u64,
    /// Most objects of a transaction.
    pub(super) transaction_objects: u64,
    /// Most jobs that share a transaction of a database.
    pub(super) batch: u64,
    /// Connections per thousand that are slow.
    pub(super) slow: u64,
    /// Steps per 10,000 in which a process or a connection fails.
    pub(super) storage_kills: u64,
    pub(super) master_kills: u64,
    pub(super) client_kills: u64,
    pub(super) cuts: u64,
    /// Whether a killed storage loses what was not synced.
    pub(super) power_cuts: bool,
    /// Steps per 10,000 in which a cell moves to another storage.
    pub(super) moves: u64,
    /// Steps per 10,000 in which the cluster is truncated.
    pub(super) truncations: u64,
    /// Transactions per thousand that order a pack.
    pub(super) packs: u64,
    /// Steps per 10,000 in which processes do not reach each other for a time.
    pub(super) parts: u64,
    /// Steps per 10,000 in which an operator stops or removes a storage, or sets the number of
    /// replicas.
    pub(super) operations: u64,
    /// Whether the clocks of masters are wrong.
    pub(super) wrong_clocks: bool,
    pub(super) bug: ClusterBug,
}

impl Plan {
    pub(super) fn new(chance: &Chance, bug: ClusterBug) -> Plan {
        let sometimes = |number: u64| if chance.permille(500) { number } else { 0 };
        let storages = chance.number(1..=4);
        Plan {
            masters: 0,
            storages: storages as usize,
            partitions: chance.number(1..=5) as u32,
            replicas: chance.number(0..=(storages - 1).min(2)) as u32,
            clients: chance.number(1..=5) as usize,
            objects: chance.number(2..=12),
            transaction_objects: chance.number(1..=5),
            batch: chance.number(1..=6),
            slow: sometimes(chance.number(50..=400)),
            storage_kills: sometimes(chance.number(5..=40)),
            master_kills: sometimes(chance.number(2..=20)),
            client_kills: sometimes(chance.number(2..=20)),
            cuts: sometimes(chance.number(5..=40)),
            power_cuts: chance.permille(500),
            moves: sometimes(chance.number(5..=40)),
            truncations: if chance.permille(250) { chance.number(1..=5) } else { 0 },
            packs: sometimes(chance.number(5..=60)),
            parts: 0,
            operations: 0,
            wrong_clocks: false,
            bug,
        }
    }

    /// The plan of a cluster with real masters.
    pub(super) fn with_masters(chance: &Chance, bug: ClusterBug) -> Plan {
        let sometimes = |number: u64| if chance.permille(500) { number } else { 0 };
        Plan {
            masters: chance.number(1..=3) as usize,
            parts: sometimes(chance.number(2..=20)),
            operations: sometimes(chance.number(2..=20)),
            wrong_clocks: chance.permille(300),
            ..Plan::new(chance, bug)
        }
    }

    /// The addresses of all masters.
    pub(super) fn master_addresses(&self) -> Vec<Address> {
        (0..self.masters.max(1)).map(|place| address_of(End::Master(place))).collect()
    }

    /// Bytes of a transaction in a storage's memory: in half of the runs few enough that spools are
    /// used all the time.
    pub(super) fn transaction_bytes_max(&self) -> usize {
        if self.batch.is_multiple_of(2) { 100 } else { 1 << 20 }
    }

    /// Bytes of records in a storage's memory: in some of the runs none.
    pub(super) fn records_bytes_max(&self) -> usize {
        if self.batch.is_multiple_of(3) { 0 } else { 1 << 20 }
    }

    /// Whether nothing fails: then nothing may be refused.
    pub(super) fn is_quiet(&self) -> bool {
        let ends = self.storage_kills + self.master_kills + self.client_kills + self.cuts;
        ends + self.truncations + self.parts + self.operations == 0
    }
}
