//! Decoders of foreign input, with the claims that hold for any input.
//!
//! A **target** ([`targets`]) is a decoder with its claims, and inputs to start from. Two engines
//! feed it. `fuzz/` is a program with libFuzzer, which looks for inputs that reach further code:
//! `make fuzz`. The tests of this crate run on stable Rust, for a second each. They feed the known
//! inputs, and random changes of them.
//!
//! Key decision: a target checks one input, and knows nothing of the engines. So whatever an engine
//! finds fails in the tests too, once it is among the known inputs (`corpus/found/`).

#![forbid(unsafe_code)]

pub mod targets;

use peak_alloc::PeakAlloc;

/// Counts what is allocated, so that a target knows what an input cost.
#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;
