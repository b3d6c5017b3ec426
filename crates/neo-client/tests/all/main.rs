//! Tests of the client against a model of a cluster, in one program: it links once.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod commits;
mod link;
mod many;
mod masters;
mod model;
mod reading;
mod support;
