//! Conflict resolution as BTrees' buckets, sets and Length do it, without Python.

#![forbid(unsafe_code)]
