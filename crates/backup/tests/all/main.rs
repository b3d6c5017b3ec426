//! Backups of storages in memory, to a place in memory.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod archives;
mod blobs;
mod continuity;
mod damage;
mod memory;
mod moments;
mod packs;
