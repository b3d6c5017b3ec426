//! The bytes of `Data.fs`, and what can be said about them without reading a whole file.

#[cfg(test)]
mod crafted;
mod damage;
mod data_file;
mod layout;
mod lost_sectors;
mod new_file;

#[cfg(test)]
pub(crate) use crafted::{Crafted, Holds, Watched, file_of};
pub use damage::{Damage, DamageKind};
pub(crate) use data_file::DataFile;
pub use layout::Magic;
pub(crate) use layout::{
    DATA_HEADER_BYTES, DataHeader, MAGIC_BYTES, POINTER_BYTES, STATUS_CHECKPOINT, STATUS_OFFSET,
    TRANSACTION_HEADER_BYTES, TransactionHeader, record_bytes, u64_at,
};
pub(crate) use lost_sectors::LostSectors;
pub(crate) use new_file::create_like;
