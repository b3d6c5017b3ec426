//! A cluster in lines of 80 columns.

use std::collections::BTreeMap;
use std::fmt::Write;

use zodium_neo::messages::NodeInformation;
use zodium_neo::{CellState, ClusterState, NodeId, NodeState, NodeType, tid_time};
use zodium_types::Tid;

use super::picture::Picture;
use super::words::{partitions, span, wrapped};
use crate::neo::ctl::cell_letter;

/// Letters in a line of the partition table.
const LINE_LETTERS: usize = 60;
/// Letters in a group of a line.
const GROUP_LETTERS: usize = 10;
/// Most lines of letters for a storage; of larger tables a letter stands for several partitions.
const LINES_MAX: usize = 8;
/// Seconds by which clocks of machines may differ: a time that is so far ahead is now.
const CLOCKS_DIFFER: f64 = 60.0;
/// Most clients that are listed.
const CLIENTS_MAX: usize = 5;

/// Draws a cluster; `now` in seconds since 1970.
pub(super) fn draw(picture: &Picture, advice: &[String], now: f64) -> String {
    let mut text = String::new();
    head(picture, now, &mut text);
    nodes(picture, now, &mut text);
    table(picture, &mut text);
    let replicating = picture.replicating();
    let lines = replicating
        .iter()
        .map(|cells| format!("{} fetches {}", cells.node, partitions(&cells.partitions)));
    section("replication", lines, &mut text);
    section("backups", picture.backups.iter().map(|line| line.trim().to_owned()), &mut text);
    if advice.is_empty() {
        text.push_str("\nAll is well.\n");
    }
    section("to do", advice.iter().cloned(), &mut text);
    text
}

/// A heading with a list, if there is something to list.
fn section(heading: &str, lines: impl Iterator<Item = String>, text: &mut String) {
    for (number, line) in lines.enumerate() {
        if number == 0 {
            text.push_str(&format!("\n{heading}\n"));
        }
        text.push_str(&wrapped_item(&line));
    }
}

fn wrapped_item(line: &str) -> String {
    let lines = wrapped(&format!("- {line}"), 2);
    lines.lines().map(|line| format!(" {line}\n")).collect()
}

fn head(picture: &Picture, now: f64, text: &mut String) {
    let state = picture.state.map_or("not known yet", ClusterState::name);
    let address = picture.nodes.iter().find(|node| node.id == Some(picture.primary));
    let address = address.and_then(|node| node.address.as_ref());
    let address = address.map_or(String::new(), |address| format!(" at {address}"));
    let mut line = |name: &str, value: String| text.push_str(&format!("{name:11} {value}\n"));
    line("cluster", state.to_owned());
    line("primary", format!("{}{address}", picture.primary));
    let rows = &picture.table;
    line(
        "partitions",
        match rows.table {
            Some(table) => format!(
                "{} with {} {}, table {table}",
                rows.rows.len(),
                rows.replicas,
                if rows.replicas == 1 { "replica" } else { "replicas" },
            ),
            None => "no table yet".to_owned(),
        },
    );
    let tid = |tid: Tid| match tid {
        Tid::ZERO => "none yet".to_owned(),
        tid => {
            let ago = now - tid.to_unix_seconds();
            let when = match ago > -CLOCKS_DIFFER {
                true => format!("{} ago", span(ago)),
                false => format!("in {}", span(-ago)),
            };
            format!("{tid} ({}, {when})", tid_time(tid))
        }
    };
    if let Some(last) = picture.last_tid {
        line("last tid", tid(last));
    }
    if let Some(backup) = picture.backup_tid {
        line("backup tid", tid(backup));
    }
}

fn nodes(picture: &Picture, now: f64, text: &mut String) {
    let is_client = |node: &&NodeInformation| node.node_type == NodeType::Client;
    let clients = picture.nodes.iter().filter(is_client).count();
    let listed = picture.nodes.iter().filter(|node| clients <= CLIENTS_MAX || !is_client(node));
    let mut listed: Vec<_> = listed.collect();
    listed.sort_by_key(|node| match node.node_type {
        NodeType::Master => 0,
        NodeType::Storage => 1,
        NodeType::Admin => 2,
        NodeType::Client => 3,
    });
    let lines: Vec<[String; 4]> = listed.iter().map(|node| fields(node, now)).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2)];
    text.push_str("\nnodes\n");
    for [id, state, address, seen] in &lines {
        let [a, b, c] = widths;
        let line = format!("  {id:a$}  {state:b$}  {address:c$}  {seen}");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    if clients > CLIENTS_MAX {
        text.push_str(&format!("  {clients} clients\n"));
    }
}

fn fields(node: &NodeInformation, now: f64) -> [String; 4] {
    let kind = node.node_type.name().to_lowercase();
    let id = node.id.map_or(kind, |id| id.to_string());
    let address = node.address.as_ref().map_or(String::new(), ToString::to_string);
    let seen = match (node.id_timestamp, node.state) {
        (None, _) => String::new(),
        (Some(time), NodeState::Down | NodeState::Unknown) => {
            format!("connected last {} ago", span(now - time))
        }
        (Some(time), _) => format!("connected for {}", span(now - time)),
    };
    [id, node.state.name().to_owned(), address, seen]
}

/// The partition table, with a line of letters for each storage.
fn table(picture: &Picture, text: &mut String) {
    let rows = &picture.table.rows;
    if rows.is_empty() {
        return;
    }
    let step = rows.len().div_ceil(LINE_LETTERS * LINES_MAX);
    let storages = picture.storages().filter(|node| node.state == NodeState::Running);
    let mut lines: BTreeMap<NodeId, Vec<Option<CellState>>> =
        storages.filter_map(|node| Some((node.id?, Vec::new()))).collect();
    for cells in picture.cells(|_, _| true) {
        lines.entry(cells.node).or_default();
    }
    let count = rows.len().div_ceil(step);
    lines.values_mut().for_each(|line| line.resize(count, None));
    for (partition, row) in rows.iter().enumerate() {
        for cell in row {
            if let Some(line) = lines.get_mut(&cell.node) {
                let shown = &mut line[partition / step];
                *shown = worse(*shown, cell.state);
            }
        }
    }
    text.push_str(
        "\npartition table: U up to date, O out of date, F feeding, C corrupted, . none\n",
    );
    if step > 1 {
        let note = format!("A letter stands for {step} partitions, and is the worst of them.");
        text.push_str(&note);
        text.push('\n');
    }
    let width = lines.keys().map(|id| id.to_string().len()).max().unwrap_or(0);
    for first in (0..count).step_by(LINE_LETTERS) {
        ruler(first, count, step, width, text);
        for (id, line) in &lines {
            let letters = line[first..count.min(first + LINE_LETTERS)].chunks(GROUP_LETTERS);
            let groups: Vec<String> = letters.map(letters_of).collect();
            let state = if picture.is_up(*id) { ' ' } else { '!' };
            // Writing to a string does not fail.
            let _ = writeln!(text, " {state}{:width$}  {}", id.to_string(), groups.join(" "));
        }
    }
}

/// The numbers of the partitions over the first letter of each group.
fn ruler(first: usize, count: usize, step: usize, width: usize, text: &mut String) {
    let starts = (first..count.min(first + LINE_LETTERS)).step_by(GROUP_LETTERS);
    let marks: String =
        starts.map(|letter| format!("{:<1$}", letter * step, GROUP_LETTERS + 1)).collect();
    text.push_str(&format!("  {:width$}  {}\n", "", marks.trim_end()));
}

fn letters_of(cells: &[Option<CellState>]) -> String {
    cells.iter().map(|cell| cell.map_or('.', |state| char::from(cell_letter(state)))).collect()
}

/// The state that asks for more attention.
fn worse(one: Option<CellState>, other: CellState) -> Option<CellState> {
    let order = [
        CellState::Discarded,
        CellState::UpToDate,
        CellState::Feeding,
        CellState::OutOfDate,
        CellState::Corrupted,
    ];
    let place = |state: CellState| order.iter().position(|one| *one == state);
    match one {
        Some(one) if place(one) >= place(other) => Some(one),
        _ => Some(other),
    }
}
