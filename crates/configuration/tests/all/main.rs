//! Tests of the configuration from outside, in one program: it links once.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod files;
mod properties;
mod toml;
