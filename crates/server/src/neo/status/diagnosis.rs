//! What is not well in a cluster, and what to do next.

use zodium_neo::{CellState, ClusterState, NodeId, NodeState, NodeType};

use super::picture::Picture;
use super::words::partitions;

/// What is not well, each with what to do next; none: all is well.
pub(super) fn diagnose(picture: &Picture) -> Vec<String> {
    let mut advice = Vec::new();
    advice.extend(of_state(picture));
    advice.extend(of_down(picture));
    advice.extend(of_corrupted(picture));
    if matches!(picture.state, Some(ClusterState::Running | ClusterState::BackingUp)) {
        advice.extend(of_unused(picture));
        advice.extend(of_replication(picture));
        advice.extend(of_missing_cells(picture));
    }
    advice.extend(of_masters(picture));
    advice
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
        let pending = picture.storages().filter(|node| node.state == NodeState::Pending).count();
        return format!(
            "RECOVERING: a new cluster, without a partition table; {pending} storages are \
             pending. When all are there, `zodium neo ctl start` starts it"
        );
    }
    let unreadable = unreadable(picture);
    if unreadable.is_empty() {
        return "RECOVERING: the cluster starts by itself when all storages of the table are \
                there. `zodium neo ctl start` starts it without those that are missing; if one of \
                them may have later transactions, erase it (`zodium neo storage --reset`) before \
                it comes back"
            .to_owned();
    }
    format!(
        "RECOVERING: no storage that is up has {} up to date; start the storages that are down",
        partitions(&unreadable)
    )
}

/// Partitions that no storage can serve.
fn unreadable(picture: &Picture) -> Vec<u32> {
    let is_readable = |row: &zodium_neo::messages::Row| {
        row.iter().any(|cell| cell.state.is_readable() && picture.is_up(cell.node))
    };
    let rows = (0..).zip(&picture.table.rows).filter(|(_, row)| !is_readable(row));
    rows.map(|(partition, _)| partition).collect()
}

fn of_down(picture: &Picture) -> Vec<String> {
    let down = picture.cells(|node, _| !picture.is_up(node));
    let texts = down.into_iter().map(|cells| {
        let (node, count) = (cells.node, cells.partitions.len());
        format!(
            "{node} is down, which has cells of {count} partitions: start it. If it is lost, \
             `zodium neo ctl tweak {node}` makes other copies, and when these are up to date, \
             `zodium neo ctl drop {node}` removes it"
        )
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
