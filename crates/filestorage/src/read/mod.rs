//! Reads what is committed: the log with the index into it and the cached records, loads, and
//! iteration.

mod blob_sample;
mod cached;
mod iterate;
mod load;
mod log;
mod log_bytes;
mod log_tail;
mod newest;
mod old_logs;
mod out_of_order;
mod positions;
mod read_log;
mod reader;
mod recent_serials;
mod record;
mod record_cache;
mod sparse_tid_index;
mod tid_search;
mod tids;
mod undo;

pub use blob_sample::BlobSample;
pub(crate) use iterate::step_scan;
pub use iterate::{RecordIterator, TransactionIterator};
pub(crate) use log::LogFile;
pub use log_tail::LogTail;
pub use newest::{NewestTransactions, PlacedTransaction};
pub use old_logs::OLD_LOGS_MAX;
pub(crate) use positions::Positions;
pub use read_log::Place;
pub use reader::Reader;
pub(crate) use record::new_record;
pub use record_cache::RecordCacheStatistics;
pub(crate) use tids::Tids;
