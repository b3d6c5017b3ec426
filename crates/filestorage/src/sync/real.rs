//! The types of std and of the crates that the server is built with.

pub(crate) use std::sync::OnceLock;
pub(crate) use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

pub(crate) use arc_swap::ArcSwapAny;
pub(crate) use crossbeam_skiplist::SkipMap;
pub(crate) use parking_lot::Mutex;

/// Empty cells, made in place.
pub(crate) fn cells<T, const N: usize>() -> Box<[OnceLock<T>; N]> {
    Box::new([const { OnceLock::new() }; N])
}

/// Zeros, made in place.
pub(crate) fn zeros<const N: usize>() -> Box<[AtomicU64; N]> {
    Box::new([const { AtomicU64::new(0) }; N])
}
