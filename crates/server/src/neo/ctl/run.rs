//! Carries a command out: its questions, and what is made of the answers.

use serde_json::{Value, json};
use zodium_neo::messages::{
    AddPendingNodes, CheckReplicas, FlushLog, Repair, SetClusterState, SetNodeState,
    SetNumReplicas, Truncate,
};
use zodium_neo::{ClusterState, Map, Message, NodeId, NodeState, NodeType, Partition};
use zodium_neo_server::AskError;
use zodium_types::Tid;

use super::command::{CtlCommand, PrintCommand, SetCommand};
use super::values::{Check, Nodes};
use super::{Outcome, json, text};
use crate::neo::asking::Asking;

/// Carries a command out.
pub(super) async fn run(command: &CtlCommand, ask: &mut Asking) -> Result<Outcome, AskError> {
    match command {
        CtlCommand::Print(what) => print(what, ask).await,
        CtlCommand::Set(SetCommand::Cluster { state }) => set_state(*state, ask).await,
        CtlCommand::Set(SetCommand::Replicas { number }) => {
            order(SetNumReplicas { replicas: *number }, ask).await
        }
        CtlCommand::Check { what } => check(what, ask).await,
        CtlCommand::Start => set_state(ClusterState::Verifying, ask).await,
        CtlCommand::Add { nodes } => {
            let ids = storages(nodes, ask).await?;
            order(AddPendingNodes { ids }, ask).await
        }
        CtlCommand::Tweak { dry_run, nodes } => tweak(*dry_run, nodes, ask).await,
        CtlCommand::Drop { node } => {
            order(SetNodeState { id: *node, state: NodeState::Unknown }, ask).await
        }
        CtlCommand::Kill { node } => {
            order(SetNodeState { id: *node, state: NodeState::Down }, ask).await
        }
        CtlCommand::PruneOrphan { dry_run, nodes } => {
            let ids = storages(nodes, ask).await?;
            order(Repair { ids, dry_run: *dry_run }, ask).await
        }
        CtlCommand::Truncate { tid } => silently(Truncate { tid: *tid }, ask).await,
        CtlCommand::FlushLog => {
            ask.0.notify(FlushLog {}).await?;
            Ok(silent(""))
        }
    }
}

async fn order<'a>(message: impl Into<Message<'a>>, ask: &mut Asking) -> Result<Outcome, AskError> {
    let text = ask.0.order(message).await?;
    let json = json!({ "message": text });
    Ok(Outcome::new(text, json))
}

/// As [`order`]; neoctl does not print the answer.
async fn silently<'a>(
    message: impl Into<Message<'a>>,
    ask: &mut Asking,
) -> Result<Outcome, AskError> {
    ask.0.order(message).await.map(|text| silent(&text))
}

fn silent(message: &str) -> Outcome {
    Outcome { text: None, json: json!({ "message": message }) }
}

async fn set_state(state: ClusterState, ask: &mut Asking) -> Result<Outcome, AskError> {
    order(SetClusterState { state }, ask).await
}

async fn print(what: &PrintCommand, ask: &mut Asking) -> Result<Outcome, AskError> {
    match what {
        PrintCommand::Ids => ids(ask).await,
        PrintCommand::Pt { min, max, node } => {
            let rows = ask.rows(*min, *max, *node).await?;
            let lines = if *min > 0 || *max > 0 {
                text::rows(&rows.rows, *min)
            } else {
                text::table(&rows.rows, &ask.nodes(Some(NodeType::Storage)).await?)
            };
            let ptid = rows.table.map_or("None".to_owned(), |table| table.to_string());
            let text = format!("# ptid: {ptid}, replicas: {}\n{lines}", rows.replicas);
            let json = json!({
                "ptid": rows.table.map(|table| table.0),
                "replicas": rows.replicas,
                "partitions": json::rows(&rows.rows, *min),
            });
            Ok(Outcome::new(text, json))
        }
        PrintCommand::Node { kind } => {
            let mut nodes = ask.nodes(*kind).await?;
            text::sort(&mut nodes);
            Ok(Outcome::new(text::nodes(&nodes), json::nodes(&nodes)))
        }
        PrintCommand::Cluster => {
            let state = ask.cluster_state().await?.map(ClusterState::name);
            let text = state.unwrap_or("None").to_owned();
            Ok(Outcome::new(text, json!({ "state": state })))
        }
        PrintCommand::Primary => {
            let primary = ask.primary().await?.to_string();
            let json = json!({ "primary": primary });
            Ok(Outcome::new(primary, json))
        }
        PrintCommand::Summary => {
            let report = ask.report().await?;
            let json = json!({
                "warning": report.warnings, "problem": report.problems, "summary": report.summary,
            });
            Ok(Outcome::new(text::summary(&report), json))
        }
    }
}

async fn ids(ask: &mut Asking) -> Result<Outcome, AskError> {
    let recovery = ask.recovery().await?;
    let (last_tid, last_oid) = match recovery.backup_tid {
        Some(_) => (Some(ask.last_transaction().await?), None),
        None => ask.last_ids().await?,
    };
    let text = text::ids(&recovery, last_tid, last_oid);
    let hexadecimal = |number: u64| Value::from(format!("{number:016x}"));
    let mut json = json!({ "last_ptid": recovery.table.map(|table| table.0) });
    json["last_tid"] = last_tid.map_or(Value::Null, |tid| hexadecimal(tid.0));
    match recovery.backup_tid {
        Some(tid) => json["backup_tid"] = hexadecimal(tid.0),
        None => json["last_oid"] = last_oid.map_or(Value::Null, |oid| hexadecimal(oid.0)),
    }
    Ok(Outcome::new(text, json))
}

async fn tweak(dry_run: bool, nodes: &[NodeId], ask: &mut Asking) -> Result<Outcome, AskError> {
    let (is_changed, rows) = ask.tweak(dry_run, nodes.to_vec()).await?;
    let text = match is_changed {
        true => text::table(&rows, &ask.nodes(Some(NodeType::Storage)).await?),
        false => "No change done.".to_owned(),
    };
    let json = json!({ "changed": is_changed, "partitions": json::rows(&rows, 0) });
    Ok(Outcome::new(text, json))
}

/// The storages that are named.
async fn storages(nodes: &[Nodes], ask: &mut Asking) -> Result<Vec<NodeId>, AskError> {
    let mut ids = Vec::new();
    for node in nodes {
        match node {
            Nodes::One(id) => ids.push(*id),
            Nodes::All => {
                let all = ask.nodes(Some(NodeType::Storage)).await?;
                ids.extend(all.iter().filter_map(|node| node.id));
            }
        }
    }
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

async fn check(what: &[Check], ask: &mut Asking) -> Result<Outcome, AskError> {
    let mut references: Vec<(Partition, Option<NodeId>)> = Vec::new();
    let mut bounds = Vec::new();
    for one in what {
        match *one {
            Check::Cells(Some(partition), reference) => references.push((partition, reference)),
            Check::Cells(None, reference) => {
                let count = ask.rows(0, 0, None).await?.rows.len() as u32;
                references.extend((0..count).map(|partition| (Partition(partition), reference)));
            }
            Check::Bound(tid) => bounds.push(tid),
        }
    }
    // Of a partition that is named twice the last one counts.
    references.reverse();
    references.sort_by_key(|(partition, _)| *partition);
    references.dedup_by_key(|(partition, _)| *partition);
    let min_tid = bounds.first().copied().unwrap_or(Tid::ZERO);
    let max_tid = bounds.get(1).copied();
    silently(CheckReplicas { references: Map(references), min_tid, max_tid }, ask).await
}
