//! Log lines on standard error.

use std::io::IsTerminal;

use anyhow::{Context, Result};
use tracing_subscriber::EnvFilter;

use zodium_configuration::{LogFormat, LogOptions};

/// Starts logging as the options say.
pub(crate) fn start(options: &LogOptions) -> Result<()> {
    let filter = EnvFilter::try_new(&options.level)
        .with_context(|| format!("log level {:?} is not understood", options.level))?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false);
    match options.format {
        LogFormat::Human => builder.init(),
        LogFormat::Json => builder.json().flatten_event(true).init(),
    }
    Ok(())
}
