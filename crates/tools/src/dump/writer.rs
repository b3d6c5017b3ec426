//! Writes the log of a storage as a dump.

use std::io::Write;

use serde_json::{Value, json};
use zodium_storage::LogItem;
use zodium_types::{Oid, Tid, TransactionStatus};

use super::disassembly::{push_extension, push_record};
use super::hashing::sha1_of;
use super::held::HeldRecords;
use crate::ToolError;
use crate::classes::class_of;
use crate::text::quote;

/// How to dump.
#[derive(Clone, Copy, Debug, Default)]
pub struct DumpOptions {
    /// How data are shown.
    pub data: DataView,
    /// Leave the objects of a transaction in the order of the log. Otherwise they are in the order
    /// of their oids, and those of one oid in the order of the log.
    pub log_order: bool,
    /// Write JSON instead, without the data: one object a line for each transaction, and for each
    /// object of it.
    pub json: bool,
}

/// How a dump shows data.
#[derive(Clone, Copy, Debug, Default)]
pub struct DataView {
    /// Leave the data out; their hashes stay.
    pub hash_only: bool,
    /// List the operations of pickles, also of extensions. Such a dump cannot be loaded.
    pub is_disassembled: bool,
}

/// Writes the items of a log to `out`.
pub struct DumpWriter<W> {
    out: W,
    options: DumpOptions,
    /// The records of the present transaction.
    held: HeldRecords,
    /// Whether a transaction has begun.
    is_open: bool,
    text: Vec<u8>,
}

impl<W: Write> DumpWriter<W> {
    /// Nothing is written yet.
    pub fn new(out: W, options: DumpOptions) -> DumpWriter<W> {
        let (held, text) = (HeldRecords::default(), Vec::new());
        DumpWriter { out, options, held, is_open: false, text }
    }

    /// Writes the next item. A transaction is written when it is whole.
    pub fn write(&mut self, item: LogItem<'_>) -> Result<(), ToolError> {
        match item {
            LogItem::Transaction { tid, status, user, description, extension } => {
                self.end_transaction()?;
                self.is_open = true;
                let text = &mut self.text;
                if self.options.json {
                    push_line(text, &transaction_json(tid, status, [user, description, extension]));
                    return self.flush_text();
                }
                text.extend(b"txn ");
                push_hex(text, tid.0);
                text.push(b' ');
                quote(text, &[status.to_byte()]);
                push_field(text, "\nuser ", user);
                push_field(text, "\ndescription ", description);
                if self.options.data.is_disassembled && !extension.is_empty() {
                    text.extend(b"\nextension\n");
                    push_extension(text, extension);
                } else {
                    push_field(text, "\nextension ", extension);
                    text.push(b'\n');
                }
                self.flush_text()
            }
            LogItem::Record { oid, data, data_tid } => {
                let DumpOptions { data: view, log_order, json } = self.options;
                let push = |text: &mut Vec<u8>| match json {
                    true => push_line(text, &object_json(oid, data, data_tid)),
                    false => push_object(text, oid, data, data_tid, view),
                };
                if log_order {
                    push(&mut self.text);
                    return self.flush_text();
                }
                self.held.add(oid, push).map_err(ToolError::Output)
            }
            LogItem::Skipped => Ok(()),
        }
    }

    /// Ends the dump, and gives back what it was written to.
    pub fn finish(mut self) -> Result<W, ToolError> {
        self.end_transaction()?;
        self.out.flush().map_err(ToolError::Output)?;
        Ok(self.out)
    }

    fn end_transaction(&mut self) -> Result<(), ToolError> {
        if !std::mem::take(&mut self.is_open) {
            return Ok(());
        }
        let end: &[u8] = if self.options.json { b"" } else { b"\n" };
        let written = self.held.write_to(&mut self.out).and_then(|()| self.out.write_all(end));
        written.map_err(ToolError::Output)
    }

    fn flush_text(&mut self) -> Result<(), ToolError> {
        let written = self.out.write_all(&self.text);
        self.text.clear();
        written.map_err(ToolError::Output)
    }
}

/// Writes the line of one object, and its data as `view` shows them.
pub fn write_object(
    out: &mut dyn Write,
    oid: Oid,
    data: &[u8],
    view: DataView,
) -> Result<(), ToolError> {
    let mut text = Vec::new();
    push_object(&mut text, oid, Some(data), None, view);
    out.write_all(&text).map_err(ToolError::Output)
}

fn push_object(
    text: &mut Vec<u8>,
    oid: Oid,
    data: Option<&[u8]>,
    data_tid: Option<Tid>,
    view: DataView,
) {
    text.extend(b"obj ");
    push_hex(text, oid.0);
    match (data, data_tid) {
        (None, _) => text.extend(b" delete"),
        (Some(_), Some(tid)) => {
            text.extend(b" from ");
            push_hex(text, tid.0);
        }
        (Some(data), None) => {
            text.push(b' ');
            push_decimal(text, data.len());
            text.extend(b" sha1:");
            text.extend(sha1_of(data));
            if view.hash_only {
                text.extend(b" -");
            } else {
                text.push(b'\n');
                match view.is_disassembled {
                    true => push_record(text, data),
                    false => text.extend_from_slice(data),
                }
            }
        }
    }
    text.push(b'\n');
}

fn push_field(text: &mut Vec<u8>, name: &str, value: &[u8]) {
    text.extend(name.bytes());
    quote(text, value);
}

fn transaction_json(tid: Tid, status: TransactionStatus, metadata: [&[u8]; 3]) -> Value {
    let [user, description, extension] = metadata;
    let mut quoted = Vec::new();
    quote(&mut quoted, extension);
    json!({
        "kind": "transaction",
        "tid": tid.to_string(),
        "status": char::from(status.to_byte()),
        "user": String::from_utf8_lossy(user),
        "description": String::from_utf8_lossy(description),
        "extension": String::from_utf8_lossy(&quoted),
    })
}

fn object_json(oid: Oid, data: Option<&[u8]>, data_tid: Option<Tid>) -> Value {
    let oid = oid.to_string();
    match (data, data_tid) {
        (None, _) => json!({ "kind": "object", "oid": oid, "deleted": true }),
        (Some(_), Some(tid)) => {
            json!({ "kind": "object", "oid": oid, "from": tid.to_string() })
        }
        (Some(data), None) => json!({
            "kind": "object",
            "oid": oid,
            "class": class_of(data),
            "size": data.len(),
            "sha1": String::from_utf8_lossy(&sha1_of(data)),
        }),
    }
}

fn push_line(text: &mut Vec<u8>, value: &Value) {
    text.extend(value.to_string().bytes());
    text.push(b'\n');
}

fn push_hex(text: &mut Vec<u8>, number: u64) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    text.extend((0..16).rev().map(|digit| DIGITS[(number >> (4 * digit) & 15) as usize]));
}

fn push_decimal(text: &mut Vec<u8>, number: usize) {
    text.extend(number.to_string().bytes());
}
