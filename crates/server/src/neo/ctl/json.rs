//! What commands print in JSON.

use serde_json::{Value, json};
use zodium_neo::messages::{NodeInformation, Row};

/// Rows of the partition table, from this partition on.
pub(in crate::neo) fn rows(rows: &[Row], first: u32) -> Value {
    let rows = (first..).zip(rows).map(|(partition, row)| {
        let cells = row
            .iter()
            .map(|cell| json!({ "node": cell.node.to_string(), "state": cell.state.name() }));
        json!({ "partition": partition, "cells": cells.collect::<Vec<_>>() })
    });
    rows.collect()
}

pub(in crate::neo) fn nodes(nodes: &[NodeInformation]) -> Value {
    let nodes = nodes.iter().map(|node| {
        json!({
            "id": node.id.map(|id| id.to_string()),
            "type": node.node_type.name(),
            "address": node.address.as_ref().map(ToString::to_string),
            "state": node.state.name(),
            "identified": node.id_timestamp,
        })
    });
    nodes.collect()
}
