//! `[server]` and `[server.tls]`.

use super::table::Table;
use super::values;
use crate::error::Findings;
use crate::model::{Encoding, KeyPassword, ServerOptions, TlsOptions};

pub(super) const SERVER: [&str; 18] = [
    "address",
    "encoding",
    "read-only",
    "workers",
    "busy-poll",
    "invalidation-queue-size",
    "invalidation-age",
    "transaction-timeout",
    "client-conflict-resolution",
    "resolvable-classes",
    "python-resolver",
    "reopen-after-failure",
    "message-size-max",
    "connections-max",
    "memory-limit",
    "handshake-timeout",
    "pid-file",
    "tls",
];

pub(super) const TLS: [&str; 5] =
    ["certificate", "key", "key-password-file", "key-password-environment", "authenticate"];

pub(super) const ENCODINGS: [(&str, Encoding); 2] =
    [("pickle", Encoding::Pickle), ("msgpack", Encoding::Msgpack)];

pub(super) fn server(table: &Table, findings: &mut Findings) -> ServerOptions {
    table.check_keys(&SERVER, findings);
    let document = table.document;
    let addresses = table.list("address", findings, |value| document.address(value));
    let encoding = table.setting("encoding", findings, |v| values::choice(v, &ENCODINGS));
    let workers = table.setting("workers", findings, |value| {
        let count = values::count(value)?;
        u16::try_from(count).map_err(|_| format!("{count} are too many"))
    });
    let queue = table.setting("invalidation-queue-size", findings, |value| {
        let count = values::count(value)?;
        usize::try_from(count).map_err(|_| format!("{count} are too many"))
    });
    let message_bytes_max = table.setting("message-size-max", findings, |value| {
        let bytes = values::bytes(value)?;
        u32::try_from(bytes).map_err(|_| "ZEO's messages are shorter than 4 GiB".to_owned())
    });
    let connections_max = table.setting("connections-max", findings, |value| {
        let count = values::count(value)?;
        u32::try_from(count).map_err(|_| format!("{count} are too many"))
    });
    let handshake = table.setting("handshake-timeout", findings, values::duration);
    let conflicts = table.setting("client-conflict-resolution", findings, values::boolean);
    let classes = table.list("resolvable-classes", findings, values::text);
    let tls = table.table("tls", "[server.tls]", findings);
    let defaults = ServerOptions::default();
    ServerOptions {
        addresses: addresses.unwrap_or(defaults.addresses),
        encoding: encoding.unwrap_or(defaults.encoding),
        read_only: table.setting("read-only", findings, values::boolean).unwrap_or(false),
        workers,
        busy_poll: table.setting("busy-poll", findings, values::duration),
        invalidation_queue_size: queue.unwrap_or(defaults.invalidation_queue_size),
        invalidation_age: table.setting("invalidation-age", findings, values::duration),
        transaction_timeout: table.setting("transaction-timeout", findings, values::duration),
        client_conflict_resolution: conflicts.unwrap_or(defaults.client_conflict_resolution),
        resolvable_classes: classes.unwrap_or_default(),
        python_resolver: table.setting("python-resolver", findings, |v| document.program(v)),
        reopen_after_failure: table
            .setting("reopen-after-failure", findings, values::boolean)
            .unwrap_or(defaults.reopen_after_failure),
        message_bytes_max: message_bytes_max.unwrap_or(defaults.message_bytes_max),
        connections_max,
        memory_bytes_max: table.setting("memory-limit", findings, values::bytes),
        handshake_time_max: handshake.unwrap_or(defaults.handshake_time_max),
        pid_file: table.setting("pid-file", findings, |value| document.path(value)),
        tls: tls.and_then(|table| tls_options(&table, findings)),
    }
}

fn tls_options(table: &Table, findings: &mut Findings) -> Option<TlsOptions> {
    table.check_keys(&TLS, findings);
    let document = table.document;
    let certificate = table.required("certificate", findings, |value| document.path(value));
    let key = table.setting("key", findings, |value| document.path(value));
    let authenticate = table.required("authenticate", findings, |value| document.path(value));
    let file = table.setting("key-password-file", findings, |value| document.path(value));
    let variable = table.setting("key-password-environment", findings, values::text);
    if file.is_some() && variable.is_some() {
        let message = "the password of the key is in a file or in the environment, not in both";
        findings.mistake(table.mistake("key-password-environment", message));
    }
    Some(TlsOptions {
        certificate: certificate?,
        key,
        key_password: file
            .map(KeyPassword::File)
            .or_else(|| variable.map(KeyPassword::Environment)),
        authenticate: authenticate?,
    })
}
