//! What clients send: requests chosen by chance, of few keys, so that clients meet.

use super::plan::{Plan, Subject};
use super::storage::NAME;
use crate::random::Chance;

/// A command and its arguments.
pub(super) type Request = Vec<Vec<u8>>;

/// A script that pops an element of the key that is its first word, if there is one. Which of its
/// words are named as keys makes no difference.
pub(super) const SCRIPT_OF_POP: &[u8] = b"return redis.pcall('BLPOP', KEYS[1] or ARGV[1], 0)";
/// A script that changes two keys, its first words.
const SCRIPT_OF_PUSHES: &str = "local words = {unpack(KEYS)} \
    for _, word in ipairs(ARGV) do table.insert(words, word) end \
    local one, other, value = unpack(words) redis.pcall('RPUSH', one, value, '2') \
    redis.pcall('DEL', other, 'none') redis.pcall('RPUSH', other, value) return 7";

const KEYS: u64 = 5;
const CHANNELS: u64 = 2;
/// Number of objects that keys are tied to.
pub(super) const OIDS: u64 = 4;
/// Most requests that are sent at once.
const REQUESTS: u64 = 6;

/// What a connection is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Plain {
        is_resp3: bool,
    },
    /// It has a cache, and is told of changes.
    Cache {
        is_broadcast: bool,
        skips_own: bool,
    },
    /// It gets messages, and sends nothing else.
    Listener,
    /// It gets messages between its answers.
    Both,
}

/// What a client chooses its requests by.
pub(super) struct Choice<'a> {
    pub(super) chance: &'a Chance,
    pub(super) plan: &'a Plan,
    pub(super) role: Role,
    /// The ids of all clients.
    pub(super) ids: &'a [u64],
    /// A transaction that it knows of.
    pub(super) tid: u64,
    /// Numbers of this and no other request.
    pub(super) number: u64,
}

impl Role {
    pub(super) fn choose(chance: &Chance, plan: &Plan) -> Role {
        let is_cache = plan.subject == Subject::Caches && chance.permille(400);
        match chance.number(0..=9) {
            _ if is_cache => {
                Role::Cache { is_broadcast: chance.permille(300), skips_own: chance.permille(300) }
            }
            0 => Role::Listener,
            1..=2 => Role::Both,
            _ => Role::Plain { is_resp3: chance.permille(400) },
        }
    }

    /// What a connection begins with.
    pub(super) fn greeting(self) -> Vec<Request> {
        let hello = words(&["HELLO", "3"]);
        match self {
            Role::Plain { is_resp3: false } => vec![words(&["CLIENT", "ID"])],
            Role::Plain { .. } => vec![hello],
            Role::Listener => vec![words(&["SUBSCRIBE", "channel1"])],
            Role::Both => vec![hello, words(&["PSUBSCRIBE", "__key*"])],
            Role::Cache { is_broadcast, skips_own } => {
                let mut track = words(&["CLIENT", "TRACKING", "ON"]);
                track.extend(is_broadcast.then(|| b"BCAST".to_vec()));
                track.extend(skips_own.then(|| b"NOLOOP".to_vec()));
                vec![hello, track]
            }
        }
    }
}

impl Choice<'_> {
    /// Chooses what a client sends at once. `is_queueing` is whether it is within a transaction,
    /// before and after.
    pub(super) fn pipeline(&self, is_queueing: &mut bool) -> Vec<Request> {
        let count = self.chance.number(1..=REQUESTS);
        (0..count).map(|place| self.request(is_queueing, place)).collect()
    }

    fn request(&self, is_queueing: &mut bool, place: u64) -> Request {
        let chance = self.chance;
        let speaks = self.role == Role::Listener || self.role == Role::Both && chance.permille(200);
        if speaks && !*is_queueing {
            return self.subscription();
        }
        let ends = *is_queueing && chance.permille(300);
        let begins = !*is_queueing && chance.permille(80);
        if ends || begins {
            *is_queueing = begins;
            let name = if begins { "MULTI" } else { ["EXEC", "EXEC", "DISCARD"][chance.place(3)] };
            return words(&[name]);
        }
        if !*is_queueing && chance.permille(self.plan.interferences) {
            return self.interference();
        }
        match chance.number(0..=99) {
            0..=7 if !*is_queueing => words(&["WATCH", &self.key(), &self.key()]),
            8..=19 => self.waiting(),
            20..=22 => self.of_connection(*is_queueing),
            23..=27 => self.publication(place),
            28..=31 => self.of_databases(),
            32..=35 => self.script(),
            36..=45 if self.plan.subject == Subject::Expiry => self.expiring(),
            36..=42 if self.plan.subject == Subject::Ties => self.tie(),
            46..=58 => self.of_set_or_stream(place),
            59..=74 => self.of_list(),
            _ => self.of_string(),
        }
    }

    fn of_string(&self) -> Request {
        let (one, other, value) = (&*self.key(), &*self.key(), &*self.value());
        match self.chance.number(0..=13) {
            0..=2 => words(&["SET", one, value]),
            3..=4 => words(&["GET", one]),
            5 => words(&["MSET", one, value, other, "2"]),
            6 => words(&["MGET", one, other]),
            7 => words(&["INCR", one]),
            8 => words(&["APPEND", one, value]),
            9..=10 => words(&["DEL", one, other]),
            11 => words(&["RENAME", one, other]),
            12 => words(&["TYPE", one]),
            _ => words(&["EXISTS", one, other]),
        }
    }

    fn of_list(&self) -> Request {
        let (one, other, value) = (&*self.key(), &*self.key(), &*self.value());
        match self.chance.number(0..=9) {
            0..=3 => words(&["RPUSH", one, value]),
            4 => words(&["LPUSH", one, value, "2", "3"]),
            5 => words(&["LPOP", one]),
            6 => words(&["RPOP", one]),
            7 => words(&["LLEN", one]),
            8 => words(&["LRANGE", one, "0", "-1"]),
            _ => words(&["LMOVE", one, other, self.end(), self.end()]),
        }
    }

    fn of_set_or_stream(&self, place: u64) -> Request {
        let (key, score) = (&*self.key(), &*self.chance.number(1..=3).to_string());
        let id = &*format!("{}-0", self.number * 10 + place);
        match self.chance.number(0..=9) {
            0..=2 => words(&["ZADD", key, score, &self.value()]),
            3 => words(&["ZCARD", key]),
            4 => words(&["ZRANGE", key, "0", "-1"]),
            5 => words(&["ZPOPMIN", key]),
            6..=7 => words(&["XADD", key, id, "field", &self.value()]),
            8 => words(&["XLEN", key]),
            _ => words(&["XREAD", "STREAMS", key, "0-0"]),
        }
    }

    /// A command that waits, if there is nothing to take.
    fn waiting(&self) -> Request {
        let (one, other) = (&*self.key(), &*self.key());
        let ms = if self.chance.permille(300) { 0 } else { self.chance.number(1..=3000) };
        let time = &*format!("{}.{:03}", ms / 1000, ms % 1000);
        let from = ["0-0", "$", "$"][self.chance.place(3)];
        match self.chance.number(0..=9) {
            0..=1 => words(&["BLPOP", one, time]),
            2 => words(&["BLPOP", one, other, time]),
            3 => words(&["BRPOP", one, other, time]),
            4 => words(&["BLMOVE", one, other, self.end(), self.end(), time]),
            5 => words(&["BRPOPLPUSH", one, other, time]),
            6..=7 => words(&["BZPOPMIN", one, other, time]),
            _ if one == other => words(&["WAIT", "1", &ms.to_string()]),
            _ => words(&["XREAD", "BLOCK", &ms.to_string(), "STREAMS", one, other, from, "$"]),
        }
    }

    fn of_connection(&self, is_queueing: bool) -> Request {
        let switches = !is_queueing && self.role != Role::Both;
        match self.chance.number(0..=9) {
            0..=3 => words(&["SELECT", &self.database()]),
            4 => words(&["UNWATCH"]),
            5..=6 if switches => words(&["CLIENT", "REPLY", "SKIP"]),
            7 if switches => words(&["CLIENT", "REPLY", "OFF"]),
            8 if switches => words(&["CLIENT", "REPLY", "ON"]),
            9 if switches && self.chance.permille(200) => words(&["QUIT"]),
            _ => words(&["PING"]),
        }
    }

    fn of_databases(&self) -> Request {
        let may_swap = matches!(self.plan.subject, Subject::Commands | Subject::Caches);
        match self.chance.number(0..=9) {
            0 => words(&["FLUSHALL"]),
            1 => words(&["FLUSHDB"]),
            2..=3 if may_swap => words(&["SWAPDB", &self.database(), &self.database()]),
            _ => words(&["MOVE", &self.key(), &self.database()]),
        }
    }

    fn script(&self) -> Request {
        let pop = std::str::from_utf8(SCRIPT_OF_POP).unwrap_or_default();
        let script = if self.chance.permille(300) { pop } else { SCRIPT_OF_PUSHES };
        let named = &*self.chance.number(0..=2).to_string();
        words(&["EVAL", script, named, &self.key(), &self.key(), &self.value()])
    }

    fn expiring(&self) -> Request {
        let (key, time) = (&*self.key(), &*self.chance.number(1..=2000).to_string());
        match self.chance.number(0..=9) {
            0..=3 => words(&["SET", key, &self.value(), "PX", time]),
            4..=6 => words(&["PEXPIRE", key, time]),
            7 => words(&["PEXPIRE", key, "0"]),
            8 => words(&["PERSIST", key]),
            _ => words(&["PTTL", key]),
        }
    }

    fn tie(&self) -> Request {
        let oid = &*self.chance.number(1..=OIDS).to_string();
        let tid = &*format!("{:x}", self.tid);
        words(&["SET", &self.key(), &self.value(), "TIE", oid, "AT", tid])
    }

    fn interference(&self) -> Request {
        let id = &*self.ids[self.chance.place(self.ids.len())].to_string();
        let time = &*self.chance.number(1..=1500).to_string();
        let mode = ["WRITE", "ALL"][self.chance.place(2)];
        match self.chance.number(0..=9) {
            0..=2 => words(&["CLIENT", "KILL", "ID", id]),
            3 => words(&["CLIENT", "KILL", "ID", id, "SKIPME", "NO"]),
            4 => words(&["CLIENT", "UNBLOCK", id, "ERROR"]),
            5..=7 => words(&["CLIENT", "UNBLOCK", id]),
            8 if self.plan.has_pauses => words(&["CLIENT", "PAUSE", time, mode]),
            9 if self.plan.has_pauses => words(&["CLIENT", "UNPAUSE"]),
            _ => words(&["CLIENT", "ID"]),
        }
    }

    /// A message that no other one is like.
    fn publication(&self, place: u64) -> Request {
        let channel = format!("channel{}", self.chance.number(1..=CHANNELS));
        let message = format!("{}.{place}{}", self.number, self.value());
        words(&["PUBLISH", &channel, &message])
    }

    fn subscription(&self) -> Request {
        let channel = match self.chance.number(0..=3) {
            0 => format!("zodb:{NAME}"),
            1 => format!("__keyspace@0__:{}", self.key()),
            _ => format!("channel{}", self.chance.number(1..=CHANNELS)),
        };
        // Patterns of one client never fit the same channel: their order would not be known.
        let pattern = ["channel*", "__key*"][self.chance.place(2)];
        // Events are alike, and a client that does not get them any more would miss some of them:
        // it would not be known which ones.
        let is_event = |name: &str| name.starts_with("__");
        match self.chance.number(0..=9) {
            5 if !is_event(&channel) => words(&["UNSUBSCRIBE", &channel]),
            8 if !is_event(pattern) => words(&["PUNSUBSCRIBE", pattern]),
            6..=8 => words(&["PSUBSCRIBE", pattern]),
            9 => words(&["PING"]),
            _ => words(&["SUBSCRIBE", &channel]),
        }
    }

    fn key(&self) -> String {
        format!("key{}", self.chance.number(1..=KEYS))
    }

    fn database(&self) -> String {
        // Most clients stay where the others are.
        self.chance.number(0..=4).saturating_sub(2).to_string()
    }

    /// A number, or a text.
    fn value(&self) -> String {
        match self.chance.permille(500) {
            true => self.chance.number(0..=9).to_string(),
            false => "x".repeat(self.chance.size(self.plan.value_bytes) as usize),
        }
    }

    fn end(&self) -> &'static str {
        ["LEFT", "RIGHT"][self.chance.place(2)]
    }
}

/// The commands that read all that a client of a database may find.
pub(super) fn reads_of_all() -> Vec<Request> {
    let of_key = |number: u64| {
        let key = format!("key{number}");
        [
            words(&["GET", &key]),
            words(&["LRANGE", &key, "0", "-1"]),
            words(&["ZRANGE", &key, "0", "-1"]),
            words(&["XREAD", "STREAMS", &key, "0-0"]),
        ]
    };
    let of_database = |number: u64| {
        let select = words(&["SELECT", &number.to_string()]);
        std::iter::once(select).chain((1..=KEYS).flat_map(of_key))
    };
    (0..3).flat_map(of_database).collect()
}

/// The request as it is sent.
pub(super) fn encoded(request: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", request.len()).into_bytes();
    for word in request {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

pub(super) fn words(words: &[&str]) -> Request {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

pub(super) fn text_of(word: &[u8]) -> String {
    String::from_utf8_lossy(word).into_owned()
}

/// A number among the arguments, which is one.
pub(super) fn number_of(word: &[u8]) -> u64 {
    text_of(word).parse().unwrap_or(0)
}

/// A time in seconds, in milliseconds.
pub(super) fn seconds_of(word: &[u8]) -> u64 {
    let digits: Vec<u8> = word.iter().copied().filter(u8::is_ascii_digit).collect();
    match word.contains(&b'.') {
        true => number_of(&digits),
        false => 1000 * number_of(&digits),
    }
}

/// Whether messages answer a request.
pub(super) fn is_subscription(request: &[Vec<u8>]) -> bool {
    request[0].ends_with(b"SUBSCRIBE")
}
