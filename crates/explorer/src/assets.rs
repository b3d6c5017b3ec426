//! The style and the script, which are part of the program.

/// The style of all pages.
pub(crate) const STYLE: &str = include_str!("assets/explorer.css");
/// The script: progress of scans without reloading. Every page works without it.
pub(crate) const SCRIPT: &str = include_str!("assets/explorer.js");
