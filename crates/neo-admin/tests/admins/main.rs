//! Admins without sockets: what they answer, relay and report.

mod backups;
mod masters;
mod operators;
mod support;
