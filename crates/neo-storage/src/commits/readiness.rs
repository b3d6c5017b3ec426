//! Announces cells that have everything.
//!
//! A transaction in progress may have been stored in the cell without a lock. The cell is readable
//! only when every such object is locked by one transaction: then it checks stores itself.

use std::collections::BTreeSet;

use tracing::info;
use zodium_neo::Partition;
use zodium_neo::messages::NotifyReplicationDone;
use zodium_types::{Oid, Tid};

use super::Commits;
use super::transactions::Vote;
use crate::Node;
use crate::cluster::Cluster;
use crate::database::Found;
use crate::links::Links;

impl Commits {
    /// Notes cells that lack data: stores to them are accepted without a lock.
    pub(crate) fn note_replicating(&mut self, partitions: &[Partition]) {
        self.transactions.replicating.extend(partitions);
    }

    /// Notes that a cell is readable for the master.
    pub(crate) fn note_readable(&mut self, partition: Partition) {
        self.transactions.replicating.remove(&partition);
        self.transactions.replicated.remove(&partition);
    }

    /// Notes that a cell has everything up to a transaction, and takes part in all later ones.
    pub(crate) fn note_replicated(&mut self, partition: Partition, tid: Tid) {
        self.transactions.replicating.remove(&partition);
        self.transactions.forget_serials();
        self.transactions.replicated.insert(partition, Some(tid));
    }

    /// Forgets the objects of partitions that the master takes away; those that were locked.
    pub(crate) fn discard(&mut self, cluster: &Cluster, partitions: &[Partition]) -> Vec<Oid> {
        self.transactions.discard(partitions, |oid| cluster.is_in(partitions, oid))
    }

    /// Tells the master of cells that have everything, as soon as their objects are locked.
    pub(crate) fn announce_replicated(&mut self, links: &mut Links, cluster: &Cluster) {
        let Some(table) = cluster.table() else { return };
        let transactions = &mut self.transactions;
        let is_open = |(partition, tid): (&Partition, &Option<Tid>)| tid.map(|_| *partition);
        let mut ready: BTreeSet<_> = transactions.replicated.iter().filter_map(is_open).collect();
        if ready.is_empty() {
            return;
        }
        let waiting = ready.clone();
        // The youngest transaction has the lock, so that new ones wait for it.
        for (ttid, transaction) in &transactions.all {
            for oid in &transaction.lockless {
                let Some(partition) = table.partition_of_oid(*oid) else { continue };
                if !waiting.contains(&partition) {
                    continue;
                }
                if transactions.locks.insert(*oid, *ttid).is_some_and(|other| other != *ttid) {
                    ready.remove(&partition);
                }
            }
        }
        let mut told = Vec::new();
        for partition in &ready {
            if let Some(tid) = transactions.replicated.insert(*partition, None).flatten() {
                told.push(NotifyReplicationDone { partition: *partition, tid });
            }
        }
        let locked: Vec<(Oid, Tid)> = transactions
            .locks
            .iter()
            .filter(|(oid, _)| {
                table.partition_of_oid(**oid).is_some_and(|partition| ready.contains(&partition))
            })
            .map(|(oid, ttid)| (*oid, *ttid))
            .collect();
        for message in told {
            info!(partition = %message.partition, tid = %message.tid, "replicated");
            links.notify_master(message);
        }
        locked.into_iter().for_each(|(oid, ttid)| self.check_lockless(links, oid, ttid));
    }

    /// Checks a store that was accepted unchecked. What another cell refuses is not kept here.
    fn check_lockless(&mut self, links: &mut Links, oid: Oid, ttid: Tid) {
        let Some(transaction) = self.transactions.all.get_mut(&ttid) else { return };
        if !transaction.lockless.remove(&oid) || transaction.vote != Vote::No {
            return;
        }
        transaction.unchecked.insert(oid);
        links.read(
            move |database| database.current(oid, None),
            move |node, found| {
                let Ok(Found { serial, .. }) = found else { return };
                let Node { links, cluster, commits, .. } = node;
                commits.compare_lockless(links, cluster, oid, ttid, serial);
            },
        );
    }

    /// Compares a store that was accepted unchecked with the last serial of its object.
    fn compare_lockless(
        &mut self,
        links: &mut Links,
        cluster: &Cluster,
        oid: Oid,
        ttid: Tid,
        found: Option<Tid>,
    ) {
        let Some(transaction) = self.transactions.all.get_mut(&ttid) else { return };
        if transaction.checking.contains_key(&oid) {
            // A later store of the object is being compared, and needs the lock.
            return;
        }
        let object = transaction.objects.get(&oid);
        let is_outdated =
            found.is_some_and(|serial| object.is_some_and(|object| object.serial != serial));
        transaction.unchecked.remove(&oid);
        if is_outdated && transaction.vote == Vote::No {
            transaction.objects.remove(&oid);
            self.transactions.release(oid, ttid);
            self.lock_waiting(links, cluster, oid);
        }
    }
}
