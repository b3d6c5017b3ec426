//! Cells of the node: what they lack, what was fetched, and when the master is told.

use zodium_neo::messages::{CellChange, Replicate};
use zodium_neo::{CellState, Partition};
use zodium_types::Tid;

use super::Node;
use crate::database::CellProgress;

impl Node {
    /// Learns what is missing, when operation begins.
    pub(super) fn begin_replication(&mut self, cells: &[CellProgress]) {
        if self.cluster.own_table().is_none() {
            return;
        }
        let outdated = self.replication.begin(&self.cluster, cells);
        self.ask_unfinished(outdated);
        self.replication.drop_unassigned(&mut self.links, &self.cluster);
    }

    /// Asks the master for transactions in progress that cells may lack a part of.
    fn ask_unfinished(&mut self, partitions: Vec<Partition>) {
        self.commits.note_replicating(&partitions);
        self.replication.ask_unfinished(&mut self.links, partitions);
    }

    /// The master tells the transactions in progress.
    pub(super) fn unfinished_told(&mut self, question: u64, max_tid: Tid, ttids: &[Tid]) {
        let known = self.replication.unfinished_told(question, max_tid, ttids);
        // Others may have ended when this node had none of their cells, or was not ready for them.
        let over = self.commits.note_in_progress(max_tid, ttids);
        let aborted = known.into_iter().filter(|ttid| !ttids.contains(ttid));
        over.into_iter().chain(aborted).for_each(|ttid| self.abort(ttid));
        self.replicate_next();
    }

    /// A transaction that was in progress is over; `max_tid` if it was committed.
    pub(super) fn transaction_finished(&mut self, ttid: Tid, max_tid: Option<Tid>) {
        let Some(complete) = self.replication.transaction_finished(ttid, max_tid) else { return };
        for (partition, tid) in complete {
            self.replicated(partition, tid);
        }
        self.replicate_next();
    }

    /// Begins to fetch the next partition, unless one is being fetched.
    pub(super) fn replicate_next(&mut self) {
        self.replication.replicate_next(&mut self.links, &self.cluster);
    }

    /// All that was wanted of a partition was fetched.
    pub(crate) fn partition_fetched(&mut self, partition: Partition, tid: Tid) {
        let is_complete = self.replication.finish(partition, tid);
        self.save_backup_tid();
        if is_complete {
            self.replicated(partition, tid);
        }
        self.replicate_next();
        self.close_idle_sources();
    }

    /// A cell has everything up to a transaction, and takes part in all later ones.
    fn replicated(&mut self, partition: Partition, tid: Tid) {
        self.commits.note_replicated(partition, tid);
        self.reading.forget_all();
        self.commits.announce_replicated(&mut self.links, &self.cluster);
    }

    /// Cells have changed.
    pub(super) fn cells_changed(&mut self, changes: &[CellChange]) {
        let (mut added, mut dropped, mut is_packable) = (Vec::new(), Vec::new(), false);
        let own = self.cluster.id();
        for change in changes.iter().filter(|change| Some(change.node) == own) {
            let partition = change.partition;
            self.replication.note_state(partition, change.state);
            match change.state {
                CellState::Discarded | CellState::Corrupted => dropped.push(partition),
                CellState::OutOfDate => added.push(partition),
                CellState::UpToDate | CellState::Feeding => {
                    self.commits.note_readable(partition);
                    // One that was FEEDING was not packed either.
                    is_packable |= change.state == CellState::UpToDate;
                }
            }
        }
        self.ask_unfinished(added);
        self.discard(&dropped);
        if is_packable || !dropped.is_empty() {
            self.packing.look(&mut self.links, &self.cluster);
        } else {
            self.packing.resume(&mut self.links, &self.cluster);
        }
        self.replicate_next();
    }

    /// Forgets everything of partitions that the master takes away.
    fn discard(&mut self, partitions: &[Partition]) {
        if partitions.is_empty() {
            return;
        }
        self.replication.discard(partitions);
        let is_over = self.checking.discard(partitions);
        self.check_went_on(is_over);
        let oids = self.commits.discard(&self.cluster, partitions);
        self.reading.forget_all();
        let discarded = partitions.to_vec();
        self.links
            .write_lazily(move |database| database.drop_unfinished(Some(&discarded)), |_, ()| {});
        self.lock_waiting(oids);
        self.read_delayed();
        self.replication.drop_unassigned(&mut self.links, &self.cluster);
    }

    /// The master of a backup cluster says that there is something new upstream.
    pub(super) fn replicate_for_backup(&mut self, message: &Replicate<'_>) {
        self.replication.note_upstream(message);
        self.save_backup_tid();
        self.replicate_next();
    }

    /// Saves up to which transaction all readable cells are complete, in a backup cluster.
    fn save_backup_tid(&mut self) {
        let Some(before) = self.cluster.backup_tid() else { return };
        if self.cluster.own_table().is_none() {
            return;
        }
        let tid = self.replication.complete_until(&self.cluster);
        if tid != before {
            self.cluster.set_backup_tid(Some(tid));
            self.links.write(move |database| database.set_backup_tid(Some(tid)), |_, ()| {});
        }
        if before < self.packing.last() && self.packing.last() <= tid {
            // The order was told before all that it may look at was here.
            self.packing.look(&mut self.links, &self.cluster);
        }
    }
}
