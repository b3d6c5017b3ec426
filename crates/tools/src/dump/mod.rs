//! The dump format of zodbtools: a database as text and data, transaction by transaction.
//!
//! ```text
//! stream = txn*
//! txn    = "txn " tid " " q(status) LF "user " q(user) LF "description " q(description) LF
//!          "extension " q(extension) LF obj* LF
//! obj    = "obj " oid " " ( "delete" | "from " tid | size " " hash ( " -" | LF data ) ) LF
//! hash   = name ":" digits
//! ```
//!
//! A tid or an oid is 16 hexadecimal digits, and `q` is [`crate::text::quote`].

mod disassembly;
mod hashing;
mod held;
mod reader;
mod writer;

pub use hashing::sha1_of;
pub use reader::{DumpBody, DumpObject, DumpReader, DumpTransaction};
pub use writer::{DataView, DumpOptions, DumpWriter, write_object};
