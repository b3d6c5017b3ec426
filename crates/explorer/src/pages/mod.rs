//! The pages, one a file.

mod charts;
mod classes;
mod growth;
mod history;
mod layout;
mod object;
mod overview;
mod path;
mod referrers;
mod scans;
mod transaction;
mod transactions;

pub(crate) use classes::classes;
pub(crate) use growth::growth;
pub(crate) use history::{changes, history};
pub(crate) use layout::refused;
pub(crate) use object::object;
pub(crate) use overview::overview;
pub(crate) use path::path;
pub(crate) use referrers::referrers;
pub(crate) use scans::progress as scan_progress;
pub(crate) use transaction::transaction;
pub(crate) use transactions::transactions;
