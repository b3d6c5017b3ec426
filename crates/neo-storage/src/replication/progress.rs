//! What the cells of this node lack, and until when they wait.

use tracing::debug;
use zodium_neo::messages::{AskUnfinishedTransactions, CellChange};
use zodium_neo::{CellState, Partition};
use zodium_types::Tid;

use super::{Cell, Question, UNKNOWN};
use crate::Node;
use crate::database::CellProgress;
use crate::peer::Asked;

/// Rows of a partition that is dropped, in one step.
const DROP_ROWS: u32 = 500;

impl Node {
    /// Learns what is missing, when operation begins.
    pub(crate) fn begin_replication(&mut self, cells: &[CellProgress]) {
        let (Some(table), Some(own)) = (&self.table, self.id) else { return };
        let mut outdated = Vec::new();
        for (partition, state) in table.cells_of(own) {
            let found = cells.iter().find(|cell| cell.partition == partition);
            let mut cell = Cell::default();
            match state {
                CellState::OutOfDate => {
                    // A cell that is new since the database was read has nothing.
                    let replicated = found.and_then(|cell| cell.replicated).unwrap_or(Tid::ZERO);
                    let next = if replicated == Tid::ZERO { Tid::ZERO } else { replicated.next() };
                    (cell.next_transaction, cell.next_record) = (next, next);
                    cell.waits_for = Some(UNKNOWN);
                    outdated.push(partition);
                }
                CellState::UpToDate | CellState::Feeding => {
                    if let (Some(backup_tid), Some(found)) = (self.backup_tid, found) {
                        cell = Cell::of_backup(found, backup_tid);
                    }
                }
                CellState::Corrupted | CellState::Discarded => continue,
            }
            self.replication.cells.insert(partition, cell);
        }
        self.ask_unfinished(outdated);
        self.drop_unassigned();
    }

    /// Asks the master for transactions in progress: all others will be received in full.
    ///
    /// The master must be able to tell a question for a cell from one for the same cell as it was
    /// before it was taken away. So questions and answers to pings, which say that a table is on
    /// disk, go out in the order of the tables.
    fn ask_unfinished(&mut self, partitions: Vec<Partition>) {
        if partitions.is_empty() {
            return;
        }
        debug!(?partitions, "out of date");
        self.transactions.replicating.extend(&partitions);
        self.replication.last_question += 1;
        let number = self.replication.last_question;
        let question = Question { partitions, known: Vec::new() };
        self.replication.questions.insert(number, question);
        self.write(|_| Ok(()), move |node, ()| node.send_question(number));
    }

    fn send_question(&mut self, number: u64) {
        let known = self.transactions.unlocked();
        let questions = &mut self.replication.questions;
        let Some(question) = questions.get_mut(&number) else { return };
        let partitions = question.partitions.clone();
        if partitions.is_empty() {
            questions.remove(&number);
            return;
        }
        question.known = known;
        self.ask_master(AskUnfinishedTransactions { partitions }, Asked::Unfinished(number));
    }

    /// Partitions are taken away, or begin anew: answers to earlier questions are not for them.
    fn forget_questions_for(&mut self, partition: Partition) {
        for question in self.replication.questions.values_mut() {
            question.partitions.retain(|asked| *asked != partition);
        }
    }

    /// The master tells the transactions in progress.
    pub(crate) fn unfinished_told(&mut self, asked: Option<Asked>, max_tid: Tid, ttids: &[Tid]) {
        let Some(Asked::Unfinished(question)) = asked else { return };
        let replication = &mut self.replication;
        let Question { partitions, known } =
            replication.questions.remove(&question).unwrap_or_default();
        replication.unfinished.extend(ttids);
        for partition in partitions {
            if let Some(cell) = replication.cells.get_mut(&partition) {
                cell.waits_for = ttids.iter().max().copied();
                replication.wanted.insert(partition, max_tid);
            }
        }
        // Others may have ended when this node had none of their cells, or was not ready for them.
        let over = self.transactions.note_in_progress(max_tid, ttids);
        let aborted = known.into_iter().filter(|ttid| !ttids.contains(ttid));
        over.into_iter().chain(aborted).for_each(|ttid| self.abort(ttid));
        self.replicate_next();
    }

    /// A transaction that was in progress is over; `max_tid` if it was committed.
    pub(crate) fn transaction_finished(&mut self, ttid: Tid, max_tid: Option<Tid>) {
        let replication = &mut self.replication;
        if !replication.unfinished.remove(&ttid) {
            return;
        }
        let oldest = replication.unfinished.first().copied().unwrap_or(UNKNOWN);
        let current = replication.current.as_ref().map(|current| current.partition);
        let mut complete = Vec::new();
        for (partition, cell) in &mut replication.cells {
            let Some(waits_for) = cell.waits_for else { continue };
            if let Some(max_tid) = max_tid {
                replication.wanted.insert(*partition, max_tid);
            }
            if waits_for < oldest {
                cell.waits_for = None;
                if current != Some(*partition) && !replication.wanted.contains_key(partition) {
                    // All transactions that it waited for were aborted.
                    complete.push((*partition, waits_for));
                }
            }
        }
        for (partition, tid) in complete {
            self.replicated(partition, tid);
        }
        self.replicate_next();
    }

    /// Cells have changed.
    pub(crate) fn cells_changed(&mut self, changes: &[CellChange]) {
        let (mut added, mut dropped, mut is_packable) = (Vec::new(), Vec::new(), false);
        let own = self.id;
        for change in changes.iter().filter(|change| Some(change.node) == own) {
            let partition = change.partition;
            self.forget_questions_for(partition);
            match change.state {
                CellState::Discarded | CellState::Corrupted => dropped.push(partition),
                CellState::OutOfDate => {
                    let cell = Cell { waits_for: Some(UNKNOWN), ..Cell::default() };
                    self.replication.cells.insert(partition, cell);
                    self.replication.dropping.remove(&partition);
                    added.push(partition);
                }
                CellState::UpToDate | CellState::Feeding => {
                    self.replication.cells.entry(partition).or_default();
                    self.transactions.replicating.remove(&partition);
                    self.transactions.replicated.remove(&partition);
                    // One that was FEEDING was not packed either.
                    is_packable |= change.state == CellState::UpToDate;
                }
            }
        }
        self.ask_unfinished(added);
        self.discard(&dropped);
        if is_packable || !dropped.is_empty() {
            self.look_for_packs();
        } else {
            self.resume_packs();
        }
        self.replicate_next();
    }

    /// Forgets everything of partitions that the master takes away.
    fn discard(&mut self, partitions: &[Partition]) {
        if partitions.is_empty() {
            return;
        }
        for partition in partitions {
            self.replication.cells.remove(partition);
            self.replication.wanted.remove(partition);
            self.replication.sources.remove(partition);
        }
        let current = self.replication.current.as_ref();
        if current.is_some_and(|current| partitions.contains(&current.partition)) {
            self.stop_current();
        }
        self.check_discarded(partitions);
        let Some(table) = &self.table else { return };
        let is_in = |oid| {
            table.partition_of_oid(oid).is_some_and(|partition| partitions.contains(&partition))
        };
        let oids = self.transactions.discard(partitions, is_in);
        self.records.clear();
        let discarded = partitions.to_vec();
        self.write_lazily(move |database| database.drop_unfinished(Some(&discarded)), |_, ()| {});
        oids.into_iter().for_each(|oid| self.lock_waiting(oid));
        self.read_delayed();
        self.drop_unassigned();
    }

    /// Drops the data of partitions that are not of this node, a step at a time.
    fn drop_unassigned(&mut self) {
        let (Some(table), Some(own)) = (&self.table, self.id) else { return };
        if !self.settings.drops_partitions {
            return;
        }
        let all = (0..table.partitions()).map(Partition);
        let others = all.filter(|partition| table.state(*partition, own).is_none());
        self.replication.dropping = others.collect();
        self.drop_step();
    }

    fn drop_step(&mut self) {
        let replication = &mut self.replication;
        let Some(partition) = replication.dropping.first().copied() else { return };
        if std::mem::replace(&mut replication.is_dropping, true) {
            return;
        }
        self.write_lazily(
            move |database| database.drop_partition(partition, DROP_ROWS),
            move |node, is_more| {
                node.replication.is_dropping = false;
                if !is_more {
                    node.replication.dropping.remove(&partition);
                }
                node.drop_step();
            },
        );
    }
}
