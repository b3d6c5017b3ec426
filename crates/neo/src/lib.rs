//! The NEO protocol, version 5, as NEO/py speaks it, and what its nodes have in common: the
//! partition table, the list of masters, connections, refusals. No I/O, no threads.
//!
//! Nothing here reads a socket, and nothing decides what a message does. A connection begins with a
//! [greeting](read_greeting) in each direction. After it each direction is a sequence of msgpack
//! arrays, `[id, code, [arguments...]]`, without a length before them. A [`Scanner`] finds where
//! the next one ends. [`Packet::decode`] and [`encode`] translate it from and to a [`Message`].
//!
//! Key decision: [`Scanner`] bounds the bytes and the number of values of a message before anything
//! is decoded. Decoding then allocates in proportion to what has arrived.

#![forbid(unsafe_code)]

mod checked;
mod connection;
mod error;
mod greeting;
pub mod handling;
mod links;
mod masters;
mod message;
mod message_id;
pub mod messages;
#[cfg(test)]
mod neoppod_tests;
mod output;
mod packet;
mod partition_table;
#[cfg(test)]
mod properties;
mod refusals;
#[cfg(test)]
mod samples;
mod scanner;
mod stored_data;
mod tid_time;
mod values;
mod wire;

pub use checked::{Checked, TELLS_CHECKS, ask_checks, has_checks};
pub use connection::ConnectionId;
pub use error::{DecodeError, TooLong};
pub use greeting::{GREETING, Greeting, GreetingError, PROTOCOL_VERSION, read_greeting};
pub use links::{Links, Lost, Request};
pub use masters::{Candidate, LoggedRefusals, Masters};
pub use message::{Kind, Message};
pub use message_id::MessageIds;
pub use output::{LinkTask, Output};
pub use packet::{Packet, encode};
pub use partition_table::{PartitionTable, TableError};
pub use refusals::Refusals;
pub use scanner::{Frame, MESSAGE_BYTES_MAX, MESSAGE_VALUES_MAX, Scan, ScanError, Scanner};
pub use stored_data::{DATA_BYTES_MAX, OBJECT_BYTES_MAX, StoredData};
pub use tid_time::tid_time;
pub use values::{
    Address, CellState, Checksum, ClusterState, ErrorCode, Extra, NodeId, NodeState, NodeType,
    Partition, TableId, VALUE_NESTING_MAX, Value,
};
pub use wire::Map;
