//! Taking keys over from files of Redis and Valkey.
//!
//! Key decision: nothing expires meanwhile. Later commands of a file may prolong a time that is
//! past by now, and the server that wrote them saw the key. At the end keys go whose time is past.

use std::io::{self, Read};

use bytes::BytesMut;
use zodium_keyspace::{DATABASES, Entry, EntryRef, Hold, Keyspace, Stripes, Tie, now};
use zodium_rdb::{RdbError, RdbReader};
use zodium_resp::{FrameError, OwnedRequest, RequestLimits, RequestReader, Step, parse_integer};

use super::compaction::compact;
use super::items;
use super::replay::{run_logged, stripes_of_logged};
use crate::Server;
use crate::call::is;
use crate::commands::payload_of;
use crate::fail::Fail;

/// Bytes that are read at once.
const READ_BYTES: usize = 1 << 20;
/// Keys of each database that are removed while a stripe is locked: they are one record of the log.
const EXPIRED_AT_ONCE: usize = 1024;

/// Why a file cannot be taken over.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The part in the format of RDB.
    #[error("{0}")]
    Rdb(#[from] RdbError),
    /// The part with commands.
    #[error("no command at byte {position}: {error}")]
    Command {
        /// Where in that part.
        position: u64,
        /// Why.
        error: FrameError,
    },
    /// It cannot be read.
    #[error("cannot read: {0}")]
    Io(#[from] io::Error),
    /// It uses what this server does not have.
    #[error("{0}")]
    Refused(String),
}

/// A key with its value, as `DUMP` gives it.
#[derive(Debug)]
pub struct DumpedKey<'a> {
    /// The number of its database.
    pub database: usize,
    /// Its name.
    pub key: &'a [u8],
    /// When it expires, in milliseconds since 1970.
    pub expires_at: Option<u64>,
    /// Its value.
    pub payload: Vec<u8>,
}

impl Server {
    /// Takes over the keys of an RDB file; the number of keys.
    ///
    /// # Errors
    /// The file is damaged, or uses what this server does not have. Keys before that were taken.
    pub fn import_rdb(&self, source: impl Read) -> Result<u64, ImportError> {
        let mut reader = RdbReader::new(source)?;
        let mut count = 0;
        while let Some(item) = reader.next_item()? {
            let database = usize::try_from(item.database).unwrap_or(usize::MAX);
            if database >= DATABASES {
                return Err(ImportError::Refused(format!(
                    "it has a database {database}; this server has databases 0 to {}",
                    DATABASES - 1
                )));
            }
            let mut hold = self.lock_to_import(self.keyspace.stripe(&item.key));
            hold.database = database;
            let entry = Entry::new(item.value).expiring(item.expires_at);
            self.log.note_item(&mut hold, |out| {
                let (value, at) = (entry.value.as_ref(), entry.expires_at());
                items::write_entry(out, database, &item.key, value, at, &[]);
            });
            hold.put(&item.key, entry);
            hold.changed(&item.key);
            self.settle(hold);
            self.log.let_follow();
            count += 1;
        }
        if reader.functions() > 0 {
            let functions = reader.functions();
            tracing::warn!("left out {functions} libraries of functions: this server has none");
        }
        Ok(count)
    }

    /// Executes the commands of an append-only file, behind its RDB part if it begins with one; the
    /// number of commands. A transaction or command that is cut off at the end is left out.
    ///
    /// # Errors
    /// As [`Server::import_rdb`].
    pub fn import_commands(&self, mut source: impl Read) -> Result<u64, ImportError> {
        let (mut commands, mut reader) = (Commands::default(), RequestReader::default());
        let limits = RequestLimits { is_authenticated: true, ..RequestLimits::default() };
        let mut bytes = BytesMut::new();
        let mut position = 0;
        let mut part = vec![0; READ_BYTES];
        loop {
            let read = source.read(&mut part)?;
            if read == 0 {
                break;
            }
            bytes.extend_from_slice(&part[..read]);
            loop {
                if skip_note(&mut bytes, &mut position) {
                    continue;
                }
                match reader.read(&bytes, &limits) {
                    Ok(Step::Request(count)) => {
                        let request = reader.arguments(&bytes).to_request();
                        reader.next();
                        let _ = bytes.split_to(count);
                        position += count as u64;
                        commands.take(self, request)?;
                    }
                    Ok(Step::Nothing(count)) => {
                        reader.next();
                        let _ = bytes.split_to(count);
                        position += count as u64;
                    }
                    Ok(Step::Incomplete(_)) => break,
                    Err(error) => return Err(ImportError::Command { position, error }),
                }
            }
        }
        if !bytes.is_empty() || commands.queue.is_some() {
            tracing::warn!("the file ends within a command or a transaction: that is left out");
        }
        Ok(commands.count)
    }

    /// Locks stripes for a change that a file tells.
    fn lock_to_import(&self, stripes: Stripes) -> Hold<'_> {
        let mut hold = self.journaling(self.keyspace.lock(stripes, now()));
        hold.keep_expired();
        hold
    }

    /// Visits all keys, until `visit` returns false. A part of the keyspace is locked meanwhile.
    pub fn each_dumped(&self, visit: &mut dyn FnMut(DumpedKey) -> bool) {
        let (mut goes_on, at) = (true, now());
        for database in 0..DATABASES {
            for part in 0..Keyspace::PARTS {
                let mut visit_key = |entry: EntryRef<'_>, _: &[Tie]| {
                    if goes_on && !entry.is_expired(at) {
                        let (key, expires_at) = (entry.key(), entry.expires_at());
                        let payload = payload_of(entry.value());
                        goes_on = visit(DumpedKey { database, key, expires_at, payload });
                    }
                };
                self.keyspace.visit_part(part, database, 0, usize::MAX, &mut visit_key);
            }
        }
    }

    /// Removes the keys whose time is past.
    fn remove_expired(&self) {
        let now = now();
        let log = |removed: &[_]| self.log.append_removed(removed, now);
        while self.keyspace.expire(now, EXPIRED_AT_ONCE, &mut Vec::new(), &log) {
            self.log.let_follow();
        }
    }

    /// Removes keys whose time is past, then compacts and closes the log, after imports; the number
    /// of keys in it.
    ///
    /// # Errors
    /// The log cannot be written.
    pub fn finish_import(&self) -> io::Result<u64> {
        self.remove_expired();
        let is_done = compact(self);
        let failed = self.log.failure();
        self.close_log();
        if let Some(reason) = failed.or_else(|| self.log.failure()) {
            return Err(io::Error::other(reason));
        }
        if !is_done {
            return Err(io::Error::other("the log could not be compacted"));
        }
        Ok((0..DATABASES).map(|number| self.keyspace.totals(number).keys as u64).sum())
    }
}

/// Removes a line with the time of the commands behind it; whether there was one.
fn skip_note(bytes: &mut BytesMut, position: &mut u64) -> bool {
    if bytes.first() != Some(&b'#') {
        return false;
    }
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else { return false };
    let _ = bytes.split_to(end + 1);
    *position += end as u64 + 1;
    true
}

/// Commands as they come.
#[derive(Default)]
struct Commands {
    database: usize,
    /// Those of a transaction.
    queue: Option<Vec<(usize, OwnedRequest)>>,
    count: u64,
}

impl Commands {
    fn take(&mut self, server: &Server, request: OwnedRequest) -> Result<(), ImportError> {
        let arguments = request.arguments();
        let name = arguments.word(0);
        if is(name, "select") {
            let number = parse_integer(arguments.word(1)).and_then(|n| usize::try_from(n).ok());
            self.database = number.filter(|number| *number < DATABASES).ok_or_else(|| {
                let word = arguments.word(1).escape_ascii();
                ImportError::Refused(format!(
                    "it selects database {word}; this server has databases 0 to {}",
                    DATABASES - 1
                ))
            })?;
        } else if is(name, "multi") {
            self.queue = Some(Vec::new());
        } else if is(name, "exec") {
            let queue = self.queue.take().unwrap_or_default();
            self.execute(server, &queue)?;
        } else if let Some(queue) = &mut self.queue {
            queue.push((self.database, request));
        } else {
            self.execute(server, &[(self.database, request)])?;
        }
        Ok(())
    }

    /// Executes commands at one moment.
    fn execute(
        &mut self,
        server: &Server,
        requests: &[(usize, OwnedRequest)],
    ) -> Result<(), ImportError> {
        let refused = |fail: Fail| ImportError::Refused(fail.0.into_owned());
        let mut stripes = Stripes::NONE;
        for (_, request) in requests {
            crate::commands::find(request.arguments()).map_err(refused)?;
            stripes = stripes | stripes_of_logged(&server.keyspace, request);
        }
        let mut hold = server.lock_to_import(stripes);
        for (database, request) in requests {
            hold.database = *database;
            run_logged(server, &mut hold, request).map_err(refused)?;
            self.count += 1;
        }
        server.settle(hold);
        server.log.let_follow();
        Ok(())
    }
}
