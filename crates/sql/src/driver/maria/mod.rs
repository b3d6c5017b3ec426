//! Connections to a MariaDB server, or to one of several of a Galera cluster.

mod address;
mod connection;
mod failure;
mod fence;
mod option_file;
mod server;
mod session;
mod tls;
mod transaction;
mod translated;
mod trouble;

pub use address::{MariaAddress, MariaAddressError, MariaEngine};
pub(crate) use connection::MariaConnection;
pub(super) use failure::may_pass;
pub(crate) use server::MariaServer;
pub(crate) use session::MariaPurpose;
pub(super) use tls::shown as tls_shown;
pub(crate) use translated::Translated;
