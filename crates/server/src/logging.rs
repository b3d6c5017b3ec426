//! Log lines on standard error.

use std::io::IsTerminal;

use anyhow::{Context, Result};
use tracing_subscriber::EnvFilter;

use crate::cli::{LogFormat, LogOptions};

/// Starts logging as the options say.
pub(crate) fn start(options: &LogOptions) -> Result<()> {
    let filter = EnvFilter::try_new(&options.log_level)
        .with_context(|| format!("--log-level {:?} is not understood", options.log_level))?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false);
    match options.log_format {
        LogFormat::Human => builder.init(),
        LogFormat::Json => builder.json().flatten_event(true).init(),
    }
    Ok(())
}
