//! Starts logging: destinations, levels and format.

mod destinations;

use anyhow::{Context, Result};
use tracing::warn;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, fmt};
use zodium_configuration::{Configuration, LogFormat, LogOptions, Warning};
use zodium_monitor::Messages;

pub(crate) use self::destinations::Destinations;
use crate::configuration_file::refuse;

/// The library of TLS, which has a line for each hello that fails. Peers cause those, and ours are
/// rate-limited.
const UNLIMITED: &str = "rustls";

/// Starts logging for a process with this configuration. No log file is opened that is, for
/// instance, a data file. `warnings` about the configuration are its first lines.
pub(crate) fn start_for(
    configuration: &Configuration,
    warnings: &[Warning],
) -> Result<(Destinations, Messages)> {
    refuse(&configuration.check_paths())?;
    let started = start(&configuration.log)?;
    for warning in warnings {
        warn!("{warning}");
    }
    Ok(started)
}

/// Starts logging with these options. Warnings and errors are also kept for the status page.
pub(crate) fn start(options: &LogOptions) -> Result<(Destinations, Messages)> {
    // A level that names it comes later, and counts.
    let filter = EnvFilter::try_new(format!("{UNLIMITED}=off,{}", options.level))
        .with_context(|| format!("log level {:?} is not understood", options.level))?;
    let destinations = Destinations::open(&options.destinations)?;
    let messages = Messages::default();
    let lines = fmt::layer()
        .with_ansi(destinations.are_terminals())
        .with_writer(destinations.clone())
        .with_target(false);
    let lines = match options.format {
        LogFormat::Human => lines.boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    let kept = Targets::new().with_default(LevelFilter::WARN);
    let kept = messages.clone().with_filter(kept.with_target(UNLIMITED, LevelFilter::OFF));
    tracing_subscriber::registry().with(lines.with_filter(filter)).with(kept).init();
    Ok((destinations, messages))
}
