//! What is not well in a cluster, and what to do next.

use zodium_neo::messages::Row;
use zodium_neo::{CellState, ClusterState, NodeId, NodeState, NodeType};

use super::picture::{Cells, Picture};
use super::words::partitions;

/// What is not well, each with what to do next; none: all is well.
pub(super) fn diagnose(picture: &Picture) -> Vec<String> {
    let mut advice = Vec::new();
    advice.extend(of_state(picture));
    advice.extend(picture.notes.iter().cloned());
    advice.extend(of_down(picture));
    advice.extend(of_corrupted(picture));
    if is_operating(picture) {
        advice.extend(of_unused(picture));
        advice.extend(of_replication(picture));
        advice.extend(of_missing_cells(picture));
    }
    advice.extend(of_masters(picture));
    advice.extend(of_backups(picture));
    advice
}

fn is_operating(picture: &Picture) -> bool {
    matches!(picture.state, Some(ClusterState::Running | ClusterState::BackingUp))
}

fn of_state(picture: &Picture) -> Option<String> {
    let text = match picture.state? {
        ClusterState::Running | ClusterState::BackingUp => return None,
        ClusterState::Recovering => return Some(of_recovery(picture)),
        ClusterState::Verifying => {
            "VERIFYING: transactions of the time before the start are being completed; wait"
        }
        ClusterState::Stopping => "STOPPING: the cluster is shutting down; start its nodes again",
        ClusterState::StartingBackup => {
            "STARTING_BACKUP: the master connects to the upstream cluster; wait, or look into its \
             log"
        }
        ClusterState::StoppingBackup => {
            "STOPPING_BACKUP: the database is being cut to its last complete transaction; wait"
        }
    };
    Some(text.to_owned())
}

fn of_recovery(picture: &Picture) -> String {
    if picture.table.table.is_none() {
        return before_the_table(picture);
    }
    let readable = picture.cells(|node, state| state.is_readable() && !picture.is_up(node));
    let missing = names(readable.iter().map(|cells| cells.node));
    let unreadable = unreadable(picture);
    if !unreadable.is_empty() {
        return format!(
            "RECOVERING: no storage that is up has {} up to date; start {missing}",
            partitions(&unreadable)
        );
    }
    if missing.is_empty() {
        return "RECOVERING: all storages that were up to date are there; wait, or look into the \
                log of the primary master"
            .to_owned();
    }
    format!(
        "RECOVERING: the cluster starts by itself when all storages are there that were up to \
         date: start {missing}. Only if they are lost for ever, `zodium neo ctl start` starts it \
         without them. That gives up what they alone have committed: erase such a storage \
         (`zodium neo storage --reset`) before it ever comes back"
    )
}

/// Of a cluster whose master knows no partition table.
fn before_the_table(picture: &Picture) -> String {
    let down = picture.storages().filter(|node| node.state == NodeState::Down);
    let down = names(down.filter_map(|node| node.id));
    if !down.is_empty() {
        return format!(
            "RECOVERING: no storage with the partition table is there yet; start {down}"
        );
    }
    let pending = picture.storages().filter(|node| node.state == NodeState::Pending).count();
    format!(
        "RECOVERING: no partition table yet; {pending} storages are pending. If the cluster has \
         run before, start its storages. If it is a new one, `zodium neo ctl start` starts it \
         when all are there"
    )
}

/// Partitions that no storage can serve.
fn unreadable(picture: &Picture) -> Vec<u32> {
    let is_readable =
        |row: &Row| row.iter().any(|cell| cell.state.is_readable() && picture.is_up(cell.node));
    let rows = (0..).zip(&picture.table.rows).filter(|(_, row)| !is_readable(row));
    rows.map(|(partition, _)| partition).collect()
}

fn of_down(picture: &Picture) -> Vec<String> {
    let is_operating = is_operating(picture);
    let down = picture.cells(|node, state| {
        // The recovery names those that it needs.
        !picture.is_up(node) && (is_operating || !state.is_readable())
    });
    let texts = down.into_iter().map(|cells| {
        let (node, count) = (cells.node, cells.partitions.len());
        let lost = match is_operating {
            true => format!(". If it is lost, {}", replacement(picture, &cells)),
            false => String::new(),
        };
        // The master says why.
        let refused = format!("{node} is refused");
        if picture.notes.iter().any(|note| note.starts_with(&refused)) {
            return format!("{refused}, which has cells of {count} partitions{lost}");
        }
        format!("{node} is down, which has cells of {count} partitions: start it{lost}")
    });
    texts.collect()
}

/// How other storages get the copies of one that is lost.
fn replacement(picture: &Picture, lost: &Cells) -> String {
    let node = lost.node;
    let rows = lost.partitions.iter().filter_map(|one| picture.table.rows.get(*one as usize));
    let rows: Vec<_> = rows.collect();
    let wanted = picture.table.replicas as usize + 1;
    let others = |row: &Row| row.iter().filter(|cell| picture.is_up(cell.node)).count();
    if rows.iter().all(|row| others(row) >= wanted) {
        return format!(
            "`zodium neo ctl drop {node}` removes it when the other copies are up to date"
        );
    }
    let lacks = |id: NodeId| rows.iter().any(|row| row.iter().all(|cell| cell.node != id));
    let has_state = |state| {
        let with_state = picture.storages().filter(move |other| other.state == state);
        with_state.filter_map(|other| other.id)
    };
    let first = if has_state(NodeState::Running).any(lacks) {
        String::new()
    } else if let Some(pending) = has_state(NodeState::Pending).next() {
        format!("`zodium neo ctl add {pending}`, and ")
    } else {
        "start another storage, add it, and ".to_owned()
    };
    format!(
        "{first}`zodium neo ctl tweak {node}` makes other copies, and when these are up to date, \
         `zodium neo ctl drop {node}` removes it"
    )
}

fn names(nodes: impl Iterator<Item = NodeId>) -> String {
    nodes.map(|node| node.to_string()).collect::<Vec<_>>().join(", ")
}

fn of_backups(picture: &Picture) -> Vec<String> {
    let texts = picture.unwell_backups.iter().map(|name| {
        let mut lines = picture.backups.iter().skip_while(|line| *line != name).skip(1);
        match lines.next().map(|line| line.trim()) {
            None | Some("None") => format!(
                "nothing is known of the backup cluster {name}: its admin is not connected; start \
                 it, or look into its log"
            ),
            Some(line) => format!(
                "the backup cluster {name} is not well ({line}): see `zodium neo status` with the \
                 address of its admin"
            ),
        }
    });
    texts.collect()
}

fn of_corrupted(picture: &Picture) -> Vec<String> {
    let corrupted = picture.cells(|_, state| state == CellState::Corrupted);
    let texts = corrupted.into_iter().map(|cells| {
        let node = cells.node;
        format!(
            "{node} has corrupted cells of {}: a check found that they differ. Kill and drop \
             {node}, and add a new storage, which replicates the others",
            partitions(&cells.partitions)
        )
    });
    texts.collect()
}

fn of_unused(picture: &Picture) -> Vec<String> {
    let with_cells = picture.cells(|_, _| true);
    let has_cells = |id: NodeId| with_cells.iter().any(|cells| cells.node == id);
    let unused = picture.storages().filter_map(|node| {
        let id = node.id?;
        match node.state {
            NodeState::Pending => Some(format!(
                "{id} is pending: `zodium neo ctl add {id}` lets it take part, and `zodium neo \
                 ctl tweak` gives it cells"
            )),
            NodeState::Running if !has_cells(id) => Some(format!(
                "{id} has no cells: `zodium neo ctl tweak -n` shows which it would get, `zodium \
                 neo ctl tweak` gives it them"
            )),
            _ => None,
        }
    });
    unused.collect()
}

fn of_replication(picture: &Picture) -> Vec<String> {
    let texts = picture.replicating().into_iter().map(|cells| {
        let (node, partitions) = (cells.node, partitions(&cells.partitions));
        format!("{node} is replicating {partitions}: wait; do not stop the storages it reads from")
    });
    texts.collect()
}

fn of_missing_cells(picture: &Picture) -> Option<String> {
    let wanted = picture.table.replicas as usize + 1;
    let rows = (0..).zip(&picture.table.rows).filter(|(_, row)| row.len() < wanted);
    let few: Vec<u32> = rows.map(|(partition, _)| partition).collect();
    if few.is_empty() {
        return None;
    }
    let storages = picture.storages().filter(|node| node.state == NodeState::Running).count();
    let advice = match wanted.saturating_sub(storages) {
        0 => String::new(),
        1 => "start another storage, add it, and ".to_owned(),
        missing => format!("start {missing} more storages, add them, and "),
    };
    Some(format!(
        "there are to be {wanted} copies of each partition, and of {} there are fewer: \
         {advice}`zodium neo ctl tweak`",
        partitions(&few)
    ))
}

fn of_masters(picture: &Picture) -> Vec<String> {
    let masters = picture.nodes.iter().filter(|node| node.node_type == NodeType::Master);
    let down = masters.filter(|node| node.state != NodeState::Running);
    let texts = down.filter_map(|node| {
        let address = node.address.as_ref()?;
        Some(format!("the master at {address} is down: start it, or nothing replaces the primary"))
    });
    texts.collect()
}
