//! What is not as it should be, in sentences: what our master notes, and what the admin knows.
//!
//! A master of NEO/py notes nothing. So the admin itself remembers the table that the cluster ran
//! with, and pings the primary master.

use std::time::Duration;

use zodium_neo::messages::{NotifyMonitorInformation, Ping};
use zodium_neo::{ClusterState, Map, NodeId};

use crate::health::Severity;
use crate::peer::Asked;
use crate::summary;
use crate::table::Table;
use crate::{Admin, Output};

/// The alarm for the next look at the primary master. Those of rounds count from 1.
pub(crate) const LOOK_ALARM: u64 = u64::MAX;
/// Interval between these looks.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);
/// A primary master that has not answered for so many looks is reported.
const LOOKS_MAX: u32 = 3;
/// Most notes that are taken of a master.
const NOTES_MAX: usize = 100;

/// What is not as it should be.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// What the primary master notes.
    of_master: Vec<String>,
    /// The last table that the cluster ran with.
    ran_with: Option<Table>,
    /// How many looks ago the primary master was pinged, if it has not answered.
    looks: Option<u32>,
}

impl Notes {
    /// The primary master is lost.
    pub(crate) fn primary_lost(&mut self) {
        (self.of_master, self.looks) = (Vec::new(), None);
    }

    /// The cluster does not run any more, with this table.
    pub(crate) fn stopped(&mut self, table: Option<&Table>) {
        self.ran_with = table.cloned();
    }

    /// The primary master says what is not as it should be.
    pub(crate) fn told(&mut self, message: &NotifyMonitorInformation<'_>) {
        let Map(parts) = &message.information;
        let notes = parts.iter().filter(|(name, _)| *name == "notes");
        let notes = notes.flat_map(|(_, value)| value.as_array().unwrap_or_default());
        let texts = notes.filter_map(|note| std::str::from_utf8(note.as_bytes()?).ok());
        self.of_master = texts.take(NOTES_MAX).map(str::to_owned).collect();
    }

    /// The primary master has answered.
    pub(crate) fn answered(&mut self) {
        self.looks = None;
    }

    /// For how many seconds the primary master has not answered, if it is long.
    pub(crate) fn silent_seconds(&self) -> Option<u64> {
        let looks = self.looks.filter(|looks| *looks >= LOOKS_MAX)?;
        Some(u64::from(looks) * LOOK_INTERVAL.as_secs())
    }

    /// Of a cluster that recovers with an older table than it ran with: which storages had that.
    fn older(&self, found: Option<&Table>) -> Option<String> {
        let (found, last) = (found?.id?, self.ran_with.as_ref()?);
        let last_id = last.id.filter(|last| found < *last)?;
        let mut readable: Vec<NodeId> =
            last.cells().filter(|cell| cell.state.is_readable()).map(|cell| cell.node).collect();
        readable.sort_unstable();
        readable.dedup();
        let readable: Vec<_> = readable.iter().map(ToString::to_string).collect();
        Some(format!(
            "only table {found} is found, and the cluster ran with table {last_id}: the storages \
             that are there lack what was committed since. Start those that were up to date then: \
             {}",
            readable.join(", ")
        ))
    }
}

impl Admin {
    /// What is not as it should be in the own cluster.
    pub(crate) fn own_notes(&self) -> Vec<String> {
        let mut notes = self.notes.of_master.clone();
        if self.own.state == Some(ClusterState::Recovering) && notes.is_empty() {
            notes.extend(self.notes.older(self.table.as_ref()));
        }
        notes
    }

    /// What is not as it should be in backup clusters.
    pub(crate) fn backup_notes(&self) -> Vec<String> {
        let own = summary::line(&self.own, None);
        let named = self.settings.backups.iter().zip(&self.backups);
        let notes = named.filter_map(|(name, backup)| {
            let (line, severity) = self.backup_line(backup, own.tid);
            if severity == Severity::Fine {
                return None;
            }
            Some(match backup.connection {
                Some(_) => format!("the backup cluster {name} is not well: {}", line.text),
                None => format!("the admin of the backup cluster {name} is not connected"),
            })
        });
        notes.collect()
    }

    /// Begins to look at the primary master.
    pub(crate) fn begin_looks(&mut self) {
        self.links.push(Output::Wake { alarm: LOOK_ALARM, after: LOOK_INTERVAL });
    }

    /// The time of the next look has come.
    pub(crate) fn look(&mut self) {
        match (&mut self.notes.looks, self.primary) {
            (Some(looks), _) => *looks += 1,
            (None, Some(master)) => {
                self.links.ask(master, Ping {}, Asked::Alive);
                self.notes.looks = Some(0);
            }
            (None, None) => {}
        }
        self.begin_looks();
    }
}

#[cfg(test)]
mod tests {
    use zodium_neo::messages::{Cell, SendPartitionTable};
    use zodium_neo::{CellState, NodeType, TableId};

    use super::*;

    fn table(id: u64, states: [CellState; 2]) -> Table {
        let storages = [1, 2].map(|number| NodeId::of(NodeType::Storage, number).unwrap());
        let row = storages.into_iter().zip(states).map(|(node, state)| Cell { node, state });
        let rows = vec![row.collect()];
        Table::new(SendPartitionTable { table: Some(TableId(id)), replicas: 1, rows })
    }

    #[test]
    fn an_older_table_is_named_with_the_storages_that_were_up_to_date() {
        let (fine, outdated) = (CellState::UpToDate, CellState::OutOfDate);
        let mut notes = Notes::default();
        assert_eq!(notes.older(Some(&table(2, [fine; 2]))), None);
        notes.stopped(Some(&table(3, [outdated, fine])));
        let note = notes.older(Some(&table(2, [fine; 2]))).unwrap();
        assert!(note.starts_with("only table 2 is found, and the cluster ran with table 3"));
        assert!(note.ends_with("up to date then: S2"), "{note}");
        assert_eq!(notes.older(Some(&table(3, [outdated, fine]))), None);
        assert_eq!(notes.older(None), None);
    }
}
