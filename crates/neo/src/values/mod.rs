//! Types of arguments that messages share.

mod address;
mod checksum;
mod enumerations;
mod node_id;
mod partition;
mod value;

pub use address::Address;
pub use checksum::Checksum;
pub use enumerations::{CellState, ClusterState, ErrorCode, NodeState, NodeType};
pub use node_id::NodeId;
pub use partition::{Partition, TableId};
pub use value::{Extra, VALUE_NESTING_MAX, Value};
