//! What is known of the keys that Redis and Valkey clients use, as plain data.

use serde::Serialize;

/// The keyspace of a RESP server. Totals count from its start, or from the last
/// `CONFIG RESETSTAT`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Resp {
    /// Keys of all databases; absent while a script has locked them.
    pub keys: Option<u64>,
    /// Keys that expire; absent as those.
    pub volatile_keys: Option<u64>,
    /// Bytes of keys and values, by estimate.
    pub data_bytes: u64,
    /// Limit of these bytes; absent without a limit.
    pub data_bytes_max: Option<u64>,
    /// Open connections.
    pub connections: u64,
    /// Clients that wait for an element.
    pub blocked_clients: u64,
    /// Commands executed.
    pub commands: u64,
    /// Keys that commands asked for and found.
    pub hits: u64,
    /// Keys that commands asked for and did not find.
    pub misses: u64,
    /// Keys removed because their time was past.
    pub expired: u64,
    /// Keys removed to keep the limit of memory.
    pub evicted: u64,
    /// Commands refused since there is no memory for them.
    pub refused_for_memory: u64,
    /// Commands refused since the file of keys cannot be written.
    pub refused_for_file: u64,
    /// The file of keys; absent if they are in memory only.
    pub file: Option<RespFile>,
}

/// The file that keys are kept in.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RespFile {
    /// Its size.
    pub bytes: u64,
    /// Space left on its disk, if that is known.
    pub disk_free_bytes: Option<u64>,
    /// Whether it can be written.
    pub is_healthy: bool,
}
