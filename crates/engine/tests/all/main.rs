//! Tests of the engine from outside, in one program: it links once.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod background;
mod blobs;
mod commit_model;
mod commits_on_disk;
mod conflict_resolution;
mod damaged_objects;
mod failing_disk;
mod following;
mod invalidations;
mod lock_waits;
mod pack;
mod released_space;
mod reopening;
mod reservations;
mod shared;
mod slow_disk;
mod spilled_data;
mod support;
mod transaction_timeout;
mod undo_and_restore;
mod undo_conflicts;
