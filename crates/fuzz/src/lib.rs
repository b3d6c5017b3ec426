//! Fuzzers: what nobody should send or leave on a disk, and random calls held against models.
//!
//! A **target** ([`targets`]) is a decoder and what must hold whatever it is given. Its inputs are
//! seeds from real messages and files, changed at random in ways that know what lengths, numbers
//! and nesting look like ([`mutation`]). The **run** ([`run`]) sees to panics, time and memory, and
//! writes down what fails. **Sessions** ([`sessions`]) are spoken to by clients whose every answer
//! is held against a model.
//!
//! Key decision: everything runs on stable Rust, in `cargo test` for a second each and in
//! `make fuzz` for as long as is asked. An input is made of its target's name, a seed and a number
//! alone, so that any run can be had again.

#![forbid(unsafe_code)]

pub mod failure;
pub mod mutation;
pub mod run;
pub mod sessions;
pub mod targets;
mod watch;

use peak_alloc::PeakAlloc;

/// Counts what is allocated, so that a run knows what an input cost.
#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;
