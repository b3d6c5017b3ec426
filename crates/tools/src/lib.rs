//! Tools for databases of any kind: dump, load, compare, analyze and others.
//!
//! They work over the traits of `crates/storage`, so they know neither files nor sockets. Classes
//! are never imported: a record is bytes, the name of a class, and references.
//!
//! The formats are those of the tools that ZODB's users have: zodbtools, and the scripts of ZODB.

#![forbid(unsafe_code)]

pub mod analyze;
mod back_pointers;
pub mod btrees;
pub mod check;
pub mod classes;
pub mod commit;
pub mod compare;
pub mod delta_analysis;
pub mod dump;
mod error;
pub mod gc;
pub mod headers;
pub mod load;
mod oid_map;
mod oid_queue;
pub mod places;
pub mod references;
pub mod stats;
mod temporary;
pub mod text;
mod tids;
mod times;
pub mod trace;
mod walk;

pub use error::{NameError, ToolError};
pub use oid_map::OidMap;
pub use temporary::temporary_file;
pub use tids::{TidRange, parse_oid, parse_revision, parse_tid};
pub use walk::walk;
