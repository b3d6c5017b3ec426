//! How a cluster is: its own, or a backup.

use zodium_neo::{CellState, ClusterState, Extra, Map, Value};
use zodium_types::Tid;

/// How a cluster is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Health {
    /// `None` while that is not known.
    pub(crate) state: Option<ClusterState>,
    /// How many storages with cells are not running.
    pub(crate) down: u64,
    /// How many cells there are in each state; `None` while that is not known.
    pub(crate) cells: Option<Cells>,
    /// The last transaction, when it was asked for last.
    pub(crate) last_tid: Option<Tid>,
    /// Of a backup cluster: the last transaction that is complete, when it was asked for last.
    pub(crate) backup_tid: Option<Tid>,
}

/// Numbers of cells by their state, sorted; no number is 0.
pub(crate) type Cells = Vec<(CellState, u64)>;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Severity {
    Fine,
    Warning,
    Problem,
}

/// What has changed; absent parts have not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) state: Option<Option<ClusterState>>,
    pub(crate) down: Option<u64>,
    pub(crate) cells: Option<Option<Cells>>,
}

impl Health {
    /// Whether the database of the cluster can be read.
    pub(crate) fn is_operational(&self) -> bool {
        matches!(self.state, Some(ClusterState::BackingUp | ClusterState::Running))
    }

    pub(crate) fn severity(&self, is_backup: bool) -> Severity {
        let is_whole = self
            .cells
            .as_ref()
            .is_some_and(|cells| matches!(cells[..], [(CellState::UpToDate, _)]));
        if self.down > 0 || !self.is_operational() {
            Severity::Problem
        } else if !is_whole || is_backup && self.state != Some(ClusterState::BackingUp) {
            Severity::Warning
        } else {
            Severity::Fine
        }
    }

    /// Takes a change over; what of it was new.
    pub(crate) fn apply(&mut self, change: Change) -> Option<Change> {
        let Change { state, down, cells } = change;
        let change = Change {
            state: state.filter(|state| *state != self.state),
            down: down.filter(|down| *down != self.down),
            cells: cells.filter(|cells| *cells != self.cells),
        };
        if change == Change::default() {
            return None;
        }
        self.state = change.state.unwrap_or(self.state);
        self.down = change.down.unwrap_or(self.down);
        if let Some(cells) = &change.cells {
            self.cells.clone_from(cells);
        }
        Some(change)
    }

    /// All of it as a change, for an admin that knows nothing yet.
    pub(crate) fn whole(&self) -> Change {
        Change { state: Some(self.state), down: Some(self.down), cells: Some(self.cells.clone()) }
    }
}

/// The numbers of enumerations, each its own msgpack.
const NUMBERS: [u8; 8] = [0, 1, 2, 3, 4, 5, 6, 7];
const STATE: &str = "cluster_state";
const DOWN: &str = "down";
const CELLS: &str = "pt_summary";

impl Change {
    /// The change as admins send it to one another.
    pub(crate) fn to_information(&self) -> Extra<'static> {
        let state = self.state.map(|state| {
            state.map_or(Value::Nil, |state| enumeration(ClusterState::EXTENSION, state.number()))
        });
        let down = self.down.map(|down| Value::Int(i64::try_from(down).unwrap_or(i64::MAX)));
        let cells = self.cells.as_ref().map(|cells| match cells {
            Some(cells) => Value::Map(cells.iter().map(entry).collect()),
            None => Value::Nil,
        });
        let parts = [(STATE, state), (DOWN, down), (CELLS, cells)];
        parts.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }

    /// The change that another admin has sent; unknown parts are ignored. The name of a part that
    /// is not what the protocol says.
    pub(crate) fn from_information(information: &Extra<'_>) -> Result<Change, &'static str> {
        let Map(parts) = information;
        let mut change = Change::default();
        for (name, value) in parts {
            match (*name, value) {
                (STATE, Value::Nil) => change.state = Some(None),
                (STATE, value) => {
                    let state = number_of(value, ClusterState::EXTENSION);
                    let state = state.and_then(ClusterState::from_number).ok_or(STATE)?;
                    change.state = Some(Some(state));
                }
                (DOWN, value) => {
                    let down = value.as_int().and_then(|down| u64::try_from(down).ok());
                    change.down = Some(down.ok_or(DOWN)?);
                }
                (CELLS, Value::Nil) => change.cells = Some(None),
                (CELLS, Value::Map(entries)) => {
                    let cells: Option<Cells> = entries.iter().map(cells_of).collect();
                    let mut cells = cells.ok_or(CELLS)?;
                    cells.retain(|(_, count)| *count > 0);
                    cells.sort_unstable();
                    change.cells = Some(Some(cells));
                }
                (CELLS, _) => return Err(CELLS),
                _ => {}
            }
        }
        Ok(change)
    }
}

fn enumeration(kind: i8, number: u8) -> Value<'static> {
    let number = usize::from(number).min(NUMBERS.len() - 1);
    Value::Extension { kind, payload: &NUMBERS[number..=number] }
}

fn number_of(value: &Value<'_>, of: i8) -> Option<u8> {
    match value {
        // The msgpack of a number below 128 is the number.
        Value::Extension { kind, payload: [number @ 0..128] } if *kind == of => Some(*number),
        _ => None,
    }
}

fn entry(&(state, count): &(CellState, u64)) -> (Value<'static>, Value<'static>) {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    (enumeration(CellState::EXTENSION, state.number()), Value::Int(count))
}

fn cells_of((state, count): &(Value<'_>, Value<'_>)) -> Option<(CellState, u64)> {
    let state = CellState::from_number(number_of(state, CellState::EXTENSION)?)?;
    Some((state, u64::try_from(count.as_int()?).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_arrive_as_they_were_sent() {
        let cells = vec![(CellState::OutOfDate, 2), (CellState::UpToDate, 700)];
        for change in [
            Change::default(),
            Change { state: Some(None), down: Some(3), cells: Some(None) },
            Change {
                state: Some(Some(ClusterState::BackingUp)),
                down: None,
                cells: Some(Some(cells)),
            },
        ] {
            assert_eq!(Change::from_information(&change.to_information()), Ok(change));
        }
    }

    #[test]
    fn what_is_not_of_the_protocol_is_refused_by_name() {
        for (name, value) in [
            (STATE, Value::Int(2)),
            (STATE, enumeration(CellState::EXTENSION, 2)),
            (STATE, enumeration(ClusterState::EXTENSION, 7)),
            (DOWN, Value::Int(-1)),
            (CELLS, Value::Bool(true)),
            (CELLS, Value::Map(vec![(Value::Int(1), Value::Int(1))])),
        ] {
            let information = Extra::from_iter([("other", Value::Nil), (name, value)]);
            assert_eq!(Change::from_information(&information), Err(name));
        }
    }

    #[test]
    fn only_what_is_new_is_a_change() {
        let mut health = Health::default();
        let change =
            Change { state: Some(Some(ClusterState::Running)), down: Some(0), cells: None };
        let new = Change { down: None, ..change.clone() };
        assert_eq!(health.apply(change.clone()), Some(new));
        assert_eq!(health.apply(change), None);
    }

    #[test]
    fn a_cluster_is_fine_if_all_cells_are_up_to_date() {
        let health = |state, down, cells: &[(CellState, u64)]| Health {
            state: Some(state),
            down,
            cells: Some(cells.to_vec()),
            ..Health::default()
        };
        use CellState::{Feeding, OutOfDate, UpToDate};
        use ClusterState::{BackingUp, Recovering, Running};
        for (health, own, backup) in [
            (health(Running, 0, &[(UpToDate, 4)]), Severity::Fine, Severity::Warning),
            (health(BackingUp, 0, &[(UpToDate, 4)]), Severity::Fine, Severity::Fine),
            (health(Running, 1, &[(UpToDate, 4)]), Severity::Problem, Severity::Problem),
            (health(Recovering, 0, &[(UpToDate, 4)]), Severity::Problem, Severity::Problem),
            (health(BackingUp, 0, &[(OutOfDate, 1)]), Severity::Warning, Severity::Warning),
            (
                health(Running, 0, &[(UpToDate, 4), (Feeding, 1)]),
                Severity::Warning,
                Severity::Warning,
            ),
            (Health::default(), Severity::Problem, Severity::Problem),
        ] {
            assert_eq!(
                (health.severity(false), health.severity(true)),
                (own, backup),
                "{health:?}"
            );
        }
    }
}
