//! The explorer: web pages for looking at a database of any kind.
//!
//! It works over the traits of `crates/storage`, so it knows neither files nor servers. Each page
//! reads what it shows, from a place that its address names, and no more. What needs the whole log
//! is a scan, which is asked for, shows its progress, and can be cancelled.
//!
//! Key decisions: pages are made here, and work without the script. Everything that is stored is
//! hostile: classes are never imported, and `maud` escapes every text.

#![forbid(unsafe_code)]

mod assets;
mod btree;
mod diff;
mod guard;
mod log;
mod pages;
mod revisions;
mod scan;
mod site;
mod state;
mod treemap;
mod view;
mod words;

use zodium_types::Tid;

pub use guard::Hosts;
pub use site::{Explorer, ExplorerOptions};

/// Undoes transactions, where the operator has allowed it.
pub trait Undo: Send + Sync + 'static {
    /// Undoes a transaction with another one, and gives the tid of that. Blocking.
    ///
    /// # Errors
    /// Why it cannot be undone, for people.
    fn undo(&self, tid: Tid) -> Result<Tid, String>;
}
