//! `zodium healthcheck`: whether a server answers `ruok`, for containers and scripts.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use serde_json::{Map, Value, json};
use zodium_client::TIMEOUT_MAX;
use zodium_client::direct::health;
use zodium_types::Address;

use crate::reach::ReachOptions;
use crate::streams::print;

/// Options of `zodium healthcheck`.
#[derive(Debug, Args)]
pub(crate) struct HealthcheckOptions {
    /// The server: HOST:PORT, PORT, or /path/to/a/socket [default: the first of ZODIUM_ADDRESS, or
    /// of the configuration, or 127.0.0.1:8100]
    address: Option<Address>,

    /// A storage that has to be served; may be repeated [default: those of the configuration, or
    /// any at all]
    #[arg(short, long, value_name = "NAME")]
    storage: Vec<String>,

    /// How long to wait for the connection, and for each answer
    #[arg(short, long, value_name = "SECONDS", default_value = "3", value_parser = seconds)]
    timeout: Duration,

    /// Print JSON: `status` is "ok" with the server's answer, or "failed" with the reason
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    reach: ReachOptions,
}

/// Succeeds when the server answers with the status of all storages asked for.
pub(crate) fn run(options: &HealthcheckOptions) -> Result<ExitCode> {
    let checked = check(options);
    if !options.json {
        return checked.map(|_| ExitCode::SUCCESS);
    }
    let (answer, code) = match checked {
        Ok(storages) => (json!({ "status": "ok", "storages": storages }), ExitCode::SUCCESS),
        Err(error) => {
            (json!({ "status": "failed", "reason": format!("{error:#}") }), ExitCode::FAILURE)
        }
    };
    print(&format!("{answer}\n"))?;
    Ok(code)
}

fn check(options: &HealthcheckOptions) -> Result<Map<String, Value>> {
    let server = options.reach.destination(options.address.clone())?;
    let address = &server.address;
    let storages = health(server.connect(options.timeout)?, options.timeout)?;
    if storages.is_empty() {
        return Err(server.serves_nothing());
    }
    let wanted = if options.storage.is_empty() { &server.storages } else { &options.storage };
    for name in wanted {
        if !storages.contains_key(name) {
            let served: Vec<_> = storages.keys().map(String::as_str).collect();
            bail!("{address} serves no storage {name}, but {}", served.join(", "));
        }
    }
    for (name, status) in &storages {
        if !status.is_object() {
            bail!("{address} has no status of storage {name}");
        }
    }
    Ok(storages)
}

/// Parses a number of seconds above 0.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected a number of seconds".to_owned())?;
    let limit = Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())?;
    match limit.is_zero() {
        true => Err("expected more than 0".to_owned()),
        false => Ok(limit.min(TIMEOUT_MAX)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_can_count_all_times_to_wait() {
        assert_eq!(seconds("2.5"), Ok(Duration::from_millis(2500)));
        let longest = seconds("9223372036854775807").unwrap();
        assert!(std::time::Instant::now().checked_add(longest).is_some());
        assert!(seconds("0").is_err() && seconds("-1").is_err());
    }
}
