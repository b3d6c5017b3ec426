//! The configuration of a server: one model, read from `zeo.conf` (ZConfig) or from TOML.
//!
//! The model ([`Configuration`]) does not say where a setting came from. The readers report
//! mistakes with file and line. [`Configuration::check`] reports problems of the whole.

#![forbid(unsafe_code)]

mod check;
mod differences;
mod document;
mod error;
mod model;
mod names;
mod neo_conf;
mod read;
mod settings;
mod source;
mod surroundings;
mod toml_file;
mod zeo_conf;

pub use check::Problem;
pub use document::with_settings;
pub use error::{ConfigurationError, Mistake, Warning};
pub use model::Configuration;
pub use neo_conf::{NeoNode, read_neo_conf};
pub use read::read;
pub use settings::description::Description;
pub use settings::kinds::{Values, Word};
pub use settings::log::{LogDestination, LogFormat, LogOptions};
pub use settings::monitor::MonitorOptions;
pub use settings::neo::{NodeAdapter, NodeOptions, NodeWait};
pub use settings::neo_admin::AdminOptions;
pub use settings::neo_master::MasterOptions;
pub use settings::packing::{PackOptions, PackSchedule, Weekday};
pub use settings::server::{ColdReads, Encoding, RespSync, ServerOptions};
pub use settings::storage::{Checksums, StorageKind, StorageOptions};
pub use settings::tls::{KeyPassword, TlsOptions};
pub use settings::{SETTINGS, Setting, Settings};
pub use source::{FILE_BYTES_MAX, Place};
pub use surroundings::Surroundings;
pub use toml_file::{is_toml, parse_toml};
pub use zeo_conf::{parse_zeo_conf, read_zeo_conf};
