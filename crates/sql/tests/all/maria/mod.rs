//! Databases on a MariaDB server, which the tests start for themselves.
//!
//! All tests are ignored unless they are asked for: without MariaDB they fail. `make unit` asks for
//! them where it is installed.

mod claims;
mod cutter;
mod defaults;
mod failures;
mod schema;
mod server;
mod waits;
