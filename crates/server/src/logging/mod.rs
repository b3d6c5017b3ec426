//! Log lines: where they go and how they look.

mod destinations;

use anyhow::{Context, Result};
use tracing_subscriber::EnvFilter;
use zodium_configuration::{LogFormat, LogOptions};

pub(crate) use self::destinations::Destinations;

/// Starts logging as the options say.
pub(crate) fn start(options: &LogOptions) -> Result<Destinations> {
    let filter = EnvFilter::try_new(&options.level)
        .with_context(|| format!("log level {:?} is not understood", options.level))?;
    let destinations = Destinations::open(&options.destinations)?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(destinations.are_terminals())
        .with_writer(destinations.clone())
        .with_target(false);
    match options.format {
        LogFormat::Human => builder.init(),
        LogFormat::Json => builder.json().flatten_event(true).init(),
    }
    Ok(destinations)
}
