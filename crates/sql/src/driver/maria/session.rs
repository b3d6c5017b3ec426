//! One session with a server: connects, and sets what NEO/py sets.

use std::time::Duration;

use mysql::prelude::Queryable;
use mysql::{Conn, OptsBuilder};

use super::address::{Host, MariaAddress};
use super::failure;
use super::fence::{self, Fence};
use super::tls::MariaTls;
use crate::driver::{Error, Result};

/// The server must take packets of that size, as NEO/py asks: values of 16 MiB, escaped.
const PACKET_BYTES_MIN: u64 = 32_769 << 10;
/// How long a host may take to accept a connection.
const CONNECTING: Duration = Duration::from_secs(5);
/// After which time without an answer of the host's kernel a connection is lost, in milliseconds.
const SILENCE_MS: u32 = 15_000;
/// Statements that a session keeps compiled: more than there are.
const STATEMENTS: usize = 256;
/// How long a new session waits for the lock that a lost one may still have, in seconds.
const LOCK_WAIT_SECONDS: u32 = 5;
/// The same at the start of a process: the server takes a moment to notice that the one before has
/// ended.
const FIRST_LOCK_WAIT_SECONDS: u32 = 2;
/// How long a statement waits for a table that is locked as a whole, as backups lock it, in
/// seconds. It is tried again, which the log tells.
const TABLE_WAIT_SECONDS: u32 = 10;

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MariaPurpose {
    /// Writing, with the lock of the database.
    Write,
    /// Only holding that lock.
    Lock,
    /// Reading.
    Read,
}

/// A session that is lost, and had the lock of the database.
#[derive(Clone, Copy, Debug)]
pub(super) struct Former<'f> {
    /// Its number at the server.
    pub(super) number: u32,
    /// The row of this process.
    pub(super) fence: &'f Fence,
}

/// A session, as the server is now.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) conn: Conn,
    /// Whether the server is a node of a Galera cluster.
    pub(super) is_clustered: bool,
}

impl Session {
    /// Connects to a host. `former` is a lost session there that had the lock.
    pub(super) fn open(
        address: &MariaAddress,
        host: &Host,
        purpose: MariaPurpose,
        is_again: bool,
        former: Option<Former<'_>>,
    ) -> Result<Session> {
        let mut conn = Conn::new(options(address, host))?;
        // A server may have other defaults. Without autocommit a reader sees its first state of the
        // database for ever. A limit cuts what is selected, and objects then count as garbage. Only
        // this level of isolation has snapshots.
        let autocommit = u8::from(purpose != MariaPurpose::Write);
        conn.query_drop(format!(
            "SET SESSION wait_timeout = 2147483, \
             SESSION lock_wait_timeout = {TABLE_WAIT_SECONDS}, SESSION autocommit = {autocommit}, \
             SESSION sql_select_limit = 18446744073709551615, SESSION sql_safe_updates = 0, \
             SESSION completion_type = 'NO_CHAIN', \
             SESSION sql_mode = 'TRADITIONAL,NO_ENGINE_SUBSTITUTION'"
        ))?;
        // The server converts values from one character set to another if they differ, also data.
        conn.query_drop("SET NAMES binary")?;
        conn.query_drop("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")?;
        let is_clustered = is_clustered(&mut conn)?;
        if is_clustered {
            check_ready(&mut conn)?;
        }
        if purpose == MariaPurpose::Write {
            check_packets(&mut conn)?;
            if address.hosts().len() > 1 {
                check_writable(&mut conn)?;
            }
        }
        if purpose != MariaPurpose::Read {
            let name = format!("{}.neostorage", address.database());
            if let Some(former) = former {
                end_holder(&mut conn, &name, former)?;
            }
            let seconds = if is_again { LOCK_WAIT_SECONDS } else { FIRST_LOCK_WAIT_SECONDS };
            lock(&mut conn, &name, seconds)?;
        }
        Ok(Session { conn, is_clustered })
    }

    /// Has reads wait until the node has all that was committed in the cluster before.
    pub(super) fn wait_for_cluster(&mut self, waits: bool) -> Result<()> {
        if self.is_clustered {
            let level = u8::from(waits);
            self.conn.query_drop(format!("SET SESSION wsrep_sync_wait = {level}"))?;
        }
        Ok(())
    }
}

fn options(address: &MariaAddress, host: &Host) -> OptsBuilder {
    let options = OptsBuilder::new()
        .user(Some(address.user()))
        .pass(address.password())
        .db_name(Some(address.database()))
        .tcp_connect_timeout(Some(CONNECTING))
        .tcp_nodelay(true)
        .tcp_keepalive_time_ms(Some(SILENCE_MS))
        .tcp_user_timeout_ms(Some(SILENCE_MS))
        .prefer_socket(false)
        .ssl_opts(address.tls().map(MariaTls::options))
        .stmt_cache_size(STATEMENTS);
    match host {
        Host::Tcp(name, port) => options.ip_or_hostname(Some(name)).tcp_port(*port),
        Host::Socket(path) => options.socket(Some(path)),
    }
}

fn is_clustered(conn: &mut Conn) -> Result<bool> {
    let found: Option<(String, String)> =
        conn.query_first("SHOW SESSION VARIABLES LIKE 'wsrep_on'")?;
    Ok(found.is_some_and(|(_, value)| value == "ON"))
}

/// Refuses a node that has lost its cluster, as it does itself with most statements.
fn check_ready(conn: &mut Conn) -> Result<()> {
    let found: Option<(String, String)> = conn.query_first("SHOW STATUS LIKE 'wsrep_ready'")?;
    match found {
        Some((_, value)) if value != "ON" => Err(failure::not_ready()),
        _ => Ok(()),
    }
}

/// Refuses a replica, beside which there is another host that can be written to. Some versions have
/// words for whether a variable is on.
fn check_writable(conn: &mut Conn) -> Result<()> {
    let is_read_only: Option<String> = conn.query_first("SELECT CAST(@@read_only AS CHAR)")?;
    match is_read_only.as_deref() {
        Some("0" | "OFF") => Ok(()),
        _ => Err(failure::read_only()),
    }
}

fn check_packets(conn: &mut Conn) -> Result<()> {
    let found: Option<u64> = conn.query_first("SELECT @@max_allowed_packet")?;
    match found {
        Some(bytes) if bytes < PACKET_BYTES_MIN => Err(Error::Settings(format!(
            "the server's max_allowed_packet is {bytes} bytes, NEO needs {PACKET_BYTES_MIN}; set \
             max_allowed_packet = 64M under [mysqld], and restart the server"
        ))),
        _ => Ok(()),
    }
}

/// Ends a former session if it still has the lock: the server has not heard that it is lost. A
/// server that was started again gives its number to another session, perhaps of another process.
/// That one has noted itself as the owner then.
fn end_holder(conn: &mut Conn, name: &str, Former { number, fence }: Former<'_>) -> Result<()> {
    let holder: Option<Option<u32>> = conn.exec_first("SELECT IS_USED_LOCK(?)", (name,))?;
    if holder.flatten() != Some(number) {
        return Ok(());
    }
    let find = "SELECT value FROM config WHERE name = ?";
    let owner: Option<Vec<u8>> = conn.exec_first(find, (fence::NAME,))?;
    if owner.is_some_and(|value| fence.is_owner(&value)) {
        // Where this is refused, the lock tells.
        let _ = conn.query_drop(format!("KILL {number}"));
    }
    Ok(())
}

/// Takes NEO's lock.
fn lock(conn: &mut Conn, name: &str, seconds: u32) -> Result<()> {
    let taken: Option<Option<i64>> = conn.exec_first("SELECT GET_LOCK(?, ?)", (name, seconds))?;
    match taken.flatten() {
        Some(1) => Ok(()),
        _ => Err(Error::Locked),
    }
}
