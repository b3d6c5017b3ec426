//! Settings that clients read and change with `CONFIG`.
//!
//! Those without an effect here have one value only, or are of encodings: they change what
//! `OBJECT ENCODING` calls a value, and how many elements a command takes at once.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use zodium_keyspace::{Eviction, First, Uses};

use crate::eviction_policy::eviction;
use crate::{Options, events};

/// The settings of a server.
pub(crate) struct Settings {
    /// The TCP port that clients reach the server at, for `INFO`.
    pub(crate) port: u16,
    /// Whether clients may end the process, with `SHUTDOWN`.
    pub(crate) may_shut_down: bool,
    /// One text for each of [`SETTINGS`].
    texts: Mutex<Vec<String>>,
    bulk_bytes_max: AtomicUsize,
    request_bytes_max: AtomicUsize,
    node_bytes_max: AtomicUsize,
    node_entries_max: AtomicUsize,
    /// Most bytes of keys and values; 0 without a limit.
    pub(crate) memory_max: AtomicU64,
    /// What `maxmemory-policy` says. Locked while settings are applied.
    eviction: Mutex<Option<Eviction>>,
    /// Keys that one is chosen from to be removed.
    pub(crate) samples: AtomicUsize,
    /// Seconds after which idle clients are disconnected; 0 for never.
    pub(crate) idle_seconds_max: AtomicU64,
}

/// A setting.
struct Setting {
    name: &'static str,
    /// An older name.
    alias: &'static str,
    default: &'static str,
    kind: Kind,
}

enum Kind {
    /// It has this value, and can be set to it.
    Fixed,
    /// It is told when the server starts.
    Immutable,
    Integer(i64, i64),
    /// Bytes, from the least to the most.
    Memory(u64, u64),
    Choice(&'static [&'static str]),
    Text,
    Events,
}

const fn setting(name: &'static str, default: &'static str, kind: Kind) -> Setting {
    Setting { name, alias: "", default, kind }
}

const fn renamed(
    name: &'static str,
    alias: &'static str,
    default: &'static str,
    kind: Kind,
) -> Setting {
    Setting { name, alias, default, kind }
}

const SIZE: Kind = Kind::Integer(0, i64::MAX);
const BYTES: Kind = Kind::Memory(0, u64::MAX);
/// With less, clients could not even change the setting again; with more, one command could take
/// all of the machine's memory.
const REQUEST_BYTES: Kind = Kind::Memory(1 << 20, 4 << 30);
const INTEGER: Kind = Kind::Integer(i32::MIN as i64, i32::MAX as i64);
const YES_NO: Kind = Kind::Choice(&["yes", "no"]);

/// The values of `maxmemory-policy`.
const POLICIES: [&str; 8] = [
    "volatile-lru",
    "volatile-lfu",
    "volatile-random",
    "volatile-ttl",
    "allkeys-lru",
    "allkeys-lfu",
    "allkeys-random",
    "noeviction",
];

static SETTINGS: [Setting; 44] = [
    setting("save", "", Kind::Fixed),
    setting("appendonly", "no", Kind::Fixed),
    setting("appendfsync", "everysec", Kind::Choice(&["everysec", "always", "no"])),
    setting("appendfilename", "", Kind::Immutable),
    setting("dir", "", Kind::Immutable),
    setting("auto-aof-rewrite-percentage", "100", Kind::Integer(0, i32::MAX as i64)),
    setting("auto-aof-rewrite-min-size", "67108864", BYTES),
    setting("maxmemory", "0", BYTES),
    setting("maxmemory-policy", "noeviction", Kind::Choice(&POLICIES)),
    setting("databases", "16", Kind::Immutable),
    setting("timeout", "0", Kind::Integer(0, i32::MAX as i64)),
    setting("requirepass", "", Kind::Text),
    setting("notify-keyspace-events", "", Kind::Events),
    setting("proto-max-bulk-len", "536870912", REQUEST_BYTES),
    setting("client-query-buffer-limit", "1073741824", REQUEST_BYTES),
    setting("lazyfree-lazy-eviction", "yes", YES_NO),
    setting("lazyfree-lazy-expire", "yes", YES_NO),
    setting("lazyfree-lazy-server-del", "yes", YES_NO),
    setting("lazyfree-lazy-user-del", "yes", YES_NO),
    setting("lazyfree-lazy-user-flush", "yes", YES_NO),
    renamed("hash-max-listpack-entries", "hash-max-ziplist-entries", "512", SIZE),
    renamed("hash-max-listpack-value", "hash-max-ziplist-value", "64", SIZE),
    renamed("list-max-listpack-size", "list-max-ziplist-size", "-2", INTEGER),
    setting("list-compress-depth", "0", Kind::Integer(0, 1 << 30)),
    setting("set-max-intset-entries", "512", SIZE),
    setting("set-max-listpack-entries", "128", SIZE),
    setting("set-max-listpack-value", "64", SIZE),
    renamed("zset-max-listpack-entries", "zset-max-ziplist-entries", "128", SIZE),
    renamed("zset-max-listpack-value", "zset-max-ziplist-value", "64", SIZE),
    setting("hll-sparse-max-bytes", "3000", SIZE),
    setting("stream-node-max-bytes", "4096", SIZE),
    setting("stream-node-max-entries", "100", SIZE),
    renamed("busy-reply-threshold", "lua-time-limit", "5000", SIZE),
    setting("activerehashing", "yes", YES_NO),
    setting("extended-redis-compatibility", "no", YES_NO),
    setting("latency-tracking", "yes", YES_NO),
    setting("latency-monitor-threshold", "0", Kind::Integer(0, i64::MAX)),
    setting("slowlog-log-slower-than", "10000", Kind::Integer(-1, i64::MAX)),
    setting("slowlog-max-len", "128", SIZE),
    setting("loglevel", "notice", Kind::Choice(&["debug", "verbose", "notice", "warning"])),
    setting("tracking-table-max-keys", "1000000", SIZE),
    setting("maxmemory-samples", "5", Kind::Integer(1, 64)),
    setting("lfu-log-factor", "10", Kind::Integer(0, i32::MAX as i64)),
    setting("lfu-decay-time", "1", Kind::Integer(0, i32::MAX as i64)),
];

impl Settings {
    /// The settings that a server begins with.
    pub(crate) fn new(options: Options) -> Settings {
        let texts = SETTINGS.iter().map(|setting| setting.default.to_owned()).collect();
        let settings = Settings {
            port: options.port,
            may_shut_down: options.may_shut_down,
            texts: Mutex::new(texts),
            bulk_bytes_max: AtomicUsize::default(),
            request_bytes_max: AtomicUsize::default(),
            node_bytes_max: AtomicUsize::default(),
            node_entries_max: AtomicUsize::default(),
            memory_max: AtomicU64::default(),
            eviction: Mutex::default(),
            samples: AtomicUsize::default(),
            idle_seconds_max: AtomicU64::default(),
        };
        let mut policy = settings.eviction.lock();
        SETTINGS.iter().for_each(|setting| {
            settings.apply(setting.name, setting.default, &mut policy);
        });
        drop(policy);
        settings.put("requirepass", options.password.unwrap_or_default());
        settings
    }
}

/// Why a setting was not changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// There is none of this name.
    Unknown,
    /// A command names it twice.
    Twice,
    /// The reason.
    Because(String),
}

impl Settings {
    /// Names and values of the settings whose names fit.
    pub(crate) fn fitting(&self, fits: impl Fn(&str) -> bool) -> Vec<(&'static str, String)> {
        let texts = self.texts.lock();
        let named = SETTINGS.iter().zip(texts.iter()).flat_map(|(setting, text)| {
            [setting.name, setting.alias].map(|name| (name, text.clone()))
        });
        named.filter(|(name, _)| !name.is_empty() && fits(name)).collect()
    }

    /// The value of a setting as a number; 0 if there is none.
    pub(crate) fn number(&self, name: &str) -> i64 {
        place_of(name).map_or(0, |place| self.texts.lock()[place].parse().unwrap_or(0))
    }

    /// The value of a setting; empty if there is none.
    pub(crate) fn text(&self, name: &str) -> String {
        place_of(name).map(|place| self.texts.lock()[place].clone()).unwrap_or_default()
    }

    /// Which keys are removed when memory is full; `None` for none.
    pub(crate) fn eviction(&self) -> Option<Eviction> {
        *self.eviction.lock()
    }

    /// The value of `maxmemory`, and the policy that was set with it.
    pub(crate) fn memory_limit(&self) -> (u64, Option<Eviction>) {
        let policy = self.eviction.lock();
        (self.memory_max.load(Ordering::Relaxed), *policy)
    }

    /// What keys keep of their uses, for the policy to look at.
    pub(crate) fn uses(&self) -> Uses {
        let number = |name| u32::try_from(self.number(name)).unwrap_or(0);
        match self.eviction().is_some_and(|policy| policy.first == First::LeastFrequent) {
            false => Uses::Times,
            true => Uses::Frequencies {
                log_factor: number("lfu-log-factor"),
                decay_minutes: number("lfu-decay-time"),
            },
        }
    }

    /// Longest argument, in bytes.
    pub(crate) fn bulk_bytes_max(&self) -> usize {
        self.bulk_bytes_max.load(Ordering::Relaxed)
    }

    /// Lifts the limit of arguments, or puts it back. What the log has was within the limit once,
    /// and must not be refused when it is read.
    pub(crate) fn lift_bulk_limit(&self, is_lifted: bool) {
        match is_lifted {
            true => self.bulk_bytes_max.store(usize::MAX, Ordering::Relaxed),
            false => {
                let text = self.text("proto-max-bulk-len");
                self.apply("proto-max-bulk-len", &text, &mut self.eviction.lock());
            }
        }
    }

    /// Most bytes of a request that is not whole.
    pub(crate) fn request_bytes_max(&self) -> usize {
        self.request_bytes_max.load(Ordering::Relaxed)
    }

    /// Bytes that go at once when a stream is cut approximately; 0 without a limit.
    pub(crate) fn node_bytes_max(&self) -> usize {
        self.node_bytes_max.load(Ordering::Relaxed)
    }

    /// Entries that go at once when a stream is cut approximately; 0 without a limit.
    pub(crate) fn node_entries_max(&self) -> usize {
        self.node_entries_max.load(Ordering::Relaxed)
    }

    /// Whether clients need no password.
    pub(crate) fn is_open(&self) -> bool {
        self.password().is_empty()
    }

    pub(crate) fn password(&self) -> String {
        self.text("requirepass")
    }

    /// Has clients give another password from now on; whether it is another one.
    pub(crate) fn set_password(&self, password: String) -> bool {
        let is_new = self.password() != password;
        self.put("requirepass", password);
        is_new
    }

    fn put(&self, name: &str, text: String) {
        if let Some(place) = place_of(name) {
            self.texts.lock()[place] = text;
        }
    }

    /// Has the values follow that are read often.
    fn apply(&self, name: &str, text: &str, policy: &mut Option<Eviction>) {
        let size = |place: &AtomicUsize| {
            place.store(text.parse().unwrap_or(usize::MAX), Ordering::Relaxed);
        };
        let number = |place: &AtomicU64| place.store(text.parse().unwrap_or(0), Ordering::Relaxed);
        match name {
            "proto-max-bulk-len" => size(&self.bulk_bytes_max),
            "client-query-buffer-limit" => size(&self.request_bytes_max),
            "stream-node-max-bytes" => size(&self.node_bytes_max),
            "stream-node-max-entries" => size(&self.node_entries_max),
            "maxmemory" => number(&self.memory_max),
            "maxmemory-policy" => *policy = eviction(text),
            "maxmemory-samples" => size(&self.samples),
            "timeout" => number(&self.idle_seconds_max),
            _ => {}
        }
    }

    /// Notes the file that keys are kept in, and when it is synced.
    pub(crate) fn keep(&self, path: &Path, sync: &str) {
        let part = |part: Option<&OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
        let folder = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
        self.put("appendonly", "yes".to_owned());
        self.put("appendfsync", sync.to_owned());
        self.put("appendfilename", part(path.file_name()));
        self.put("dir", part(folder.parent().map(Path::as_os_str)));
    }

    /// Changes a setting.
    pub(crate) fn set(&self, name: &str, text: &str) -> Result<(), Refusal> {
        self.set_all(&[(name, text)]).map_err(|(_, refusal)| refusal)
    }

    /// Changes settings: all, or none if one is refused, which is told by its number. Other workers
    /// do not see a value that is refused, nor a limit of memory without the policy beside it: they
    /// would remove keys.
    pub(crate) fn set_all(&self, wishes: &[(&str, &str)]) -> Result<(), (usize, Refusal)> {
        let mut changes: Vec<(usize, String)> = Vec::with_capacity(wishes.len());
        let mut texts = self.texts.lock();
        for (number, (name, text)) in wishes.iter().enumerate() {
            let place = place_of_any_case(name).ok_or((number, Refusal::Unknown))?;
            if changes.iter().any(|(other, _)| *other == place) {
                return Err((number, Refusal::Twice));
            }
            let text = SETTINGS[place].normal(text, &texts[place]);
            changes.push((place, text.map_err(|why| (number, Refusal::Because(why)))?));
        }
        let mut policy = self.eviction.lock();
        for (place, text) in changes {
            self.apply(SETTINGS[place].name, &text, &mut policy);
            texts[place] = text;
        }
        Ok(())
    }
}

/// The place of a setting in [`SETTINGS`].
fn place_of(name: &str) -> Option<usize> {
    SETTINGS.iter().position(|setting| setting.name == name)
}

/// The place of a setting that a client names, perhaps by its older name.
fn place_of_any_case(name: &str) -> Option<usize> {
    let is_it = |setting: &Setting| {
        setting.name.eq_ignore_ascii_case(name) || setting.alias.eq_ignore_ascii_case(name)
    };
    SETTINGS.iter().position(is_it).filter(|_| !name.is_empty())
}

impl Setting {
    /// A value as it is kept, or why it is none. `now` is the value that it has.
    fn normal(&self, text: &str, now: &str) -> Result<String, String> {
        match self.kind {
            Kind::Fixed if text == now => Ok(text.to_owned()),
            Kind::Fixed => Err(format!("this server has no other value than '{now}'")),
            Kind::Immutable => Err("can't set immutable config".to_owned()),
            Kind::Integer(least, most) => {
                let number: i64 =
                    text.parse().map_err(|_| "argument couldn't be parsed into an integer")?;
                match (least..=most).contains(&number) {
                    true => Ok(number.to_string()),
                    false => Err(format!("argument must be between {least} and {most} inclusive")),
                }
            }
            Kind::Memory(least, most) => {
                let bytes = memory(text).ok_or("argument must be a memory value")?;
                match (least..=most).contains(&bytes) {
                    true => Ok(bytes.to_string()),
                    false => Err(format!("argument must be between {least} and {most} inclusive")),
                }
            }
            Kind::Choice(choices) => {
                let found = choices.iter().find(|choice| choice.eq_ignore_ascii_case(text));
                let all = || choices.join(", ");
                match (found, choices) {
                    (Some(choice), _) => Ok((*choice).to_owned()),
                    (None, ["yes", "no"]) => Err("argument must be 'yes' or 'no'".to_owned()),
                    (None, _) => {
                        Err(format!("argument(s) must be one of the following: {}", all()))
                    }
                }
            }
            Kind::Text => Ok(text.to_owned()),
            Kind::Events => {
                let bits = events::parse(text)
                    .ok_or("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.")?;
                Ok(events::written(bits))
            }
        }
    }
}

/// A size with a unit, such as `1gb` or `100k`.
fn memory(text: &str) -> Option<u64> {
    let digits = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" => 1_000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    /// Changes settings on another thread while `look` is called.
    fn beside(change: impl Fn(&Settings) + Sync, look: impl Fn(&Settings)) {
        let (settings, is_over) = (Settings::new(Options::default()), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                (0..20_000).for_each(|_| change(&settings));
                is_over.store(true, Ordering::Relaxed);
            });
            while !is_over.load(Ordering::Relaxed) {
                look(&settings);
            }
        });
    }

    #[test]
    fn a_value_that_is_refused_is_never_in_force() {
        let refused = |settings: &Settings| {
            let outcome = settings.set_all(&[("maxmemory", "1"), ("nope", "x")]);
            assert_eq!(outcome, Err((1, Refusal::Unknown)));
        };
        beside(refused, |settings| assert_eq!(settings.memory_max.load(Ordering::Relaxed), 0));
    }

    #[test]
    fn a_limit_of_memory_comes_with_the_policy_that_is_set_beside_it() {
        let change = |settings: &Settings| {
            for (most, policy) in [("1", "noeviction"), ("0", "allkeys-lru")] {
                settings.set_all(&[("maxmemory-policy", policy), ("maxmemory", most)]).unwrap();
                settings.set_all(&[("maxmemory", most), ("maxmemory-policy", policy)]).unwrap();
            }
        };
        beside(change, |settings| {
            let (most, policy) = settings.memory_limit();
            assert!(most == 0 || policy.is_none(), "{most} {policy:?}");
        });
    }
}
