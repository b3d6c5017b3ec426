//! Tests of FileStorage from outside, in one program: it links once.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod blob_sample;
mod blob_sums;
mod blobs;
mod broken_end;
mod check;
mod checksums;
mod claims;
mod cold_reads;
mod damage;
mod damage_count;
mod damaged_current;
mod damaged_headers;
mod flips;
mod foreign_change;
mod foreign_writers;
mod format;
mod full_disk;
mod garbage_tail;
mod history_model;
mod index_file_trust;
mod long_history;
mod newest;
mod other_contents;
mod other_writer;
mod pack;
mod pack_attempts;
mod pack_damaged;
mod power_loss;
mod publication;
mod reads;
mod recover;
mod reopening;
mod support;
mod syncs;
mod tid_order;
mod tid_search;
mod torn_tail;
mod upkeep;
