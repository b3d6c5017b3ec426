//! Reports on the health of the cluster and of its backups.
//!
//! A report needs the last transaction of each cluster. So an admin asks for it in rounds: a round
//! begins with a change or with an operator's question, and is over when all clusters that can
//! answer have done so.

use std::time::Duration;

use rustc_hash::FxHashSet;
use tracing::warn;
use zodium_neo::messages::{
    AnswerMonitorInformation, AskLastTransaction, AskRecovery, NotifyMonitorInformation,
};
use zodium_neo::{ClusterState, ConnectionId, ErrorCode};
use zodium_types::Tid;

use crate::Admin;
use crate::Output;
use crate::backups::Backup;
use crate::handling::{Handled, Refusal};
use crate::health::{Cells, Change, Health, Severity};
use crate::peer::Asked;
use crate::summary::{self, Line, Upstream};

/// What operators are told without a master.
pub(crate) const NOT_CONNECTED: &str = "Not connected to a primary master.";

/// Longest time of a round. A cluster that has not answered then is taken for lost.
const ROUND_TIME_MAX: Duration = Duration::from_secs(60);
/// Most operators that wait for a report.
const WAITING_MAX: usize = 10_000;

/// The round that is under way, and the operators that wait for its end.
#[derive(Debug, Default)]
pub(crate) struct Round {
    /// Counts rounds.
    number: u64,
    /// The connections whose answers are missing; none: no round is under way.
    awaited: FxHashSet<ConnectionId>,
    /// The operators, each with the id of its request.
    operators: Vec<(ConnectionId, u32)>,
}

impl Admin {
    /// An operator asks for a report.
    pub(crate) fn report_asked(&mut self, connection: ConnectionId, id: u32) -> Handled {
        let is_asking = !self.round.operators.is_empty() || !self.round.awaited.is_empty();
        if self.round.operators.len() >= WAITING_MAX {
            let text = "too many operators wait for a report";
            return Err(Refusal::answer(ErrorCode::NotReady, text));
        }
        self.round.operators.push((connection, id));
        if !is_asking {
            self.begin_round();
        }
        Ok(())
    }

    /// Takes over what has changed of the own cluster, and tells it to the upstream admin.
    pub(crate) fn own_changed(&mut self, change: Change) {
        let was_operational = self.own.is_operational();
        let Some(new) = self.own.apply(change) else { return };
        if was_operational && !self.own.is_operational() {
            self.notes.stopped(self.table.as_ref());
        }
        if let Some(upstream) = self.upstream.accepted {
            let information = new.to_information();
            self.links.notify(upstream, NotifyMonitorInformation { information });
        }
        self.changed();
    }

    /// Takes over what has changed of a backup cluster.
    pub(crate) fn backup_changed(&mut self, place: usize, change: Change) {
        if self.backups[place].health.apply(change).is_some() {
            self.changed();
        }
    }

    fn changed(&mut self) {
        if self.round.awaited.is_empty() {
            self.begin_round();
        }
    }

    /// What the partition table and the nodes say of the health of the cluster.
    pub(crate) fn cells_changed(&mut self) {
        let Some(table) = &self.table else { return };
        let (mut cells, mut down) = (Cells::new(), FxHashSet::default());
        for cell in table.cells() {
            if !self.members.is_running(cell.node) {
                down.insert(cell.node);
            }
            match cells.iter_mut().find(|(state, _)| *state == cell.state) {
                Some((_, count)) => *count += 1,
                None => cells.push((cell.state, 1)),
            }
        }
        cells.sort_unstable();
        let down = Some(down.len() as u64);
        self.own_changed(Change { down, cells: Some(Some(cells)), state: None });
    }

    /// Asks all clusters that can answer, or reports at once.
    fn begin_round(&mut self) {
        if self.own.is_operational()
            && let Some(master) = self.primary
        {
            self.ask_last_ids(master, self.own.state);
            let backups = self.backups.iter().filter(|backup| backup.health.is_operational());
            let backups: Vec<_> = backups
                .filter_map(|backup| Some((backup.connection?, backup.health.state)))
                .collect();
            backups.iter().for_each(|(connection, state)| self.ask_last_ids(*connection, *state));
            self.round.awaited = backups.into_iter().map(|(connection, _)| connection).collect();
            self.round.awaited.insert(master);
            self.round.number += 1;
            let (alarm, after) = (self.round.number, ROUND_TIME_MAX);
            self.links.push(Output::Wake { alarm, after });
        }
        self.report();
    }

    fn ask_last_ids(&mut self, connection: ConnectionId, state: Option<ClusterState>) {
        if state == Some(ClusterState::BackingUp) {
            self.links.ask(connection, AskRecovery {}, Asked::Recovery);
        }
        self.links.ask(connection, AskLastTransaction {}, Asked::LastTransaction);
    }

    /// A cluster has answered, or is lost.
    pub(crate) fn end_of_wait(&mut self, connection: ConnectionId) {
        if self.round.awaited.remove(&connection) {
            self.report();
        }
    }

    /// The primary master is lost: nothing is awaited any more.
    pub(crate) fn end_round(&mut self) {
        self.round.awaited.clear();
    }

    /// An operator has gone.
    pub(crate) fn forget_operator(&mut self, connection: ConnectionId) {
        self.round.operators.retain(|(operator, _)| *operator != connection);
    }

    /// The time of a round is over.
    pub(crate) fn round_overdue(&mut self, number: u64) {
        if self.round.number != number {
            return;
        }
        let mut silent: Vec<_> = self.round.awaited.iter().copied().collect();
        silent.sort_unstable();
        for connection in silent {
            let (peer, seconds) = (self.links.name_of(connection), ROUND_TIME_MAX.as_secs());
            warn!(peer, seconds, "no answer about the last transaction, closing the connection");
            self.close(connection);
        }
    }

    /// Answers the operators that wait, if nothing is awaited.
    pub(crate) fn report(&mut self) {
        let is_beginning = self.own.state.is_none() && self.primary.is_some();
        if !self.round.awaited.is_empty() || is_beginning || self.round.operators.is_empty() {
            return;
        }
        let operators = std::mem::take(&mut self.round.operators);
        let Report { warnings, problems, text } = self.make_report();
        for (connection, id) in operators {
            let (warnings, problems) = (names(&warnings), names(&problems));
            let answer = AnswerMonitorInformation { warnings, problems, summary: &text };
            self.links.answer((connection, id), answer);
        }
    }

    fn make_report(&self) -> Report {
        let is_connected = self.primary.is_some();
        let notes = self.own_notes();
        let noted = if notes.is_empty() { Severity::Fine } else { Severity::Warning };
        let mut severities = vec![(self.own.severity(false).max(noted), None)];
        let mut text = NOT_CONNECTED.to_owned();
        if is_connected {
            let own = summary::line(&self.own, None);
            text = own.text;
            notes.iter().for_each(|note| text.push_str(&format!("\n    {note}")));
            for (name, backup) in self.settings.backups.iter().zip(&self.backups) {
                let (line, severity) = self.backup_line(backup, own.tid);
                text.push_str(&format!("\n\n{name}\n    {}", line.text));
                severities.push((severity, Some(name.clone())));
            }
        }
        // The own cluster, `None`, is the first.
        severities.sort();
        let with = |severity| {
            let those = severities.iter().filter(|(one, _)| *one == severity);
            those.map(|(_, name)| name.clone()).collect()
        };
        Report { warnings: with(Severity::Warning), problems: with(Severity::Problem), text }
    }

    /// The line on a backup cluster, whose upstream cluster has this last transaction.
    pub(crate) fn backup_line(&self, backup: &Backup, own: Option<Tid>) -> (Line, Severity) {
        let lag_seconds_max = self.settings.lag_seconds_max;
        let upstream = own.map(|tid| Upstream { tid, lag_seconds_max });
        let line = summary::line(&backup.health, upstream);
        let lagging = if line.is_lagging { Severity::Warning } else { Severity::Fine };
        let severity = backup.health.severity(true).max(lagging);
        (line, severity)
    }

    /// The health of the cluster at the other end of a connection.
    pub(crate) fn health_at(&mut self, connection: ConnectionId) -> Option<&mut Health> {
        if self.primary == Some(connection) {
            return Some(&mut self.own);
        }
        let is_its = |backup: &&mut Backup| backup.connection == Some(connection);
        self.backups.iter_mut().find(is_its).map(|backup| &mut backup.health)
    }

    /// A cluster tells its last transaction.
    pub(crate) fn last_tid_told(&mut self, connection: ConnectionId, tid: Tid) {
        if let Some(health) = self.health_at(connection) {
            health.last_tid = Some(tid);
        }
        self.end_of_wait(connection);
    }
}

/// What operators are told.
struct Report {
    warnings: Vec<Option<String>>,
    problems: Vec<Option<String>>,
    text: String,
}

fn names(clusters: &[Option<String>]) -> Vec<Option<&str>> {
    clusters.iter().map(Option::as_deref).collect()
}
