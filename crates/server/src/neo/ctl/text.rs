//! What neoctl prints.

use std::collections::BTreeMap;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use zodium_neo::messages::{AnswerRecovery, NodeInformation, Row};
use zodium_neo::{Address, CellState, NodeId, NodeState, tid_time};
use zodium_types::{Oid, Tid};

use crate::neo::asking::Report;

/// What Python prints where there is nothing.
const NONE: &str = "None";

/// The lines of `print ids`.
pub(super) fn ids(
    recovery: &AnswerRecovery,
    last_tid: Option<Tid>,
    last_oid: Option<Oid>,
) -> String {
    let tid = |tid: Tid| format!("{:#x} ({})", tid.0, tid_time(tid));
    let first = match (recovery.backup_tid, last_oid) {
        (Some(backup_tid), _) => format!("backup_tid = {}", tid(backup_tid)),
        (None, Some(oid)) => format!("last_oid = {:#x}", oid.0),
        (None, None) => format!("last_oid = {NONE}"),
    };
    let last_tid = last_tid.map_or(NONE.to_owned(), tid);
    let last_ptid = recovery.table.map_or(NONE.to_owned(), |table| table.to_string());
    format!("{first}\nlast_tid = {last_tid}\nlast_ptid = {last_ptid}")
}

/// The partition table, with a line for each storage that has cells or is running.
pub(super) fn table(rows: &[Row], nodes: &[NodeInformation]) -> String {
    let states: BTreeMap<NodeId, NodeState> =
        nodes.iter().filter_map(|node| Some((node.id?, node.state))).collect();
    let running = states.iter().filter(|(_, state)| **state == NodeState::Running);
    let running = running.map(|(id, _)| *id);
    let mut lines: BTreeMap<NodeId, Vec<u8>> =
        running.map(|id| (id, vec![b'.'; rows.len()])).collect();
    for (partition, row) in rows.iter().enumerate() {
        for cell in row {
            let line = lines.entry(cell.node).or_insert_with(|| vec![b'.'; rows.len()]);
            line[partition] = cell_letter(cell.state);
        }
    }
    let Some((last, _)) = lines.last_key_value() else { return String::new() };
    let width = last.to_string().len();
    let mut text = Vec::new();
    if rows.len() > 10 {
        let marks = (10..rows.len()).step_by(10).map(|number| format!("{number:>9}v"));
        text.push(format!("{:1$}{2}", "", width + 4, marks.collect::<String>()));
    }
    text.extend(lines.iter().map(|(id, cells)| {
        let state = node_letter(states.get(id).copied().unwrap_or(NodeState::Unknown));
        let id = id.to_string();
        format!("{id:width$} {state} {}", String::from_utf8_lossy(cells))
    }));
    text.join("\n")
}

/// The letter of a cell.
pub(in crate::neo) fn cell_letter(state: CellState) -> u8 {
    match state {
        CellState::UpToDate => b'U',
        CellState::OutOfDate => b'O',
        CellState::Feeding => b'F',
        CellState::Discarded => b'D',
        CellState::Corrupted => b'C',
    }
}

fn node_letter(state: NodeState) -> char {
    match state {
        NodeState::Running => 'R',
        NodeState::Down => 'D',
        NodeState::Unknown => 'U',
        NodeState::Pending => 'P',
    }
}

/// Rows of the partition table from a partition on, a line for each.
pub(super) fn rows(rows: &[Row], first: u32) -> String {
    let lines = (first..).zip(rows).map(|(partition, row)| {
        let cells = row.iter().map(|cell| format!(" {} - {} |", cell.node, cell.state));
        format!("{partition:03} |{}", cells.collect::<String>())
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Sorts nodes as neoctl does: by their ids, those without one by their addresses.
pub(in crate::neo) fn sort(nodes: &mut [NodeInformation]) {
    nodes.sort_by(|one, other| {
        let key = |node: &NodeInformation| {
            (node.id.is_none(), node.id, node.address.clone().filter(|_| node.id.is_none()))
        };
        key(one).cmp(&key(other))
    });
}

/// A line for each node.
pub(super) fn nodes(nodes: &[NodeInformation]) -> String {
    if nodes.is_empty() {
        return "Empty list!".to_owned();
    }
    let fields: Vec<[String; 5]> = nodes.iter().map(fields).collect();
    let width = |column: usize| fields.iter().map(|fields| fields[column].len()).max().unwrap_or(0);
    let [id, kind, address, state] = [width(0), width(1), width(2), width(3)];
    let lines = fields.iter().map(|fields| {
        let [a, b, c, d, e] = fields;
        format!("{a:id$} | {b:kind$} | {c:address$} | {d:state$} | {e}")
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn fields(node: &NodeInformation) -> [String; 5] {
    [
        node.id.map_or(NONE.to_owned(), |id| id.to_string()),
        node.node_type.to_string(),
        node.address.as_ref().map_or(String::new(), Address::to_string),
        node.state.to_string(),
        match node.id_timestamp {
            None => NONE.to_owned(),
            Some(0.0) => "0.0".to_owned(),
            Some(seconds) => utc(seconds).unwrap_or_else(|| seconds.to_string()),
        },
    ]
}

/// A time as Python prints it in UTC; `None` beyond the year 9999.
fn utc(seconds: f64) -> Option<String> {
    // Python rounds to microseconds, halves to the even one.
    let whole = seconds.trunc();
    let micros = ((seconds - whole) * 1e6).round_ties_even() as i64;
    let time = Timestamp::from_microsecond((whole as i64).checked_mul(1_000_000)? + micros).ok()?;
    let time = TimeZone::UTC.to_datetime(time);
    let (date, micros) = (time.date(), time.subsec_nanosecond() / 1000);
    let text = format!("{date} {:02}:{:02}:{:02}", time.hour(), time.minute(), time.second());
    Some(if micros == 0 { text } else { format!("{text}.{micros:06}") })
}

/// The lines of `print summary`.
pub(super) fn summary(report: &Report) -> String {
    let severities = [("warning", &report.warnings), ("problem", &report.problems)];
    let severities = severities.iter().filter(|(_, names)| !names.is_empty());
    let severities = severities.map(|(severity, names)| {
        let names = names.iter().map(|name| name.as_deref().map_or("null".to_owned(), quoted));
        format!("\"{severity}\": [{}]", names.collect::<Vec<_>>().join(", "))
    });
    let severities: Vec<_> = severities.collect();
    format!("# {{{}}}\n{}", severities.join(", "), report.summary)
}

/// A string of JSON in ASCII, as Python writes it.
fn quoted(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    let mut ascii = String::new();
    for letter in quoted.chars() {
        if letter.is_ascii() {
            ascii.push(letter);
        } else {
            let units = letter.encode_utf16(&mut [0; 2]).to_vec();
            ascii.extend(units.iter().map(|unit| format!("\\u{unit:04x}")));
        }
    }
    ascii
}

#[cfg(test)]
mod tests {
    use zodium_neo::messages::Cell;
    use zodium_neo::{NodeType, TableId};

    use super::*;

    fn node(
        kind: NodeType,
        number: u32,
        host: &str,
        port: u16,
        state: NodeState,
        time: Option<f64>,
    ) -> NodeInformation {
        let address = Address { host: host.to_owned(), port };
        let address = Some(address).filter(|address| !address.host.is_empty());
        NodeInformation {
            node_type: kind,
            address,
            id: NodeId::of(kind, number),
            state,
            id_timestamp: time,
        }
    }

    fn storage(number: u32, state: NodeState) -> NodeInformation {
        node(NodeType::Storage, number, "127.0.0.1", 1, state, None)
    }

    /// A row as `1U 2O`.
    fn row(text: &str) -> Row {
        let cells = text.split_whitespace().map(|cell| {
            let (number, letter) = cell.split_at(cell.len() - 1);
            let is = |state: &&CellState| {
                char::from(cell_letter(**state)) == letter.chars().next().unwrap()
            };
            let state = *CellState::ALL.iter().find(is).unwrap();
            Cell { node: NodeId::of(NodeType::Storage, number.parse().unwrap()).unwrap(), state }
        });
        cells.collect()
    }

    #[test]
    fn nodes_are_in_columns_sorted_by_id() {
        use NodeState::{Down, Running};
        let local = "127.0.0.1";
        let mut list = vec![
            node(NodeType::Storage, 1, local, 10, Running, Some(1_763_890_000.123_456_7)),
            node(NodeType::Storage, 12, "::1", 1, Down, None),
            node(NodeType::Master, 0, local, 11, Down, None),
            node(NodeType::Master, 1, local, 9, Running, Some(1.5)),
            node(NodeType::Client, 1, "", 0, Running, Some(2.0)),
            node(NodeType::Admin, 1, local, 8, Running, Some(0.0)),
        ];
        sort(&mut list);
        // What NEO/py's formatNodeList makes of the same list.
        let expected = "\
A1   | ADMIN   | 127.0.0.1:8  | RUNNING | 0.0
C1   | CLIENT  |              | RUNNING | 1970-01-01 00:00:02
M1   | MASTER  | 127.0.0.1:9  | RUNNING | 1970-01-01 00:00:01.500000
S1   | STORAGE | 127.0.0.1:10 | RUNNING | 2025-11-23 09:26:40.123457
S12  | STORAGE | [::1]:1      | DOWN    | None
None | MASTER  | 127.0.0.1:11 | DOWN    | None";
        assert_eq!(nodes(&list), expected);
        assert_eq!(nodes(&[]), "Empty list!");
        assert_eq!(utc(1_763_890_000.999_999_7).unwrap(), "2025-11-23 09:26:41");
    }

    #[test]
    fn a_small_table_has_a_line_for_each_storage() {
        use NodeState::{Down, Pending, Running};
        let list =
            [storage(1, Running), storage(2, Down), storage(3, Pending), storage(10, Running)];
        let rows = [row("1U 2O"), row("1F 2C"), row("3U")];
        assert_eq!(table(&rows, &list), "S1  R UF.\nS2  D OC.\nS3  P ..U\nS10 R ...");
        assert_eq!(table(&rows[..2], &[]), "S1 U UF\nS2 U OC");
        assert_eq!(table(&[], &[]), "");
    }

    #[test]
    fn a_larger_table_has_marks_over_each_tenth_partition() {
        let list = [storage(1, NodeState::Running)];
        let rows: Vec<_> = (0..23).map(|_| row("1U")).collect();
        let expected = format!("             10v       20v\nS1 R {}", "U".repeat(23));
        assert_eq!(table(&rows, &list), expected);
        let ten: Vec<_> = (0..10).map(|_| row("1U")).collect();
        assert_eq!(table(&ten, &list), format!("S1 R {}", "U".repeat(10)));
    }

    #[test]
    fn partitions_have_lines_with_their_cells() {
        let text = rows(&[row("1U 2O"), row("")], 7);
        assert_eq!(text, "007 | S1 - UP_TO_DATE | S2 - OUT_OF_DATE |\n008 |");
    }

    #[test]
    fn ids_are_hexadecimal_with_times() {
        let recovery =
            |backup_tid| AnswerRecovery { table: Some(TableId(9)), backup_tid, truncate_tid: None };
        let tid = Some(Tid(0x0400_0000_0000_0001));
        assert_eq!(
            ids(&recovery(None), tid, Some(Oid(31))),
            "last_oid = 0x1f\nlast_tid = 0x400000000000001 (2025-04-11 09:04:00)\nlast_ptid = 9"
        );
        assert_eq!(
            ids(&recovery(Some(Tid::ZERO)), tid, None),
            "backup_tid = 0x0 (1900-01-01 00:00:00)\n\
             last_tid = 0x400000000000001 (2025-04-11 09:04:00)\nlast_ptid = 9"
        );
    }

    #[test]
    fn severities_are_json_of_python() {
        let report = |warnings: &[Option<&str>], problems: &[Option<&str>]| Report {
            warnings: warnings.iter().map(|name| name.map(str::to_owned)).collect(),
            problems: problems.iter().map(|name| name.map(str::to_owned)).collect(),
            summary: "RUNNING".to_owned(),
        };
        assert_eq!(summary(&report(&[], &[])), "# {}\nRUNNING");
        assert_eq!(
            summary(&report(&[None, Some("a\"b")], &[Some("é𝄞")])),
            "# {\"warning\": [null, \"a\\\"b\"], \"problem\": [\"\\u00e9\\ud834\\udd1e\"]}\nRUNNING"
        );
    }
}
