//! `zodium healthcheck`: whether a server answers `ruok`, for containers and scripts.

use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use zodium_types::Address;
use zodium_zeo::client::{connect, health};

/// Options of `zodium healthcheck`.
#[derive(Debug, Args)]
pub(crate) struct HealthcheckOptions {
    /// The server: HOST:PORT, PORT, or /path/to/a/socket
    #[arg(default_value = "127.0.0.1:8100")]
    address: Address,

    /// A storage that has to be served; may be repeated [default: any at all]
    #[arg(short, long, value_name = "NAME")]
    storage: Vec<String>,

    /// How long to wait for the connection, and for each answer
    #[arg(short, long, value_name = "SECONDS", default_value = "3", value_parser = seconds)]
    timeout: Duration,
}

/// Succeeds when the server answers with the status of all storages asked for.
pub(crate) fn run(options: &HealthcheckOptions) -> Result<()> {
    let stream = connect(&options.address, options.timeout)?;
    let storages = health(stream, options.timeout)?;
    if storages.is_empty() {
        bail!("{} serves no storage", options.address);
    }
    for name in &options.storage {
        if !storages.contains_key(name) {
            let served: Vec<_> = storages.keys().map(String::as_str).collect();
            bail!("{} serves no storage {name}, but {}", options.address, served.join(", "));
        }
    }
    for (name, status) in &storages {
        if !status.is_object() {
            bail!("{} has no status of storage {name}", options.address);
        }
    }
    Ok(())
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected a number of seconds".to_owned())?;
    let limit = Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())?;
    if limit.is_zero() { Err("expected more than 0".to_owned()) } else { Ok(limit) }
}
