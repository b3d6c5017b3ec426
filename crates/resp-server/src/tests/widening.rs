//! Scripts that come to keys which they do not name, while other clients use these.
//!
//! A script is a hold here that is widened for each command: so others execute commands between
//! two of it, on one thread and in a known order. They have happened before the script, and it has
//! happened at once. So a second server executes it as a transaction when it ends, and all clients
//! must be told the same.

use std::rc::Rc;
use std::sync::Arc;
use std::thread;

use bytes::BytesMut;
use zodium_disk::{Disk, MemoryDisk};
use zodium_keyspace::{Hold, Stripes, now, set_time};
use zodium_net::Host;
use zodium_resp::{OwnedRequest, Version};
use zodium_types::Tid;

use super::log::{OneCommit, open_with};
use super::{Peer, Running, with};
use crate::call::Call;
use crate::commands::{self, Run};
use crate::durability::compact;
use crate::reply::Reply;
use crate::waiting::serve_put_off;
use crate::{Options, RespService, Server};

/// In November 2026, in milliseconds.
const BEGIN: u64 = 1_795_000_000_000;

/// Begins a script that names a key.
fn begin<'s>(server: &'s Server, key: &str) -> Hold<'s> {
    server.lock_first(server.keyspace.stripe(key.as_bytes()), now()).ok().unwrap()
}

/// Executes a command of a script, and returns its answer.
fn call(server: &Server, hold: &mut Hold, line: &str) -> String {
    let request: OwnedRequest = line.split(' ').map(str::as_bytes).collect();
    let command = commands::find(request.arguments()).ok().unwrap();
    let Run::Data(run) = command.run else { panic!("{line}") };
    let stripes = match command.name {
        "publish" => Stripes::ALL,
        _ => command.stripes(&server.keyspace, request.arguments()),
    };
    server.widen(hold, stripes);
    let mut answer = BytesMut::new();
    let reply = Reply::to_buffer(&mut answer, Version::Two);
    let mut call = Call::new((server, None), hold, request.arguments(), reply);
    if let Err(fail) = call.execute(command, run) {
        call.reply.error(&fail.0);
    }
    String::from_utf8_lossy(&answer).replace("\r\n", " ").trim_end().to_owned()
}

/// A key with a prefix whose stripe is none of these.
fn key_elsewhere(server: &Server, prefix: &str, stripes: Stripes) -> String {
    let mut keys = (0..).map(|number: u32| format!("{prefix}{number}"));
    keys.find(|key| server.keyspace.stripe(key.as_bytes()) | stripes != stripes).unwrap()
}

#[test]
fn clients_that_come_while_a_script_runs_learn_of_what_it_does_to_further_keys() {
    let server = Arc::new(Server::new(Options { workers: 1, ..Options::default() }));
    with(Arc::clone(&server), |running| async move {
        let mine = server.keyspace.stripe(b"mine");
        let keys = ["list", "stream", "text", "all"];
        let [list, stream, text, all] = keys.map(|key| key_elsewhere(&server, key, mine));
        let mut hold = begin(&server, "mine");
        let mut peers = [(); 4].map(|()| running.connect());
        for peer in &mut peers {
            peer.ask("HELLO 3").await;
        }
        let [pops, reads, tracks, tracks_all] = &mut peers;
        assert_eq!(pops.ask(&format!("BLPOP {list} 0")).await, "");
        assert_eq!(reads.ask(&format!("XREAD BLOCK 0 STREAMS {stream} $")).await, "");
        tracks.expect(&[("CLIENT TRACKING ON", "+OK"), (&format!("GET {text}"), "_")]).await;
        tracks_all.expect(&[(&format!("CLIENT TRACKING ON BCAST PREFIX {all}"), "+OK")]).await;
        for line in [
            format!("RPUSH {list} x"),
            format!("XADD {stream} 1-1 f v"),
            format!("SET {text} new"),
            format!("SET {all} new"),
        ] {
            call(&server, &mut hold, &line);
        }
        server.settle(hold);
        assert_eq!(pops.read().await, format!("*2 ${} {list} $1 x", list.len()));
        assert!(reads.read().await.contains("$3 1-1"));
        let told = |key: &str| format!(">2 $10 invalidate *1 ${} {key}", key.len());
        assert_eq!(tracks.read().await, told(&text));
        assert_eq!(tracks_all.read().await, told(&all));
    });
}

#[test]
fn a_script_locks_all_keys_before_an_event_tells_of_a_part_of_it() {
    let server = Arc::new(Server::new(Options { workers: 1, ..Options::default() }));
    with(Arc::clone(&server), |running| async move {
        let mut peer = running.connect();
        let other = server
            .keyspace
            .stripe(key_elsewhere(&server, "other", server.keyspace.stripe(b"mine")).as_bytes());
        let is_locked = || server.keyspace.try_lock(other, now(), None).is_none();
        let mut hold = begin(&server, "mine");
        call(&server, &mut hold, "SET mine 1");
        assert!(!is_locked());
        peer.expect(&[("CONFIG SET notify-keyspace-events KEA", "+OK")]).await;
        call(&server, &mut hold, "GET mine");
        assert!(!is_locked());
        call(&server, &mut hold, "SET mine 2");
        assert!(is_locked());
    });
}

/// Otherwise no client of the worker could end the script.
#[test]
fn a_worker_does_not_wait_for_a_script_as_long_as_it_runs_to_serve_a_client_that_waits() {
    let server = Arc::new(Server::new(Options { workers: 1, ..Options::default() }));
    with(Arc::clone(&server), |running| async move {
        let (mut moves, mut pushes) = (running.connect(), running.connect());
        let mine = server.keyspace.stripe(b"mine");
        let source = key_elsewhere(&server, "source", mine);
        let taken = mine | server.keyspace.stripe(source.as_bytes());
        let target = key_elsewhere(&server, "target", taken);
        assert_eq!(moves.ask(&format!("BLMOVE {source} {target} LEFT LEFT 0")).await, "");
        pushes.expect(&[("CONFIG SET busy-reply-threshold 200", "+OK")]).await;
        let hold = begin(&server, "mine");
        server.scripts.running.begin();
        pushes.expect(&[(&format!("RPUSH {source} x"), ":1"), ("SCRIPT KILL", "+OK")]).await;
        server.scripts.running.end();
        server.settle(hold);
        serve_put_off(&server);
        assert_eq!(moves.read().await, "$1 x");
        pushes.expect(&[(&format!("LRANGE {target} 0 -1"), "*1 $1 x")]).await;
    });
}

#[test]
fn other_clients_keep_to_the_limit_of_memory_while_a_script_runs() {
    const VALUE_BYTES: u64 = 100_000;
    let server = Arc::new(Server::new(Options { workers: 1, ..Options::default() }));
    with(Arc::clone(&server), |running| async move {
        let mut peer = running.connect();
        let fill = "for i = 1, 6000 do redis.call('SET', i, i) end";
        let most = 600_000;
        peer.expect(&[
            (&format!("EVAL \"{fill}\" 0"), "$-1"),
            ("CONFIG SET maxmemory-policy allkeys-random", "+OK"),
            (&format!("CONFIG SET maxmemory {most}"), "+OK"),
        ])
        .await;
        let mine = server.keyspace.stripe(b"mine");
        let hold = begin(&server, "mine");
        server.scripts.running.begin();
        for number in 0..20 {
            let key = key_elsewhere(&server, &format!("long-{number}-"), mine);
            let set = format!("SETRANGE {key} {} x", VALUE_BYTES - 1);
            peer.expect(&[(&set, &format!(":{VALUE_BYTES}"))]).await;
            let used = server.keyspace.used_bytes();
            assert!(used <= most + 2 * VALUE_BYTES, "{used} bytes after {number}");
        }
        server.scripts.running.end();
        server.settle(hold);
    });
}

/// Numbers by chance, the same for each seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(self.0 >> 33).unwrap() % end
    }

    fn key(&mut self, kind: &str, count: usize) -> String {
        format!("{kind}{}", self.below(count))
    }
}

/// Number of the clients that wait, the first of each server; then come the others.
const WAITERS: usize = 4;
const TRACKER: usize = 4;
const TRACKER_OF_PREFIX: usize = 5;
const SUBSCRIBER: usize = 6;
const WATCHER: usize = 7;
const WRITER: usize = 8;
const SCRIPT: usize = 9;

const TEXTS: usize = 6;
const EXPIRING: usize = 6;
const LISTS: usize = 4;
const STREAMS: usize = 3;

/// The clients of a server.
async fn clients(running: &Running) -> Vec<Peer> {
    let mut peers: Vec<Peer> = (0..=SCRIPT).map(|_| running.connect()).collect();
    for (place, line) in
        [(TRACKER, "HELLO 3"), (TRACKER_OF_PREFIX, "HELLO 3"), (SUBSCRIBER, "SUBSCRIBE channel")]
    {
        peers[place].ask(line).await;
    }
    peers
}

/// The server in question, and the one that executes scripts as transactions.
struct Both {
    server: Arc<Server>,
    sides: [Vec<Peer>; 2],
    /// Whether each of the waiting clients waits.
    waits: [bool; WAITERS],
    /// When each of the keys that expire may do so, in milliseconds.
    ends: Vec<Vec<u64>>,
    chance: Chance,
    /// Each value is another one, and greater.
    number: u64,
    now: u64,
    seen: Seen,
}

/// What has come to pass.
#[derive(Debug, Default)]
struct Seen {
    served: usize,
    told: usize,
    aborted: usize,
    /// Keys whose time passed between the begin of a script and a command of it.
    passed: usize,
}

impl Both {
    /// Has one of the clients send a request to both servers, which answer the same.
    async fn ask(&mut self, place: usize, line: &str) -> String {
        let mut answers = Vec::new();
        for side in &mut self.sides {
            answers.push(side[place].ask(line).await);
        }
        assert_eq!(answers[0], answers[1], "{line}");
        answers.swap_remove(0)
    }

    fn is_held(&self, key: &str) -> bool {
        self.server
            .keyspace
            .try_lock(self.server.keyspace.stripe(key.as_bytes()), 1, None)
            .is_none()
    }

    /// Another client does something with a key that the script has not come to.
    async fn other(&mut self) {
        self.number += 1;
        let number = self.number;
        let (kind, count) =
            [("t", TEXTS), ("t", TEXTS), ("e", EXPIRING), ("l", LISTS), ("s", STREAMS)]
                [self.chance.below(5)];
        let place = self.chance.below(count);
        let key = format!("{kind}{place}");
        if self.is_held(&key) {
            return;
        }
        let what = self.chance.below(8);
        let (place, line) = match (kind, what) {
            ("t", 0) => (WRITER, format!("SET {key} {number}")),
            ("t", 1) => (WRITER, format!("DEL {key}")),
            ("t", 2 | 3) => (WATCHER, format!("WATCH {key}")),
            ("t", 4) => (TRACKER, "CLIENT TRACKING ON".to_owned()),
            ("t", 5) => (TRACKER_OF_PREFIX, format!("CLIENT TRACKING ON BCAST PREFIX {key}")),
            ("t", _) => (TRACKER, format!("GET {key}")),
            ("e", 0..5) => {
                let time = 1 + self.chance.below(12) as u64;
                self.ends[place].push(self.now + time);
                (WRITER, format!("SET {key} {number} PX {time}"))
            }
            ("e", 5) => (WRITER, format!("PERSIST {key}")),
            ("e", _) => (WRITER, format!("GET {key}")),
            ("l", 0) => (WRITER, format!("RPUSH {key} {number}")),
            ("l", 1) => (WRITER, format!("LPOP {key}")),
            ("l", _) => {
                let waiter = self.chance.below(WAITERS);
                let end = ["BLPOP", "BRPOP"][self.chance.below(2)];
                (waiter, format!("{end} {key} 0"))
            }
            (_, 0 | 1) => (WRITER, format!("XADD {key} {number}-1 f v")),
            _ => {
                let waiter = self.chance.below(WAITERS);
                (waiter, format!("XREAD BLOCK 0 STREAMS {key} $"))
            }
        };
        if place >= WAITERS || !self.waits[place] {
            let answer = self.ask(place, &line).await;
            if place < WAITERS {
                self.waits[place] = answer.is_empty();
            }
        }
        self.read_waiters().await;
    }

    /// Time passes, but not for keys that the script sees already: they stay for it.
    fn pass_time(&mut self) {
        let later = self.now + 1 + self.chance.below(8) as u64;
        for place in 0..EXPIRING {
            let passes = |end: &u64| self.now < *end && *end <= later;
            if self.ends[place].iter().any(passes) {
                if self.is_held(&format!("e{place}")) {
                    return;
                }
                self.seen.passed += 1;
            }
        }
        self.now = later;
        set_time(later * 1000);
    }

    /// A command of the script.
    fn command(&mut self) -> String {
        self.number += 1;
        let number = self.number;
        let chance = &mut self.chance;
        match chance.below(16) {
            0 | 1 => format!("SET {} {number}", chance.key("t", TEXTS)),
            2 => format!("INCR {}", chance.key("t", TEXTS)),
            3 => format!("DEL {}", chance.key("t", TEXTS)),
            4 => format!("GET {}", chance.key("e", EXPIRING)),
            5 => format!("PERSIST {}", chance.key("e", EXPIRING)),
            6 => format!("APPEND {} {number}", chance.key("e", EXPIRING)),
            7 => {
                let (text, ends) = (chance.key("t", TEXTS), chance.key("e", EXPIRING));
                format!("BITOP OR {text} {text} {ends}")
            }
            8 | 9 => format!("RPUSH {} {number}", chance.key("l", LISTS)),
            10 => format!("LPOP {}", chance.key("l", LISTS)),
            11 => format!("LMOVE {} {} LEFT RIGHT", chance.key("l", LISTS), chance.key("l", LISTS)),
            12 | 13 => format!("XADD {} {number}-1 f v", chance.key("s", STREAMS)),
            14 => format!("EXISTS {} {}", chance.key("e", EXPIRING), chance.key("t", TEXTS)),
            _ if chance.below(8) == 0 => format!("PUBLISH channel {number}"),
            _ => format!("RPUSHX {} {number}", chance.key("l", LISTS)),
        }
    }

    /// A script, with what other clients do meanwhile.
    async fn round(&mut self) {
        let server = Arc::clone(&self.server);
        let first = self.chance.key("t", TEXTS);
        let mut hold = begin(&server, &first);
        let (mut lines, mut answers, mut compaction) = (Vec::new(), Vec::new(), None);
        for _ in 0..8 + self.chance.below(32) {
            match self.chance.below(16) {
                0..3 => self.pass_time(),
                3..9 if lines.len() < 10 => {
                    let line = self.command();
                    answers.push(call(&server, &mut hold, &line));
                    lines.push(line);
                }
                9 if compaction.is_none() && self.chance.below(4) == 0 => {
                    let server = Arc::clone(&server);
                    compaction = Some(thread::spawn(move || compact(&server)));
                }
                _ => self.other().await,
            }
        }
        server.settle(hold);
        if let Some(compaction) = compaction {
            assert!(compaction.join().unwrap());
        }
        let requests = format!("MULTI\r\n{}\r\nEXEC", lines.join("\r\n"));
        if !lines.is_empty() {
            let queued = format!("+OK {}*{} ", "+QUEUED ".repeat(lines.len()), lines.len());
            let expected = format!("{queued}{}", answers.join(" "));
            assert_eq!(self.sides[1][SCRIPT].ask(&requests).await, expected, "{lines:?}");
        }
        self.read_waiters().await;
        for place in [TRACKER, TRACKER_OF_PREFIX, SUBSCRIBER] {
            let said = self.read(place).await;
            self.seen.told += usize::from(!said.is_empty());
        }
        // The next client that tracks keys is the only one again.
        for place in [TRACKER, TRACKER_OF_PREFIX] {
            self.ask(place, "CLIENT TRACKING OFF").await;
        }
        let answer = self.ask(WATCHER, "MULTI\r\nPING\r\nEXEC").await;
        self.seen.aborted += usize::from(answer.ends_with("*-1"));
        self.ask(WRITER, &all_keys()).await;
    }

    /// What has come for a client: the same from both servers.
    async fn read(&mut self, place: usize) -> String {
        let mut said = Vec::new();
        for side in &mut self.sides {
            said.push(side[place].read().await);
        }
        assert_eq!(said[0], said[1], "client {place}");
        said.swap_remove(0)
    }

    async fn read_waiters(&mut self) {
        for place in 0..WAITERS {
            if self.waits[place] && !self.read(place).await.is_empty() {
                self.waits[place] = false;
                self.seen.served += 1;
            }
        }
    }
}

/// Requests for all that there is.
fn all_keys() -> String {
    let keys = |kind: &'static str, count| (0..count).map(move |place| format!("{kind}{place}"));
    let texts: Vec<String> = keys("t", TEXTS).chain(keys("e", EXPIRING)).collect();
    let mut requests = vec![format!("MGET {}", texts.join(" "))];
    requests.extend(keys("e", EXPIRING).map(|key| format!("PTTL {key}")));
    requests.extend(keys("l", LISTS).map(|key| format!("LRANGE {key} 0 -1")));
    requests.extend(keys("s", STREAMS).map(|key| format!("XRANGE {key} - +")));
    requests.join("\r\n")
}

/// Rounds of one seed. Returns what was seen.
fn rounds(seed: u64) -> Seen {
    const ROUNDS: usize = 12;
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
    let seen = Rc::new(std::cell::OnceCell::new());
    set_time(BEGIN * 1000);
    let open = || open_with(&disk, "no", OneCommit(Tid(1)));
    let (server, told) = (open(), Rc::clone(&seen));
    with(Arc::clone(&server), |running| async move {
        let other = Arc::new(Server::new(Options { workers: 1, ..Options::default() }));
        let host = Host::new(RespService::new(other, 0), Arc::default(), None);
        let reference = Running { host: Rc::new(host) };
        let sides = [clients(&running).await, clients(&reference).await];
        let mut both = Both {
            server: Arc::clone(&server),
            sides,
            waits: [false; WAITERS],
            ends: vec![Vec::new(); EXPIRING],
            chance: Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            number: 0,
            now: BEGIN,
            seen: Seen::default(),
        };
        for _ in 0..ROUNDS {
            both.round().await;
        }
        let all = both.ask(WRITER, &all_keys()).await;
        server.close_log().unwrap();
        assert!(told.set((all, both.seen)).is_ok());
    });
    let (all, seen) = Rc::into_inner(seen).and_then(std::cell::OnceCell::into_inner).unwrap();
    with(open(), |running| async move {
        assert_eq!(running.connect().ask(&all_keys()).await, all, "after the log was read");
    });
    seen
}

#[test]
fn a_script_happens_at_once_and_behind_what_others_do_before_it_comes_to_their_keys() {
    let mut all = Seen::default();
    for seed in 1..=40 {
        println!("seed {seed}");
        let Seen { served, told, aborted, passed } = rounds(seed);
        all.served += served;
        all.told += told;
        all.aborted += aborted;
        all.passed += passed;
    }
    println!("{all:?}");
    let Seen { served, told, aborted, passed } = all;
    assert!(served > 40 && told > 40 && aborted > 10 && passed > 40, "{all:?}");
}
