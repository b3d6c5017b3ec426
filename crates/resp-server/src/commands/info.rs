//! `INFO`: facts about the server, for people and health checks.

use std::fmt::Write;
use std::sync::atomic::Ordering;

use zodium_keyspace::{DATABASES, now};

use crate::call::{Call, is};
use crate::commands;
use crate::fail::Outcome;
use crate::server::Server;
use crate::statistics::CommandTotals;

/// The version of Valkey whose commands these are.
pub(crate) const VERSION: &str = "8.0.1";
/// The version of Redis that old clients compare.
pub(crate) const REDIS_VERSION: &str = "7.2.4";
const NAME: &str = "valkey";

/// A section of the answer.
type Section = (&'static str, fn(&Call, &mut String) -> std::fmt::Result);

const SECTIONS: [Section; 10] = [
    ("Server", server),
    ("Clients", clients),
    ("Memory", memory),
    ("Persistence", persistence),
    ("Stats", stats),
    ("Replication", replication),
    ("CPU", cpu),
    ("Commandstats", commandstats),
    ("Cluster", cluster),
    ("Keyspace", keyspace),
];

pub(super) fn info(call: &mut Call) -> Outcome {
    let wanted: Vec<&[u8]> = call.arguments.from(1).iter().collect();
    let is_all = |word: &&[u8]| ["all", "default", "everything"].iter().any(|all| is(word, all));
    let all = wanted.is_empty() || wanted.iter().any(is_all);
    let is_more = |word: &&[u8]| ["all", "everything"].iter().any(|all| is(word, all));
    let more = wanted.iter().any(is_more);
    let mut text = String::new();
    for (name, write) in SECTIONS {
        let is_meant = if name == "Commandstats" { more } else { all };
        if is_meant || wanted.iter().any(|word| is(word, name)) {
            if !text.is_empty() {
                text.push_str("\r\n");
            }
            let mut section = String::new();
            // Writing to a text cannot fail.
            let _ = write(call, &mut section);
            text.push_str(&format!("# {name}\r\n{}", section.replace('\n', "\r\n")));
        }
    }
    call.reply.verbatim(&text);
    Ok(())
}

/// Whether the server names itself as Redis, for libraries that know no other name.
fn is_as_redis(server: &Server) -> bool {
    server.settings.text("extended-redis-compatibility") == "yes"
}

/// The name and the version that `HELLO` answers.
pub(super) fn presented(server: &Server) -> (&'static str, &'static str) {
    if is_as_redis(server) { ("redis", REDIS_VERSION) } else { (NAME, VERSION) }
}

fn server(call: &Call, out: &mut String) -> std::fmt::Result {
    let seconds = now().saturating_sub(call.server.statistics.started_at) / 1000;
    writeln!(out, "redis_version:{REDIS_VERSION}\nredis_git_sha1:00000000\nserver_name:{NAME}")?;
    writeln!(out, "valkey_version:{VERSION}\nzodium_version:{}", env!("CARGO_PKG_VERSION"))?;
    let mode = if is_as_redis(call.server) { "redis_mode" } else { "server_mode" };
    writeln!(out, "{mode}:standalone")?;
    writeln!(out, "os:{}\narch_bits:{}", std::env::consts::OS, usize::BITS)?;
    writeln!(out, "process_id:{}\nrun_id:{}", std::process::id(), call.server.statistics.run_id)?;
    writeln!(out, "tcp_port:{}\nuptime_in_seconds:{seconds}", call.server.settings.port)?;
    writeln!(out, "uptime_in_days:{}\nhz:10", seconds / 86_400)
}

fn clients(call: &Call, out: &mut String) -> std::fmt::Result {
    let pause = &call.server.pause;
    let (connected, blocked) = (call.server.connections(), call.server.waiting.count());
    let blocked = blocked + pause.clients();
    let tracking = call.server.tracking.totals().clients;
    writeln!(out, "connected_clients:{connected}\nblocked_clients:{blocked}")?;
    writeln!(out, "tracking_clients:{tracking}")?;
    let reason = if pause.until().is_some() { "client_pause" } else { "none" };
    let left = pause.until().map_or(0, |until| until.saturating_sub(now()));
    writeln!(out, "paused_reason:{reason}\npaused_actions:{}", pause.actions())?;
    writeln!(out, "paused_timeout_milliseconds:{left}")
}

fn memory(call: &Call, out: &mut String) -> std::fmt::Result {
    let (bytes, resident) = (call.server.keyspace.used_bytes(), resident_bytes());
    // What `maxmemory` limits; and what the process has of the machine.
    writeln!(out, "used_memory:{bytes}\nused_memory_human:{}", human(bytes))?;
    writeln!(out, "used_memory_rss:{resident}\nused_memory_rss_human:{}", human(resident))?;
    if let Some(total) = machine_bytes() {
        let human = human(total);
        writeln!(out, "total_system_memory:{total}\ntotal_system_memory_human:{human}")?;
    }
    writeln!(out, "used_memory_dataset:{bytes}\nmem_not_counted_for_evict:0")?;
    // What other threads free is not counted.
    writeln!(out, "lazyfree_pending_objects:0")?;
    writeln!(out, "number_of_cached_scripts:{}", call.server.scripts.count())?;
    let settings = &call.server.settings;
    let most = settings.memory_max.load(Ordering::Relaxed);
    writeln!(out, "maxmemory:{most}\nmaxmemory_human:{}", human(most))?;
    writeln!(out, "maxmemory_policy:{}", settings.text("maxmemory-policy"))
}

/// Bytes in the largest unit of which there is one.
fn human(bytes: u64) -> String {
    let units = [(1 << 50, 'P'), (1 << 40, 'T'), (1 << 30, 'G'), (1 << 20, 'M'), (1 << 10, 'K')];
    match units.into_iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => format!("{:.2}{name}", bytes as f64 / unit as f64),
        None => format!("{bytes}B"),
    }
}

/// Memory of the machine; `None` where the system does not tell.
fn machine_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Resident memory of the process; 0 where the system does not tell.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}

fn persistence(call: &Call, out: &mut String) -> std::fmt::Result {
    let changes = call.server.statistics.changes.load(Ordering::Relaxed) + call.hold.changes;
    writeln!(out, "loading:0\nasync_loading:0\nrdb_changes_since_last_save:{changes}")?;
    let Some(keeper) = call.server.log.keeper() else {
        return writeln!(out, "rdb_bgsave_in_progress:0\naof_enabled:0\naof_rewrite_in_progress:0");
    };
    // To save is to compact the log.
    let is_compacting = u8::from(keeper.is_compacting());
    let last = if keeper.is_compacted() { "ok" } else { "err" };
    let write = if keeper.log.failure().is_none() { "ok" } else { "err" };
    let (length, base) = keeper.log.lengths();
    let saved_at = keeper.compacted_at();
    writeln!(out, "rdb_bgsave_in_progress:{is_compacting}\nrdb_last_save_time:{saved_at}")?;
    writeln!(out, "rdb_last_bgsave_status:{last}\naof_enabled:1")?;
    writeln!(out, "aof_rewrite_in_progress:{is_compacting}\naof_rewrite_scheduled:0")?;
    writeln!(out, "aof_last_bgrewrite_status:{last}\naof_last_write_status:{write}")?;
    writeln!(out, "aof_current_size:{length}\naof_base_size:{base}")
}

fn stats(call: &Call, out: &mut String) -> std::fmt::Result {
    let statistics = &call.server.statistics;
    let connections = statistics.connections.load(Ordering::Relaxed);
    let (commands, (hits, misses)) = (statistics.commands(), statistics.found());
    let (channels, patterns) = call.server.publishing.counts();
    writeln!(out, "total_connections_received:{connections}")?;
    writeln!(out, "total_commands_processed:{commands}")?;
    writeln!(out, "expired_keys:{}", statistics.expired.load(Ordering::Relaxed))?;
    writeln!(out, "evicted_keys:{}", statistics.evicted.load(Ordering::Relaxed))?;
    writeln!(out, "keyspace_hits:{hits}\nkeyspace_misses:{misses}")?;
    writeln!(out, "pubsub_channels:{channels}")?;
    writeln!(out, "pubsub_patterns:{patterns}")?;
    let tracking = call.server.tracking.totals();
    writeln!(out, "tracking_total_keys:{}", tracking.keys)?;
    writeln!(out, "tracking_total_items:{}", tracking.items)?;
    writeln!(out, "tracking_total_prefixes:{}", tracking.prefixes)
}

fn replication(_: &Call, out: &mut String) -> std::fmt::Result {
    writeln!(out, "role:master\nconnected_slaves:0\nmaster_repl_offset:0")
}

fn cluster(_: &Call, out: &mut String) -> std::fmt::Result {
    writeln!(out, "cluster_enabled:0")
}

fn cpu(_: &Call, out: &mut String) -> std::fmt::Result {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Behind the name in brackets: the 12th and 13th field, in hundredths of a second.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let ticks = |place: usize| -> f64 {
        fields.split_whitespace().nth(place).and_then(|text| text.parse().ok()).unwrap_or(0.0)
    };
    let (user, system) = (ticks(11) / 100.0, ticks(12) / 100.0);
    writeln!(out, "used_cpu_sys:{system:.6}\nused_cpu_user:{user:.6}")
}

fn commandstats(call: &Call, out: &mut String) -> std::fmt::Result {
    for (number, name) in commands::numbered_names().enumerate() {
        let CommandTotals { calls, rejected, failed, micros_each } =
            call.server.statistics.of_command(number);
        if calls + rejected > 0 {
            let micros = (calls as f64 * micros_each).round();
            write!(out, "cmdstat_{name}:calls={calls},usec={micros},")?;
            write!(out, "usec_per_call={micros_each:.2},rejected_calls={rejected},")?;
            writeln!(out, "failed_calls={failed}")?;
        }
    }
    Ok(())
}

fn keyspace(call: &Call, out: &mut String) -> std::fmt::Result {
    for database in 0..DATABASES {
        let totals = call.hold.totals(database);
        if totals.keys > 0 {
            let (keys, expires) = (totals.keys, totals.volatile);
            writeln!(out, "db{database}:keys={keys},expires={expires},avg_ttl=0")?;
        }
    }
    Ok(())
}
