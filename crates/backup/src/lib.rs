//! Backups of storages, in two formats: that of ZODB's repozo, and a repository of our own.
//!
//! [`repozo`] reads and writes the folders that repozo has: copies of a data file and of what was
//! appended to it. [`repository`] keeps transactions of any kind of storage in chunks, each once.
//!
//! A repository of our own is in a folder or in an object store ([`places`]), and may be encrypted.
//!
//! This crate knows folders and files of its own. It reads a storage through its traits, and a data
//! file as bytes.

#![forbid(unsafe_code)]

mod error;
mod files;
mod large_file;
pub mod places;
pub mod repository;
pub mod repozo;

pub use error::BackupError;
