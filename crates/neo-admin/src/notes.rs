//! What is not as it should be, in sentences: what our master notes, and what the admin knows.
//!
//! A master of NEO/py notes nothing, and one that was restarted has forgotten the last table. So
//! the admin itself remembers the table that the cluster ran with, and pings the primary master.
//! Our master says which table that is: not the newest one that it tells, while no storage has it.

use std::time::Duration;

use zodium_neo::messages::{NotifyMonitorInformation, Ping};
use zodium_neo::{ClusterState, Map, NodeId, TableId};

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
    /// What the primary master knows of the table that the cluster ran with; one of NEO/py does
    /// not say.
    said: Option<Said>,
    ran_with: Option<RanWith>,
    /// How many looks ago the primary master was pinged, if it has not answered.
    looks: Option<u32>,
}

/// What our master says of the table that the cluster ran with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Unknown,
    Table(TableId),
}

/// The last table that the cluster ran with.
#[derive(Debug)]
struct RanWith {
    id: TableId,
    /// Storages that were up to date then; none if that is not known.
    readable: Vec<NodeId>,
    /// Whether a master says so. Otherwise no storage may have had the table.
    is_sure: bool,
}

impl RanWith {
    fn new(id: TableId, table: &Table, is_sure: bool) -> RanWith {
        let cells = table.cells().filter(|cell| table.id == Some(id) && cell.state.is_readable());
        let mut readable: Vec<_> = cells.map(|cell| cell.node).collect();
        readable.sort_unstable();
        readable.dedup();
        RanWith { id, readable, is_sure }
    }
}

impl Notes {
    /// The primary master is lost.
    pub(crate) fn primary_lost(&mut self) {
        (self.of_master, self.said, self.looks) = (Vec::new(), None, None);
    }

    /// The cluster does not run any more, with this table.
    pub(crate) fn stopped(&mut self, table: Option<&Table>) {
        // A master that says with which table has said so already.
        if self.said.is_none()
            && let Some((table, id)) = table.and_then(|table| Some((table, table.id?)))
        {
            self.ran_with = Some(RanWith::new(id, table, false));
        }
    }

    /// The primary master, which has told this table, says what is not as it should be.
    pub(crate) fn told(&mut self, message: &NotifyMonitorInformation<'_>, table: Option<&Table>) {
        let Map(parts) = &message.information;
        let said = message.information.get(&"table").map(|said| {
            said.as_int()
                .and_then(|id| u64::try_from(id).ok())
                .map_or(Said::Unknown, |id| Said::Table(TableId(id)))
        });
        if let (Some(Said::Table(id)), Some(table)) = (said, table)
            && said != self.said
        {
            self.ran_with = Some(RanWith::new(id, table, true));
        }
        self.said = said;
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
    /// A master that knows has noted it itself.
    fn older(&self, found: Option<&Table>) -> Option<String> {
        if matches!(self.said, Some(Said::Table(_))) {
            return None;
        }
        let found = found?.id?;
        let RanWith { id, readable, is_sure } = self.ran_with.as_ref()?;
        if found >= *id {
            return None;
        }
        let storages = match &readable[..] {
            [] => "the others".to_owned(),
            known => {
                let names: Vec<_> = known.iter().map(ToString::to_string).collect();
                format!("those that were up to date then: {}", names.join(", "))
            }
        };
        let what = match is_sure {
            true => "the cluster ran with table",
            false => "the master told table",
        };
        let doubt = if *is_sure { "" } else { ", unless no storage had noted that table yet" };
        Some(format!(
            "only table {found} is found, and {what} {id}: the storages that are there lack what \
             was committed since{doubt}. Start {storages}"
        ))
    }
}

impl Admin {
    /// What is not as it should be in the own cluster.
    pub(crate) fn own_notes(&self) -> Vec<String> {
        let mut notes = self.notes.of_master.clone();
        // An older master of ours notes it, and does not say which table it was.
        let is_noted = self.notes.said.is_none() && !notes.is_empty();
        if self.own.state == Some(ClusterState::Recovering) && !is_noted {
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
    use zodium_neo::{CellState, Extra, NodeType, Value};

    use super::*;

    const FINE: CellState = CellState::UpToDate;
    const OUTDATED: CellState = CellState::OutOfDate;

    fn table(id: u64, states: [CellState; 2]) -> Table {
        let storages = [1, 2].map(|number| NodeId::of(NodeType::Storage, number).unwrap());
        let row = storages.into_iter().zip(states).map(|(node, state)| Cell { node, state });
        let rows = vec![row.collect()];
        Table::new(SendPartitionTable { table: Some(TableId(id)), replicas: 1, rows })
    }

    /// Our master says with which table the cluster ran.
    fn says(notes: &mut Notes, table: Value<'static>, told: &Table) {
        let information = Extra::from_iter([("notes", Value::Array(Vec::new())), ("table", table)]);
        notes.told(&NotifyMonitorInformation { information }, Some(told));
    }

    #[test]
    fn an_older_table_is_named_with_doubt_if_the_master_did_not_say() {
        let mut notes = Notes::default();
        assert_eq!(notes.older(Some(&table(2, [FINE; 2]))), None);
        notes.stopped(Some(&table(3, [OUTDATED, FINE])));
        let note = notes.older(Some(&table(2, [FINE; 2]))).unwrap();
        assert!(note.starts_with("only table 2 is found, and the master told table 3"), "{note}");
        assert!(note.contains("unless no storage had noted that table yet"), "{note}");
        assert!(note.ends_with("Start those that were up to date then: S2"), "{note}");
        assert_eq!(notes.older(Some(&table(3, [OUTDATED, FINE]))), None);
        assert_eq!(notes.older(None), None);
    }

    #[test]
    fn a_table_that_no_storage_has_is_not_missed() {
        let mut notes = Notes::default();
        says(&mut notes, Value::Int(2), &table(2, [FINE; 2]));
        notes.stopped(Some(&table(3, [OUTDATED, FINE])));
        notes.primary_lost();
        says(&mut notes, Value::Nil, &table(1, [FINE; 2]));
        assert_eq!(notes.older(Some(&table(2, [FINE; 2]))), None);
        let note = notes.older(Some(&table(1, [FINE; 2]))).unwrap();
        assert!(note.starts_with("only table 1 is found, and the cluster ran with table 2"));
        assert!(note.ends_with("since. Start those that were up to date then: S1, S2"), "{note}");
        // Of a master that this admin came to later.
        says(&mut notes, Value::Int(5), &table(6, [FINE; 2]));
        assert_eq!(notes.older(Some(&table(4, [FINE; 2]))), None, "the master notes it");
        notes.primary_lost();
        let note = notes.older(Some(&table(4, [FINE; 2]))).unwrap();
        assert!(note.ends_with("since. Start the others"), "{note}");
    }
}
