//! Reads a dump, transaction by transaction, and verifies the hashes of its data.

use std::io::{BufRead, Read};

use bytes::Bytes;
use zodium_types::{Oid, Tid, TransactionMetadata, TransactionStatus};

use super::hashing;
use crate::ToolError;
use crate::text::unquote;
use crate::tids::hexadecimal;

/// Longest line of text: three quoted fields of 65,535 bytes would be shorter.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// Bytes of data for which memory is reserved before they have arrived.
const RESERVED_BYTES_MAX: usize = 16 << 20;

/// A transaction of a dump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DumpTransaction {
    /// Its tid.
    pub tid: Tid,
    /// Its status.
    pub status: TransactionStatus,
    /// User, description and extension.
    pub metadata: TransactionMetadata,
    /// Its objects in the order of the dump.
    pub objects: Vec<DumpObject>,
}

/// An object of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DumpObject {
    /// The object.
    pub oid: Oid,
    /// What the transaction says of it.
    pub body: DumpBody,
}

/// What a transaction says of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DumpBody {
    /// It is deleted.
    Delete,
    /// It has the data that this transaction wrote.
    CopyOf(Tid),
    /// It has these data.
    Data(Bytes),
    /// It has data that the dump leaves out.
    HashOnly,
}

/// Reads transactions from a dump.
pub struct DumpReader<R> {
    input: R,
    /// Lines read, those within data included.
    line: u64,
    text: Vec<u8>,
}

impl<R: BufRead> DumpReader<R> {
    /// Reads `input` from its first transaction on.
    pub fn new(input: R) -> DumpReader<R> {
        DumpReader { input, line: 0, text: Vec::new() }
    }

    /// The next transaction; `None` at the end.
    pub fn transaction(&mut self) -> Result<Option<DumpTransaction>, ToolError> {
        if !self.next_line()? {
            return Ok(None);
        }
        let expected = "txn TID \"STATUS\"";
        let rest = self.text.strip_prefix(b"txn ").and_then(|rest| rest.split_at_checked(16));
        let Some((tid, status)) = rest else { return Err(self.wrong(expected)) };
        let status = status.strip_prefix(b" ").and_then(unquote);
        let status = match status.as_deref() {
            Some([byte]) => TransactionStatus::from_byte(*byte),
            _ => None,
        };
        match (number(tid), status) {
            (Some(tid), Some(status)) => self.rest(Tid(tid), status).map(Some),
            _ => Err(self.wrong(expected)),
        }
    }

    /// What follows the first line of a transaction.
    pub fn rest(
        &mut self,
        tid: Tid,
        status: TransactionStatus,
    ) -> Result<DumpTransaction, ToolError> {
        let user = self.field("user")?;
        let description = self.field("description")?;
        let extension = self.field("extension")?;
        let metadata = TransactionMetadata { user, description, extension };
        metadata.check().map_err(|error| self.no_dump(error.to_string()))?;
        let mut objects = Vec::new();
        loop {
            if !self.next_line()? {
                let what = "the dump ends within a transaction; an empty line ends it";
                return Err(self.no_dump(what));
            }
            if self.text.is_empty() {
                return Ok(DumpTransaction { tid, status, metadata, objects });
            }
            objects.push(self.object()?);
        }
    }

    /// The number of the line that was read last, from 1 on.
    pub fn line(&self) -> u64 {
        self.line
    }

    fn field(&mut self, name: &str) -> Result<Vec<u8>, ToolError> {
        let is_there = self.next_line()?;
        let quoted = self.text.strip_prefix(name.as_bytes());
        let value = quoted.and_then(|rest| unquote(rest.strip_prefix(b" ")?));
        value.filter(|_| is_there).ok_or_else(|| self.wrong(&format!("{name} \"...\"")))
    }

    /// The object of the present line, with its data.
    fn object(&mut self) -> Result<DumpObject, ToolError> {
        let expected = "obj OID delete, obj OID from TID, or obj OID SIZE HASH:DIGITS";
        let line = std::mem::take(&mut self.text);
        let Some((oid, says)) = object_line(&line) else {
            self.text = line;
            return Err(self.wrong(expected));
        };
        let body = match says {
            Says::Delete => DumpBody::Delete,
            Says::CopyOf(tid) => DumpBody::CopyOf(tid),
            Says::Data { hash_only: true, .. } => DumpBody::HashOnly,
            Says::Data { size, hash_name, hash, .. } => {
                DumpBody::Data(self.data(oid, size, hash_name, hash)?)
            }
        };
        self.text = line;
        Ok(DumpObject { oid, body })
    }

    fn data(
        &mut self,
        oid: Oid,
        size: usize,
        hash_name: &[u8],
        hash: &[u8],
    ) -> Result<Bytes, ToolError> {
        let mut data = Vec::with_capacity(size.min(RESERVED_BYTES_MAX));
        let read = self.input.by_ref().take(size as u64).read_to_end(&mut data);
        if read.map_err(ToolError::Input)? < size {
            return Err(self.no_dump(format!("the dump ends within the data of object {oid}")));
        }
        let mut end = [0];
        let is_ended = self.input.read_exact(&mut end).is_ok() && end == *b"\n";
        if !is_ended {
            return Err(self.no_dump(format!("no end of line after the data of object {oid}")));
        }
        let name = String::from_utf8_lossy(hash_name);
        match hashing::named(hash_name, &data) {
            None => Err(self.no_dump(format!("there is no hash {name:?}"))),
            Some(found) if found != hash => {
                let (found, hash) =
                    (String::from_utf8_lossy(&found), String::from_utf8_lossy(hash));
                let what = format!("data of object {oid}: {name} is {found}, not {hash}");
                Err(self.no_dump(what))
            }
            Some(_) => {
                self.line += 1 + data.iter().filter(|byte| **byte == b'\n').count() as u64;
                Ok(data.into())
            }
        }
    }

    /// Reads a line without its end; `false` at the end of the input.
    fn next_line(&mut self) -> Result<bool, ToolError> {
        self.text.clear();
        let limited = &mut self.input.by_ref().take(LINE_BYTES_MAX);
        limited.read_until(b'\n', &mut self.text).map_err(ToolError::Input)?;
        if self.text.is_empty() {
            return Ok(false);
        }
        self.line += 1;
        if self.text.pop() != Some(b'\n') {
            return Err(self.no_dump("a line that does not end"));
        }
        Ok(true)
    }

    fn wrong(&self, expected: &str) -> ToolError {
        let found = self.text.escape_ascii();
        self.no_dump(format!("expected {expected}, found {found:.120}"))
    }

    fn no_dump(&self, what: impl Into<String>) -> ToolError {
        ToolError::NoDump { line: self.line, what: what.into() }
    }
}

/// The parts of an object's line.
enum Says<'a> {
    Delete,
    CopyOf(Tid),
    Data { size: usize, hash_name: &'a [u8], hash: &'a [u8], hash_only: bool },
}

fn object_line(line: &[u8]) -> Option<(Oid, Says<'_>)> {
    let (oid, rest) = line.strip_prefix(b"obj ")?.split_at_checked(16)?;
    let (oid, rest) = (Oid(number(oid)?), rest.strip_prefix(b" ")?);
    if rest == b"delete" {
        return Some((oid, Says::Delete));
    }
    if let Some(tid) = rest.strip_prefix(b"from ") {
        return Some((oid, Says::CopyOf(Tid(number(tid)?))));
    }
    let mut words = rest.split(|byte| *byte == b' ');
    let size = words.next()?;
    let is_digits = !size.is_empty() && size.iter().all(u8::is_ascii_digit);
    let size = str::from_utf8(size).ok().filter(|_| is_digits)?.parse().ok()?;
    let mut hash = words.next()?.splitn(2, |byte| *byte == b':');
    let (hash_name, hash) = (hash.next()?, hash.next()?);
    let hash_only = match words.next() {
        None => false,
        Some(b"-") => true,
        Some(_) => return None,
    };
    words.next().is_none().then_some((oid, Says::Data { size, hash_name, hash, hash_only }))
}

/// 16 hexadecimal digits in lower case.
fn number(digits: &[u8]) -> Option<u64> {
    let is_lower = !digits.iter().any(u8::is_ascii_uppercase);
    str::from_utf8(digits).ok().filter(|_| is_lower).and_then(hexadecimal)
}

#[cfg(test)]
mod tests {
    use zodium_storage::LogItem;

    use super::super::{DataView, DumpOptions, DumpWriter};
    use super::*;

    const TEXT: &[u8] =
        b"txn 03f5945817777777 \" \"\nuser \"j\\\"\"\ndescription \"\"\nextension \"\"\n\
        obj 0000000000000001 5 sha1:79f584d138a693dcf2d31aeb9abb8269873ae5c8\nAA\nBB\n\
        obj 0000000000000002 delete\nobj 0000000000000003 from 0000000000000007\n\n\
        txn 03f5945817777778 \"p\"\nuser \"\"\ndescription \"\"\nextension \"\"\n\n";

    fn all(text: &[u8]) -> Result<Vec<DumpTransaction>, ToolError> {
        let mut reader = DumpReader::new(text);
        std::iter::from_fn(|| reader.transaction().transpose()).collect()
    }

    fn refusal(text: &[u8]) -> String {
        all(text).unwrap_err().to_string()
    }

    fn written(transactions: &[DumpTransaction], options: DumpOptions) -> Vec<u8> {
        let mut writer = DumpWriter::new(Vec::new(), options);
        for DumpTransaction { tid, status, metadata, objects } in transactions {
            let TransactionMetadata { user, description, extension } = metadata;
            let (tid, status) = (*tid, *status);
            let head = LogItem::Transaction { tid, status, user, description, extension };
            writer.write(head).unwrap();
            for DumpObject { oid, body } in objects {
                let (data, data_tid) = match body {
                    DumpBody::Delete => (None, None),
                    DumpBody::CopyOf(tid) => (Some(&b""[..]), Some(*tid)),
                    DumpBody::Data(data) => (Some(&data[..]), None),
                    DumpBody::HashOnly => panic!("no data"),
                };
                writer.write(LogItem::Record { oid: *oid, data, data_tid }).unwrap();
            }
        }
        writer.finish().unwrap()
    }

    #[test]
    fn a_dump_that_is_read_and_written_is_the_same() {
        let transactions = all(TEXT).unwrap();
        assert_eq!(transactions.len(), 2);
        assert_eq!(transactions[0].metadata.user, b"j\"");
        assert_eq!(transactions[0].objects[0].body, DumpBody::Data(b"AA\nBB"[..].into()));
        assert_eq!(transactions[1].status, TransactionStatus::Packed);
        for log_order in [true, false] {
            let options = DumpOptions { log_order, ..DumpOptions::default() };
            assert_eq!(written(&transactions, options), TEXT);
        }
    }

    #[test]
    fn objects_are_sorted_unless_the_order_of_the_log_is_wanted() {
        let mut transactions = all(TEXT).unwrap();
        transactions[0].objects.reverse();
        assert_eq!(written(&transactions, DumpOptions::default()), TEXT);
        let data = DataView { hash_only: true, ..DataView::default() };
        let options = DumpOptions { log_order: true, data, json: false };
        let found = written(&transactions, options);
        assert_eq!(all(&found).unwrap()[0].objects[2].body, DumpBody::HashOnly);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let replaced = |from: &str, to: &str| {
            let text = str::from_utf8(TEXT).unwrap();
            assert!(text.contains(from));
            refusal(text.replacen(from, to, 1).as_bytes())
        };
        assert!(replaced("sha1:79f5", "sha1:79f6").contains("line 5 of the input: data of object"));
        assert!(replaced("sha1:79f5", "md5:79f5").contains("no hash \"md5\""));
        assert!(replaced("\" \"", "\"c\"").contains("line 1 of the input: expected txn"));
        assert!(replaced("user", "name").contains("line 2 of the input: expected user"));
        assert!(replaced(" delete", " deleted").contains("line 8 of the input: expected obj"));
        assert!(replaced("1 5 sha1", "1 4 sha1").contains("no end of line"));
        assert!(replaced("1 5 sha1", "1 99999 sha1").contains("ends within the data"));
        assert!(replaced("0000000000000007", "000000000000000A").contains("expected obj"));
        assert!(refusal(&TEXT[..TEXT.len() - 1]).contains("ends within a transaction"));
        assert!(refusal(&TEXT[..TEXT.len() - 2]).contains("a line that does not end"));
        assert!(all(b"").unwrap().is_empty());
    }
}
