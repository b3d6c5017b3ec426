//! An RDB file: its header, its keys with their times, and its sum.

use std::io::Read;

use zodium_keyspace::Value;

use crate::read_value::{is_empty, module_name, read_any};
use crate::{Input, NEWEST_VERSION, RdbError};

/// A key of a file.
#[derive(Debug)]
pub struct Item {
    /// The number of its database.
    pub database: u64,
    /// The key.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Value,
    /// When it expires, in milliseconds since 1970.
    pub expires_at: Option<u64>,
}

/// Reads a file.
pub struct RdbReader<R> {
    input: Input<R>,
    version: u16,
    database: u64,
    functions: u64,
    empty: Vec<(u64, Vec<u8>)>,
    is_over: bool,
}

impl<R: Read> RdbReader<R> {
    /// Begins to read a file.
    ///
    /// # Errors
    /// It is no RDB file, or has a version that is not known here.
    pub fn new(source: R) -> Result<RdbReader<R>, RdbError> {
        let mut input = Input::summed(source);
        let head = input.fixed::<9>().map_err(|error| error.in_file(None, input.position()))?;
        let version = head
            .strip_prefix(b"REDIS")
            .or_else(|| head.strip_prefix(b"VALKEY"))
            .and_then(|digits| std::str::from_utf8(digits).ok()?.parse::<u16>().ok())
            .ok_or(RdbError::Damaged("it does not begin as an RDB file").in_file(None, 0))?;
        if !(1..=NEWEST_VERSION).contains(&version) {
            return Err(RdbError::Unsupported(format!(
                "version {version} of the format; this program knows those up to {NEWEST_VERSION}"
            )));
        }
        Ok(RdbReader {
            input,
            version,
            database: 0,
            functions: 0,
            empty: Vec::new(),
            is_over: false,
        })
    }

    /// Number of function libraries that were skipped.
    #[must_use]
    pub fn functions(&self) -> u64 {
        self.functions
    }

    /// The keys that were skipped, with their databases: old servers left collections without
    /// elements behind.
    #[must_use]
    pub fn into_empty(self) -> Vec<(u64, Vec<u8>)> {
        self.empty
    }

    /// Number of bytes that were read.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.input.position()
    }

    /// The next key; `None` at the end, whose sum was right.
    ///
    /// # Errors
    /// The file ends early, is damaged, or has a kind of value that is not known here.
    pub fn next_item(&mut self) -> Result<Option<Item>, RdbError> {
        let mut key = None;
        self.read_item(&mut key)
            .map_err(|error| error.in_file(key.as_deref(), self.input.position()))
    }

    /// As [`RdbReader::next_item`]; `reading` gets the key whose value is being read.
    fn read_item(&mut self, reading: &mut Option<Vec<u8>>) -> Result<Option<Item>, RdbError> {
        let mut expires_at = None;
        while !self.is_over {
            let input = &mut self.input;
            match input.byte()? {
                0xff => {
                    self.end()?;
                    self.is_over = true;
                }
                0xfe => self.database = input.length()?,
                0xfd => {
                    expires_at = Some(u64::from(u32::from_le_bytes(input.fixed()?)) * 1000);
                }
                0xfc => expires_at = Some(input.u64_le()?),
                0xfb => drop((input.length()?, input.length()?)),
                0xfa => drop((input.string()?, input.string()?)),
                0xf9 => drop(input.byte()?),
                0xf8 => drop(input.length()?),
                0xf7 => {
                    let module = module_name(input.length()?);
                    return Err(RdbError::Unsupported(format!(
                        "data of the module {module}: this server has no modules. Unload the \
                         module, and save again"
                    )));
                }
                0xf5 => {
                    input.string()?;
                    self.functions += 1;
                }
                0xf4 => {
                    for _ in 0..3 {
                        input.length()?;
                    }
                }
                kind if kind < 0xf0 => {
                    let key = reading.insert(input.string()?);
                    let value = read_any(kind, input)?;
                    let key = std::mem::take(key);
                    *reading = None;
                    let (database, expires_at) = (self.database, expires_at.take());
                    if !is_empty(&value) {
                        return Ok(Some(Item { database, key, value, expires_at }));
                    }
                    self.empty.push((database, key));
                }
                other => {
                    return Err(RdbError::Unsupported(format!(
                        "an entry of the kind {other}, which this program does not know"
                    )));
                }
            }
        }
        Ok(None)
    }

    /// Checks the sum behind the last key.
    fn end(&mut self) -> Result<(), RdbError> {
        if self.version < 5 {
            return Ok(());
        }
        let sum = self.input.sum();
        let wanted = self.input.u64_le()?;
        // Zero: the writer was told to compute none.
        match wanted == 0 || sum == Some(wanted) {
            true => Ok(()),
            false => Err(RdbError::Damaged("the sum at its end is another one")),
        }
    }
}
