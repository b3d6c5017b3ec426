//! Taking keys over from files of Redis and Valkey.
//!
//! Key decision: nothing expires meanwhile. Later commands of a file may prolong a time that is
//! past by now, and the server that wrote them saw the key. At the end keys go whose time is past.

use std::io::{self, Read};

use bytes::BytesMut;
use zodium_keyspace::{DATABASES, Entry, EntryRef, Hold, Keyspace, Stripes, Tie, now};
use zodium_rdb::{RdbError, RdbReader};
use zodium_resp::{OwnedRequest, RequestLimits, RequestReader, Step, parse_integer};

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
    /// There is no command where one must be.
    #[error(
        "damaged: no command begins at byte {position} ({what}). Cut the file there with \
         `valkey-check-aof --fix`, or take another copy"
    )]
    Damaged {
        /// Where.
        position: u64,
        /// Why.
        what: String,
    },
    /// It cannot be read.
    #[error("cannot read: {0}")]
    Io(#[from] io::Error),
    /// A database that this server does not have.
    #[error(
        "{what} at byte {position} is of database {number}; this server has databases 0 to {}. \
         Move its keys on the server that wrote the file, and save again",
        DATABASES - 1
    )]
    Database {
        /// A key, or a command.
        what: String,
        /// Where.
        position: u64,
        /// The number of the database, as it is told.
        number: String,
    },
    /// A command that this server does not know.
    #[error(
        "the command at byte {position} is unknown: {}. BGREWRITEAOF on the server that wrote the \
         file replaces commands by values, which helps if this server has such values",
        error.trim_end_matches('.')
    )]
    Unknown {
        /// Where.
        position: u64,
        /// What clients are answered.
        error: String,
    },
}

/// A command or a comment of an append-only file begins with one of these.
const COMMAND_BEGINS: &[u8] = b"*#";

/// What was left out of a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Libraries of functions, and commands about these.
    pub functions: u64,
    /// Collections without elements: their databases, and keys.
    pub empty: Vec<(u64, Vec<u8>)>,
    /// Where the command or the transaction begins that the end of the file cuts off.
    pub cut_at: Option<u64>,
    /// Where bytes begin behind an RDB file that are no commands.
    pub foreign_at: Option<u64>,
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
    /// Takes over the keys of an RDB file, and executes the commands behind them, if it is the
    /// beginning of an append-only file.
    ///
    /// # Errors
    /// The file is damaged, or uses what this server does not have. What came before was taken.
    pub fn import_rdb(&self, mut source: impl Read) -> Result<LeftOut, ImportError> {
        let mut left = LeftOut::default();
        let mut reader = RdbReader::new(&mut source)?;
        while let Some(item) = reader.next_item()? {
            let database = usize::try_from(item.database).unwrap_or(usize::MAX);
            if database >= DATABASES {
                return Err(ImportError::Database {
                    what: format!("the key '{}'", item.key.escape_ascii()),
                    position: reader.position(),
                    number: item.database.to_string(),
                });
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
        }
        left.functions = reader.functions();
        let position = reader.position();
        left.empty = reader.into_empty();
        let mut first = Vec::new();
        source.by_ref().take(1).read_to_end(&mut first)?;
        if first.first().is_some_and(|byte| !COMMAND_BEGINS.contains(byte)) {
            // Such as the mark at the end of a stream that `redis-cli --rdb -` writes.
            left.foreign_at = Some(position);
            return Ok(left);
        }
        self.execute_commands(first.chain(source), position, &mut left)?;
        Ok(left)
    }

    /// Executes the commands of an append-only file. A transaction or command that is cut off at
    /// the end is left out.
    ///
    /// # Errors
    /// As [`Server::import_rdb`].
    pub fn import_commands(&self, source: impl Read) -> Result<LeftOut, ImportError> {
        let mut left = LeftOut::default();
        self.execute_commands(source, 0, &mut left)?;
        Ok(left)
    }

    /// Executes the commands of a file from a position on, where `source` is.
    fn execute_commands(
        &self,
        mut source: impl Read,
        position: u64,
        left: &mut LeftOut,
    ) -> Result<(), ImportError> {
        let mut reader = CommandReader { position, ..CommandReader::default() };
        let mut commands = Commands::default();
        let mut part = vec![0; READ_BYTES];
        loop {
            let read = source.read(&mut part)?;
            if read == 0 {
                break;
            }
            reader.bytes.extend_from_slice(&part[..read]);
            while let Some((position, request)) = reader.next()? {
                commands.take(self, position, request, left)?;
            }
        }
        let cut_command = (!reader.bytes.is_empty()).then_some(reader.position);
        let transaction = commands.transaction.map(|transaction| transaction.position);
        left.cut_at = transaction.or(cut_command);
        Ok(())
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
        self.close_log().map_err(io::Error::other)?;
        if let Some(reason) = failed {
            return Err(io::Error::other(reason));
        }
        if !is_done {
            return Err(io::Error::other("the log could not be compacted"));
        }
        Ok((0..DATABASES).map(|number| self.keyspace.totals(number).keys as u64).sum())
    }
}

/// Reads the commands of an append-only file.
#[derive(Default)]
struct CommandReader {
    /// What is not read yet.
    bytes: BytesMut,
    /// Where that begins in the file.
    position: u64,
    requests: RequestReader,
}

impl CommandReader {
    /// The next command, and where it begins; `None` if it is not whole.
    fn next(&mut self) -> Result<Option<(u64, OwnedRequest)>, ImportError> {
        while self.bytes.first() == Some(&b'#') {
            // A line with the time of the commands behind it.
            let Some(end) = self.bytes.iter().position(|byte| *byte == b'\n') else {
                return Ok(None);
            };
            self.skip(end + 1);
        }
        let position = self.position;
        let damaged = |what: &str| ImportError::Damaged { position, what: what.to_owned() };
        // Unlike a client, the server writes no inline requests.
        if let Some(byte) = self.bytes.first().filter(|byte| **byte != b'*') {
            return Err(damaged(&format!("expected '*', got '{}'", byte.escape_ascii())));
        }
        match self.requests.read(&self.bytes, &RequestLimits::default()) {
            Ok(Step::Request(count)) if self.requests.ends_lines(&self.bytes) => {
                let request = self.requests.arguments(&self.bytes).to_request();
                self.skip(count);
                Ok(Some((position, request)))
            }
            Ok(Step::Request(_)) => Err(damaged("an argument has another length than is told")),
            Ok(Step::Nothing(_)) => Err(damaged("it has no arguments")),
            Ok(Step::Incomplete(_)) => Ok(None),
            Err(error) => Err(damaged(&error.to_string())),
        }
    }

    fn skip(&mut self, count: usize) {
        self.requests.next();
        let _ = self.bytes.split_to(count);
        self.position += count as u64;
    }
}

/// A command of a file.
struct FileCommand {
    /// Where it begins.
    position: u64,
    database: usize,
    request: OwnedRequest,
}

/// Commands as they come.
#[derive(Default)]
struct Commands {
    database: usize,
    transaction: Option<Transaction>,
}

struct Transaction {
    /// Where it begins.
    position: u64,
    commands: Vec<FileCommand>,
}

impl Commands {
    fn take(
        &mut self,
        server: &Server,
        position: u64,
        request: OwnedRequest,
        left: &mut LeftOut,
    ) -> Result<(), ImportError> {
        let arguments = request.arguments();
        let name = arguments.word(0);
        if is(name, "select") {
            let word = arguments.word(1);
            let number = parse_integer(word).and_then(|number| usize::try_from(number).ok());
            self.database = number.filter(|number| *number < DATABASES).ok_or_else(|| {
                let (what, number) = ("SELECT".to_owned(), word.escape_ascii().to_string());
                ImportError::Database { what, position, number }
            })?;
        } else if is(name, "multi") {
            self.transaction = Some(Transaction { position, commands: Vec::new() });
        } else if is(name, "exec") {
            let ended = self.transaction.take();
            execute(server, &ended.map(|ended| ended.commands).unwrap_or_default())?;
        } else if is(name, "function") {
            left.functions += 1;
        } else if is(name, "spublish") {
            // No client listens.
        } else {
            let command = FileCommand { position, database: self.database, request };
            match &mut self.transaction {
                Some(transaction) => transaction.commands.push(command),
                None => execute(server, &[command])?,
            }
        }
        Ok(())
    }
}

/// Executes commands at one moment.
fn execute(server: &Server, commands: &[FileCommand]) -> Result<(), ImportError> {
    let mut stripes = Stripes::NONE;
    for command in commands {
        crate::commands::find(command.request.arguments())
            .map_err(|fail| command.unknown(&fail))?;
        stripes = stripes | stripes_of_logged(&server.keyspace, &command.request);
    }
    let mut hold = server.lock_to_import(stripes);
    for command in commands {
        hold.database = command.database;
        run_logged(server, &mut hold, &command.request).map_err(|fail| command.unknown(&fail))?;
    }
    server.settle(hold);
    server.log.let_follow();
    Ok(())
}

impl FileCommand {
    fn unknown(&self, fail: &Fail) -> ImportError {
        ImportError::Unknown { position: self.position, error: fail.0.trim_end().to_owned() }
    }
}
