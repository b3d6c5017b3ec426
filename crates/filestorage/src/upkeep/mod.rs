//! Checksums in the life of a storage: opened and closed with it, and kept up in between.

mod background;
mod checksums;

pub use checksums::ScrubPlace;
