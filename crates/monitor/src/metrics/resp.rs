//! The metrics of keys that Redis and Valkey clients use. Without RESP there are no samples.

use std::fmt;

use super::{BYTES, Families, NO_LABELS};
use crate::resp::{Resp, RespFile};

type Value = (&'static str, &'static str, fn(&Resp) -> u64);

const GAUGES: [Value; 2] = [
    ("zodium_resp_connections", "Connections of Redis and Valkey clients", |resp| resp.connections),
    ("zodium_resp_blocked_clients", "Clients that wait for an element", |resp| {
        resp.blocked_clients
    }),
];

const COUNTERS: [Value; 5] = [
    ("zodium_resp_commands", "Commands executed", |resp| resp.commands),
    ("zodium_resp_hits", "Keys that commands asked for and found", |resp| resp.hits),
    ("zodium_resp_misses", "Keys that commands asked for and did not find", |resp| resp.misses),
    ("zodium_resp_expired", "Keys removed because their time was past", |resp| resp.expired),
    ("zodium_resp_evicted", "Keys removed to keep the limit of memory", |resp| resp.evicted),
];

pub(super) fn encode(families: &mut Families<'_, '_>, resp: Option<&Resp>) -> fmt::Result {
    let known = [
        ("zodium_resp_keys", "Keys of all databases", resp.and_then(|resp| resp.keys)),
        ("zodium_resp_volatile_keys", "Keys that expire", resp.and_then(|resp| resp.volatile_keys)),
    ];
    for (name, help, value) in known {
        families.gauge(name, help, None, value.map(|value| (&NO_LABELS, value)))?;
    }
    let file = resp.and_then(|resp| resp.file.as_ref());
    let sizes = [
        ("zodium_resp_data", "Size of keys and values, by estimate", resp.map(|r| r.data_bytes)),
        (
            "zodium_resp_data_limit",
            "Limit of the size of keys and values",
            resp.and_then(|resp| resp.data_bytes_max),
        ),
        ("zodium_resp_file", "Size of the file of keys", file.map(|file| file.bytes)),
        (
            "zodium_resp_file_disk_free",
            "Space left on the disk of the file of keys",
            file.and_then(|file| file.disk_free_bytes),
        ),
    ];
    for (name, help, value) in sizes {
        families.gauge(name, help, BYTES, value.map(|value| (&NO_LABELS, value)))?;
    }
    for (name, help, value) in GAUGES {
        families.gauge(name, help, None, resp.map(|resp| (&NO_LABELS, value(resp))))?;
    }
    families.gauge(
        "zodium_resp_file_healthy",
        "Whether the file of keys can be written",
        None,
        file.map(|file: &RespFile| (&NO_LABELS, u64::from(file.is_healthy))),
    )?;
    for (name, help, value) in COUNTERS {
        families.counter(name, help, None, resp.map(|resp| (&NO_LABELS, value(resp))))?;
    }
    let refused = resp.map(|resp| {
        [("memory", resp.refused_for_memory), ("file", resp.refused_for_file)]
            .map(|(reason, count)| ([("reason", reason)], count))
    });
    families.counter(
        "zodium_resp_refused",
        "Commands refused",
        None,
        refused.iter().flatten().map(|(labels, count)| (labels, *count)),
    )
}
