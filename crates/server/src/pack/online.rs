//! Asking a running server, over its protocol.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use jiff::Timestamp;
use zodium_client::direct::DirectClient;
use zodium_pickle::Value;

use super::Outcome;
use crate::reach::Destination;
use crate::streams::complain;

/// For the connection and for what is answered at once.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// How often it is shown that the pack goes on, on a terminal and elsewhere.
const BAR_INTERVAL: Duration = Duration::from_millis(200);
const LINE_INTERVAL: Duration = Duration::from_secs(10);
/// Interval between two heartbeats, as of stock clients.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(60);

pub(super) fn pack(server: &Destination, storage: &str, to: Timestamp) -> Result<Outcome> {
    let address = &server.address;
    let asked = || format!("storage {storage} of {address}");
    let stream = server.connect(ANSWER_LIMIT)?;
    let mut client = DirectClient::greet(stream, ANSWER_LIMIT).with_context(asked)?;
    // A read-only client may pack too, and every server accepts read-only clients.
    client.register(storage, true).with_context(asked)?;
    let (bytes_before, objects_before) = figures(&mut client)?;
    request_pack(&mut client, to).with_context(|| format!("{} was not packed", asked()))?;
    let (bytes_after, objects_after) = figures(&mut client)?;
    Ok(Outcome { bytes_before, bytes_after, objects_before, objects_after, of_file: None })
}

/// Size in bytes and in objects.
fn figures(client: &mut DirectClient) -> Result<(u64, u64)> {
    let info = client.call("get_info", &Value::tuple([]))?;
    let figure = |name| info.entry(name).and_then(Value::as_u64).unwrap_or(0);
    Ok((figure("size"), figure("length")))
}

fn request_pack(client: &mut DirectClient, to: Timestamp) -> Result<()> {
    let seconds = to.as_nanosecond() as f64 / 1e9;
    let pending = client.request("pack", &Value::tuple([Value::Float(seconds), true.into()]))?;
    let waiting = Waiting::start();
    let mut last_heartbeat = Instant::now();
    while client.answer(&pending, waiting.interval())?.is_none() {
        waiting.show();
        if last_heartbeat.elapsed() >= HEARTBEAT_INTERVAL {
            last_heartbeat = Instant::now();
            client.give_sign_of_life()?;
        }
    }
    Ok(())
}

/// Shows that the server has not answered yet; how far it has got, its log tells.
struct Waiting {
    started: Instant,
    bar: Option<ProgressBar>,
}

impl Waiting {
    fn start() -> Waiting {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{spinner} the server packs, {elapsed}");
            let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
            ProgressBar::new_spinner().with_style(style)
        });
        Waiting { started: Instant::now(), bar }
    }

    fn interval(&self) -> Duration {
        if self.bar.is_some() { BAR_INTERVAL } else { LINE_INTERVAL }
    }

    fn show(&self) {
        match &self.bar {
            Some(bar) => bar.tick(),
            None => complain!("the server packs, {} s", self.started.elapsed().as_secs()),
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
