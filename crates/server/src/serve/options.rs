//! The options of `zodium serve`.
//!
//! Most of them are settings. They have no defaults here: without an option the configuration
//! applies, whose table of settings has the defaults and the help.

use std::path::PathBuf;

use clap::Args;

use crate::setting_arguments::{OfServer, SettingArguments};

/// Options of `zodium serve`.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ServeOptions {
    /// The data file, usually called Data.fs, or sqlite:///PATH; created if absent. Or
    /// mysql://USER@HOST/DATABASE [env: ZODIUM_PATH, if no storage is named otherwise]
    ///
    /// sqlite:///PATH is an SQLite database as NEO has them (docs/neo.md). A new one is that of a
    /// cluster with one partition, called as in sqlite:///PATH?cluster=NAME, or as the file. Beside
    /// storages of -C or -f a data file must exist, as it may be a mistaken command (start).
    pub(crate) path: Option<PathBuf>,

    /// Another data file; may be repeated. Storages are called 1, 2, ... in this order
    #[arg(short, long, value_name = "PATH")]
    pub(crate) filename: Vec<PathBuf>,

    /// A configuration file: a zeo.conf as runzeo reads it, or TOML
    ///
    /// Options override its settings; data files on the command line replace all its storages.
    /// `zodium config check` reports its errors.
    #[arg(short = 'C', long, alias = "configure", value_name = "FILE", env = "ZODIUM_CONFIG")]
    pub(crate) config: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) settings: SettingArguments<OfServer>,
}
