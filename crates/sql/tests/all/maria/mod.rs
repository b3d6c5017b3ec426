//! Databases on a MariaDB server, which the tests start for themselves.

mod claims;
mod cutter;
mod defaults;
mod failures;
mod schema;
mod server;
mod waits;
