//! The configuration of a server: one model, read from `zeo.conf` (ZConfig) or from TOML.
//!
//! The model ([`Configuration`]) does not say where a setting came from. The readers report
//! mistakes with file and line. [`Configuration::check`] reports problems of the whole.

#![forbid(unsafe_code)]

mod check;
#[cfg(test)]
mod document;
mod error;
mod model;
mod names;
mod read;
mod source;
mod surroundings;
mod toml_file;
mod zeo_conf;

pub use check::Problem;
pub use error::{ConfigurationError, Mistake, Warning};
pub use model::{
    Checksums, Configuration, Encoding, KeyPassword, LogDestination, LogFormat, LogOptions,
    MonitorOptions, PackOptions, PackSchedule, ServerOptions, StorageKind, StorageOptions,
    TlsOptions, Weekday,
};
pub use read::read;
pub use source::{FILE_BYTES_MAX, Place};
pub use surroundings::Surroundings;
pub use toml_file::{parse_toml, read_toml};
pub use zeo_conf::{parse_zeo_conf, read_zeo_conf};
