//! Masters with scripted storages, clients and admins, and with each other.

mod commits;
mod elections;
mod foreign;
mod starts;
mod support;
