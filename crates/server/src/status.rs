//! `zodium status`: how a server is, once or continually.
//!
//! Key decision: it asks `ruok`, which every ZEO server answers, so it needs no monitor.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{IsTerminal, stdout};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Result, bail};
use clap::Args;
use serde_json::{Map, Value, json};
use zodium_client::direct::health;
use zodium_tools::text::time_of;
use zodium_types::{Address, Tid};

use crate::healthcheck::seconds;
use crate::monitored_process::unix_seconds;
use crate::reach::{Destination, ReachOptions};
use crate::streams::print;

/// The pause between two looks, unless `--watch` names one.
const PAUSE: Duration = Duration::from_secs(2);

/// Clears a terminal, and begins at its top.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Options of `zodium status`.
#[derive(Debug, Args)]
pub(crate) struct StatusOptions {
    /// The server: HOST:PORT, PORT, or /path/to/a/socket [default: the first of ZODIUM_ADDRESS, or
    /// of the configuration, or 127.0.0.1:8100]
    address: Option<Address>,

    /// Ask again, every SECONDS [default: 2], and show rates
    #[arg(short, long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2",
          value_parser = after_watch)]
    watch: Option<AfterWatch>,

    /// Print JSON: one object a line
    #[arg(long)]
    json: bool,

    /// How long to wait for the connection, and for each answer
    #[arg(short, long, value_name = "SECONDS", default_value = "3", value_parser = seconds)]
    timeout: Duration,

    #[command(flatten)]
    reach: ReachOptions,
}

/// The word after `--watch`: the pause, or the address of `zodium status --watch ADDRESS`.
#[derive(Clone, Debug)]
enum AfterWatch {
    Pause(Duration),
    Address(Address),
}

fn after_watch(text: &str) -> Result<AfterWatch, String> {
    match text.parse() {
        Ok(address) if text.contains([':', '/']) => Ok(AfterWatch::Address(address)),
        _ => seconds(text).map(AfterWatch::Pause),
    }
}

/// The answers of a server, by storage.
struct Answers {
    at: Instant,
    storages: Map<String, Value>,
}

/// Prints how a server is.
pub(crate) fn run(options: &StatusOptions) -> Result<ExitCode> {
    let (address, pause) = match (&options.address, &options.watch) {
        (Some(_), Some(AfterWatch::Address(address))) => bail!("{address}: one server is enough"),
        (None, Some(AfterWatch::Address(address))) => (Some(address.clone()), Some(PAUSE)),
        (address, Some(AfterWatch::Pause(pause))) => (address.clone(), Some(*pause)),
        (address, None) => (address.clone(), None),
    };
    let server = options.reach.destination(address)?;
    let Some(pause) = pause else {
        print(&options.text(&server, &ask(&server, options.timeout)?, None))?;
        return Ok(ExitCode::SUCCESS);
    };
    let mut before = None;
    loop {
        let text = match ask(&server, options.timeout) {
            Ok(now) => {
                let text = options.text(&server, &now, before.as_ref());
                before = Some(now);
                text
            }
            // A server that is being restarted is no reason to stop watching.
            Err(error) if options.json => {
                before = None;
                json!({ "address": server.address.to_string(), "error": format!("{error:#}") })
                    .to_string()
                    + "\n"
            }
            Err(error) => {
                before = None;
                format!("zodium: {error:#}\n")
            }
        };
        let is_drawn = stdout().is_terminal() && !options.json;
        if !print(&format!("{}{text}", if is_drawn { CLEAR } else { "" }))? {
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::sleep(pause);
    }
}

fn ask(server: &Destination, limit: Duration) -> Result<Answers> {
    let storages = health(server.connect(limit)?, limit)?;
    if storages.is_empty() {
        return Err(server.serves_nothing());
    }
    Ok(Answers { at: Instant::now(), storages })
}

impl StatusOptions {
    fn text(&self, server: &Destination, now: &Answers, before: Option<&Answers>) -> String {
        let address = server.address.to_string();
        match self.json {
            true => json!({ "address": address, "storages": now.storages }).to_string() + "\n",
            false => table(&address, now, before),
        }
    }
}

fn table(address: &str, now: &Answers, before: Option<&Answers>) -> String {
    let started = now.storages.values().find_map(|status| status["start"].as_str());
    // In UTC, or in the local time of a stock server.
    let mut text = format!("{address}, started {}\n", started.unwrap_or("at an unknown time"));
    let mut rows = vec![HEADINGS.map(str::to_owned)];
    for (name, status) in &now.storages {
        let old = before.and_then(|before| Some((before.storages.get(name)?, before.at)));
        rows.push(row(name, status, old.map(|(old, at)| (old, now.at - at))));
    }
    let mut widths = BTreeMap::new();
    for (column, cell) in rows.iter().flat_map(|row| row.iter().enumerate()) {
        let width = widths.entry(column).or_insert(0);
        *width = cell.chars().count().max(*width);
    }
    for row in &rows {
        let cells = row.iter().enumerate().map(|(column, cell)| {
            let width = widths.get(&column).copied().unwrap_or(0);
            // Names stand at the left, numbers at the right.
            if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        // Writing to a string does not fail.
        let _ = writeln!(text, "{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    text
}

const HEADINGS: [&str; 11] = [
    "STORAGE",
    "CLIENTS",
    "COMMITS",
    "/s",
    "LOADS",
    "/s",
    "CONFLICTS",
    "OPEN",
    "WAITING",
    "LOCKS HELD",
    "LAST TRANSACTION",
];

fn row(name: &str, status: &Value, before: Option<(&Value, Duration)>) -> [String; 11] {
    let number = |key: &str| status[key].as_u64();
    let shown = |key: &str| number(key).map_or("-".to_owned(), |number| number.to_string());
    let rate = |key: &str| {
        // A server that was started again counts from 0, and may have come further already.
        let (old, time) = before.filter(|(old, _)| old["start"] == status["start"])?;
        let grown = number(key)?.checked_sub(old[key].as_u64()?)?;
        Some(format!("{:.0}", grown as f64 / time.as_secs_f64()))
    };
    let rate = |key: &str| rate(key).unwrap_or_else(|| "-".to_owned());
    // The name cannot be drawn as more than text.
    let name = name.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    [
        name,
        shown("connections"),
        shown("commits"),
        rate("commits"),
        shown("loads"),
        rate("loads"),
        shown("conflicts"),
        shown("active_txns"),
        shown("waiting"),
        locks_held(status, unix_seconds(SystemTime::now())),
        last_transaction(status),
    ]
}

/// How long the oldest locks have been held, by this machine's clock.
fn locks_held(status: &Value, now: f64) -> String {
    match status["lock_time"].as_f64() {
        Some(since) => format!("{:.0} s", (now - since).max(0.0)),
        None => "no".to_owned(),
    }
}

fn last_transaction(status: &Value) -> String {
    let text = status["last-transaction"].as_str().unwrap_or_default();
    match u64::from_str_radix(text, 16) {
        Ok(0) | Err(_) => "-".to_owned(),
        Ok(tid) => time_of(Tid(tid)).chars().take(19).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(commits: u64, at: Instant) -> Answers {
        let status = json!({
            "connections": 3, "commits": commits, "loads": 7, "active_txns": 1, "waiting": 0,
            "conflicts": 2, "lock_time": null, "start": "Mon Nov 23 10:00:00 2026",
            "last-transaction": "040d34dfad420944",
        });
        Answers { at, storages: Map::from_iter([("ma\u{1b}in".to_owned(), status)]) }
    }

    #[test]
    fn the_age_of_locks_is_shown() {
        for (since, shown) in [(json!(null), "no"), (json!(1000.4), "65 s"), (json!(2000), "0 s")] {
            assert_eq!(locks_held(&json!({ "lock_time": since }), 1065.0), shown);
        }
    }

    #[test]
    fn rates_need_two_answers() {
        let start = Instant::now();
        let (first, second) = (answers(10, start), answers(30, start + Duration::from_secs(2)));
        let alone = table("db:8100", &first, None);
        assert!(alone.contains("db:8100, started Mon Nov 23 10:00:00 2026\n"), "{alone}");
        let line = alone.lines().last().unwrap_or_default();
        let cells: Vec<_> = line.split_whitespace().collect();
        assert_eq!(cells[..5], ["ma?in", "3", "10", "-", "7"]);
        assert_eq!(cells[9..], ["no", "2026-11-23", "10:07:40"]);
        let both = table("db:8100", &second, Some(&first));
        let line = both.lines().last().unwrap_or_default();
        assert_eq!(line.split_whitespace().nth(3), Some("10"));
        // A server that was started again counts from 0.
        for commits in [0, 90] {
            let mut again = answers(commits, start + Duration::from_secs(4));
            again.storages["ma\u{1b}in"]["start"] = json!("Mon Nov 23 10:00:04 2026");
            let again = table("db:8100", &again, Some(&second));
            let line = again.lines().last().unwrap_or_default();
            assert_eq!(line.split_whitespace().nth(3), Some("-"));
        }
    }
}
