//! Drives NEO nodes: sockets, TLS, and the database threads of storages.
//!
//! [`serve_admin()`] runs the admin of a cluster, and an [`AdminConnection`] asks one.
//! [`serve_master()`] runs a master.
//!
//! [`serve()`] connects a [`Node`](zodium_neo_storage::Node) with the world. One thread has the
//! node and all connections, and reads single rows while they come from memory. Other reads of the
//! database run on a few threads, writes on one. Writes that wait together are one transaction of
//! the database, and one sync.
//!
//! Key decision: the node decides everything, and this crate decides nothing. It carries bytes to
//! the node and does what the node asks for, in its order.

#![forbid(unsafe_code)]

mod admin;
mod dialling;
mod driver;
mod known_masters;
mod light;
mod links;
mod listening;
mod master;
mod pace;
mod questions;
mod reader;
mod reading;
mod serve;
mod session;
mod tls;
mod watch;
mod writer;

pub use admin::{AdminWatch, ServeAdmin, serve_admin};
pub use known_masters::MastersTold;
pub use light::{LightWatch, ServeLight};
pub use master::{MasterWatch, ServeMaster, serve_master};
pub use questions::{AdminConnection, AskError};
pub use serve::{Ended, NodeError, ServeNode, serve};
pub use tls::NodeTls;
pub use watch::{Brief, NodeReport, NodeWatch, Watched};
