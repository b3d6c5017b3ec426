//! The part of `zodium check` that checks BTrees.

use anyhow::Result;
use serde_json::json;
use zodium_storage::Read;
use zodium_tools::btrees::{self, BTreeDamage, BTreesChecked};
use zodium_tools::references::CurrentObjects;

use super::check_options::CheckOptions;
use crate::lines::Lines;

/// Where the storage is damaged, BTrees that cannot be checked are no further error.
pub(super) fn unless_damaged(
    options: &CheckOptions,
    outcome: Result<u64>,
    damages: u64,
    lines: &Lines,
) -> Result<u64> {
    match outcome {
        Err(error) if damages > 0 => {
            match options.json {
                true => lines.write(json!({ "kind": "btrees", "not_checked": error.to_string() })),
                false => lines.write(format_args!("BTrees: not checked: {error:#}")),
            }
            Ok(0)
        }
        outcome => outcome,
    }
}

/// Checks the BTrees of a storage; the number of damaged places.
pub(super) fn check_btrees(
    options: &CheckOptions,
    storage: &dyn Read,
    lines: &Lines,
) -> Result<u64> {
    let objects = CurrentObjects::of(storage, storage.last_tid())?;
    let checked = btrees::check_btrees(&objects, &mut |damage| {
        let BTreeDamage { oid, class, what } = damage;
        match options.json {
            true => lines.write(json!({
                "kind": "btree",
                "oid": oid.to_string(),
                "class": class,
                "what": what,
            })),
            false => lines.write(format_args!(
                "BTree: object {oid}{}: {what}",
                class.map_or(String::new(), |class| format!(" ({class})"))
            )),
        }
        Ok(())
    })?;
    let BTreesChecked { trees, leaves, keys, uncertain, unread, damages } = checked;
    match options.json {
        true => lines.write(json!({
            "kind": "btrees",
            "trees": trees,
            "leaves": leaves,
            "keys": keys,
            "uncertain": uncertain,
            "unread": unread,
            "damages": damages,
        })),
        false => lines.write(format_args!(
            "BTrees: trees {trees}, buckets {leaves}, keys {keys}, comparisons left to Python \
             {uncertain}, nodes left to Python {unread}"
        )),
    }
    Ok(damages)
}
