//! What the cells of this node lack, and until when they wait.

use tracing::debug;
use zodium_neo::messages::AskUnfinishedTransactions;
use zodium_neo::{CellState, Partition};
use zodium_types::Tid;

use super::{Cell, Question, Replication, UNKNOWN};
use crate::cluster::Cluster;
use crate::database::CellProgress;
use crate::links::{Asked, Links};

impl Replication {
    /// Learns what is missing, when operation begins; the cells that are out of date.
    pub(crate) fn begin(&mut self, cluster: &Cluster, cells: &[CellProgress]) -> Vec<Partition> {
        let mut outdated = Vec::new();
        for (partition, state) in cluster.cells() {
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
                    if let (Some(backup_tid), Some(found)) = (cluster.backup_tid(), found) {
                        cell = Cell::of_backup(found, backup_tid);
                    }
                }
                CellState::Corrupted | CellState::Discarded => continue,
            }
            self.cells.insert(partition, cell);
        }
        outdated
    }

    /// Asks the master for transactions in progress: all others will be received in full.
    ///
    /// The master must be able to tell a question for a cell from one for the same cell as it was
    /// before it was taken away. So questions and answers to pings, which say that a table is on
    /// disk, go out in the order of the tables.
    pub(crate) fn ask_unfinished(&mut self, links: &mut Links, partitions: Vec<Partition>) {
        if partitions.is_empty() {
            return;
        }
        debug!(?partitions, "out of date");
        self.last_question += 1;
        let number = self.last_question;
        let question = Question { partitions, known: Vec::new() };
        self.questions.insert(number, question);
        links.write(
            |_| Ok(()),
            move |node, ()| {
                let known = node.commits.unlocked_ttids();
                node.replication.send_question(&mut node.links, number, known);
            },
        );
    }

    fn send_question(&mut self, links: &mut Links, number: u64, known: Vec<Tid>) {
        let questions = &mut self.questions;
        let Some(question) = questions.get_mut(&number) else { return };
        let partitions = question.partitions.clone();
        if partitions.is_empty() {
            questions.remove(&number);
            return;
        }
        question.known = known;
        links.ask_master(AskUnfinishedTransactions { partitions }, Asked::Unfinished(number));
    }

    /// Partitions are taken away, or begin anew: answers to earlier questions are not for them.
    fn forget_questions_for(&mut self, partition: Partition) {
        for question in self.questions.values_mut() {
            question.partitions.retain(|asked| *asked != partition);
        }
    }

    /// The master tells the transactions in progress; those that were not locked here when it was
    /// asked.
    pub(crate) fn unfinished_told(
        &mut self,
        question: u64,
        max_tid: Tid,
        ttids: &[Tid],
    ) -> Vec<Tid> {
        let Question { partitions, known } = self.questions.remove(&question).unwrap_or_default();
        self.unfinished.extend(ttids);
        for partition in partitions {
            if let Some(cell) = self.cells.get_mut(&partition) {
                cell.waits_for = ttids.iter().max().copied();
                self.wanted.insert(partition, max_tid);
            }
        }
        known
    }

    /// A transaction is over; `max_tid` if it was committed. If it was in progress: the cells that
    /// have everything with it, and up to which transaction.
    pub(crate) fn transaction_finished(
        &mut self,
        ttid: Tid,
        max_tid: Option<Tid>,
    ) -> Option<Vec<(Partition, Tid)>> {
        if !self.unfinished.remove(&ttid) {
            return None;
        }
        let oldest = self.unfinished.first().copied().unwrap_or(UNKNOWN);
        let current = self.current.as_ref().map(|current| current.partition);
        let mut complete = Vec::new();
        for (partition, cell) in &mut self.cells {
            let Some(waits_for) = cell.waits_for else { continue };
            if let Some(max_tid) = max_tid {
                self.wanted.insert(*partition, max_tid);
            }
            if waits_for < oldest {
                cell.waits_for = None;
                if current != Some(*partition) && !self.wanted.contains_key(partition) {
                    // All transactions that it waited for were aborted.
                    complete.push((*partition, waits_for));
                }
            }
        }
        Some(complete)
    }

    /// The state of a cell of this node has changed.
    pub(crate) fn note_state(&mut self, partition: Partition, state: CellState) {
        self.forget_questions_for(partition);
        match state {
            CellState::Discarded | CellState::Corrupted => {}
            CellState::OutOfDate => {
                let cell = Cell { waits_for: Some(UNKNOWN), ..Cell::default() };
                self.cells.insert(partition, cell);
                self.dropping.keep(partition);
            }
            CellState::UpToDate | CellState::Feeding => {
                self.cells.entry(partition).or_default();
            }
        }
    }

    /// Forgets everything of partitions that the master takes away.
    pub(crate) fn discard(&mut self, partitions: &[Partition]) {
        for partition in partitions {
            self.cells.remove(partition);
            self.wanted.remove(partition);
            self.sources.remove(partition);
        }
        if self.partition().is_some_and(|current| partitions.contains(&current)) {
            self.current = None;
        }
    }
}
