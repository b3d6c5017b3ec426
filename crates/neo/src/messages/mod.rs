//! Every message with its arguments, in the order of the wire.
//!
//! Each type says its direction: M primary master, SM secondary master, S storage, C client, A
//! admin, ctl an operator's command. Tids and oids are 8 bytes, big-endian. Options are nil
//! on the wire where they are `None`.
//!
//! Terms: the *ttid* is the temporary tid of a transaction until its commit gives the tid. A
//! *serial* is the tid of the transaction that wrote a record.

mod checks;
mod cluster;
mod identification;
mod monitoring;
mod nodes;
mod packs;
mod partitions;
mod reads;
mod recovery;
mod replication;
mod stores;
mod transactions;

pub use checks::*;
pub use cluster::*;
pub use identification::*;
pub use monitoring::*;
pub use nodes::*;
pub use packs::*;
pub use partitions::*;
pub use reads::*;
pub use recovery::*;
pub use replication::*;
pub use stores::*;
pub use transactions::*;
