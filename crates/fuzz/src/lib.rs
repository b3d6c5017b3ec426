//! Fuzzers: hostile input for decoders.
//!
//! A **target** ([`targets`]) is a decoder with the claims that hold for any input. Its inputs are
//! seeds from real messages and files, changed at random with knowledge of lengths, numbers and
//! nesting ([`mutation`]). The **run** ([`run`]) watches for panics, time and memory, and saves
//! failing inputs.
//!
//! Key decision: everything runs on stable Rust, in `cargo test` for a second each and in `make
//! fuzz` for as long as wanted. An input depends only on its target's name, a seed and a number, so
//! any run can be reproduced.

#![forbid(unsafe_code)]

pub mod failure;
pub mod mutation;
pub mod run;
pub mod targets;
mod watch;

use peak_alloc::PeakAlloc;

/// Counts what is allocated, so that a run knows what an input cost.
#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;
