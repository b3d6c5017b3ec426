//! What a server is told: one model, read from `zeo.conf` (ZConfig) or from our own TOML.
//!
//! The model ([`Configuration`]) is complete and checked: whoever gets one can start. Where a
//! setting came from, and how it was spelt there, is forgotten by then; mistakes are reported
//! with file and line while reading.

#![forbid(unsafe_code)]

mod model;

pub use model::{
    Configuration, Encoding, KeyPassword, LogDestination, LogFormat, LogOptions, MonitorOptions,
    PackOptions, PackSchedule, ServerOptions, StorageKind, StorageOptions, TlsOptions, Weekday,
};
