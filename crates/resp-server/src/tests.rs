//! Sessions over pipes: what clients are answered, in which order, and what becomes of those that
//! go.

mod answers;
mod caches;
mod disks;
mod effects;
mod events;
mod excess;
mod imports;
mod log;
mod monitoring;
mod scans;
mod scripts;
mod seldom;
mod ties;
mod times;
mod waiting;
mod widening;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::task::LocalSet;
use zodium_disk::{Disk, FaultyDisk, MemoryDisk, Operation};
use zodium_net::{Host, Limits};

use crate::{KeeperOptions, Options, RespService, Server};

/// A server with one worker, on paused time.
struct Running {
    host: Rc<Host<RespService>>,
}

/// A client that sends inline requests.
struct Peer(DuplexStream);

impl Running {
    fn connect(&self) -> Peer {
        let (peer, stream) = tokio::io::duplex(1 << 20);
        let host = Rc::clone(&self.host);
        tokio::task::spawn_local(async move {
            host.run(stream, "peer", None, Limits::default()).await;
        });
        Peer(peer)
    }
}

impl Peer {
    async fn send(&mut self, line: &str) {
        self.0.write_all(format!("{line}\r\n").as_bytes()).await.unwrap();
    }

    /// All that comes until nothing more does; line ends become spaces.
    async fn read(&mut self) -> String {
        let mut all = Vec::new();
        let mut part = [0; 4096];
        loop {
            let wait = Duration::from_millis(5);
            match tokio::time::timeout(wait, self.0.read(&mut part)).await {
                Ok(Ok(count)) if count > 0 => all.extend_from_slice(&part[..count]),
                Ok(_) => {
                    all.extend_from_slice(b"(end)");
                    break;
                }
                Err(_) => break,
            }
        }
        String::from_utf8_lossy(&all).replace("\r\n", " ").trim_end().to_owned()
    }

    async fn ask(&mut self, line: &str) -> String {
        self.send(line).await;
        self.read().await
    }

    async fn expect(&mut self, exchanges: &[(&str, &str)]) {
        for (line, answer) in exchanges {
            assert_eq!(self.ask(line).await, *answer, "{line}");
        }
    }
}

fn new_server(password: Option<&str>) -> Arc<Server> {
    let password = password.map(str::to_owned);
    let options = Options { workers: 1, password, port: 6379, ..Options::default() };
    Arc::new(Server::new(options))
}

fn with_server<F: Future<Output = ()>>(password: Option<&str>, test: impl FnOnce(Running) -> F) {
    with(new_server(password), test);
}

fn with<F: Future<Output = ()>>(server: Arc<Server>, test: impl FnOnce(Running) -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    LocalSet::new().block_on(&runtime, async {
        let service = RespService::new(server, 0);
        test(Running { host: Rc::new(Host::new(service, Arc::default(), None)) }).await;
    });
}

fn served<F: Future<Output = ()>>(test: impl FnOnce(Running) -> F) {
    with_server(None, test);
}

#[test]
fn pipelines_are_answered_in_large_databases_as_single_requests_are() {
    served(|running| async move {
        let mut peer = running.connect();
        // So many that the keys of a pipeline are looked up ahead.
        for first in (0..32_000).step_by(4000) {
            let lines: Vec<_> = (first..first + 4000).map(|n| format!("SET k{n} v{n}")).collect();
            assert_eq!(peer.ask(&lines.join("\r\n")).await, ["+OK"; 4000].join(" "));
        }
        let long = "x".repeat(300);
        let requests = [
            "GET k1".to_owned(),
            "*2\r\n$3\r\nGET\r\n$5\r\nk3000".to_owned(),
            "LPUSH list a".to_owned(),
            "LRANGE list 0 -1".to_owned(),
            "GET list".to_owned(),
            "PING".to_owned(),
            "SELECT 1".to_owned(),
            "GET k1".to_owned(),
            "SELECT 0".to_owned(),
            format!("GET {long}"),
            "GET".to_owned(),
            "DEL k1".to_owned(),
            "GET k1".to_owned(),
            "SET k1 v1".to_owned(),
            "DEL list".to_owned(),
            format!("SET {long} v"),
            format!("EXISTS {long}"),
            format!("GET {long}"),
            format!("DEL {long}"),
        ];
        let mut single = Vec::new();
        for request in &requests {
            single.push(peer.ask(request).await);
        }
        // A long key has one place, whichever way its commands take.
        assert_eq!(single[single.len() - 4..], ["+OK", ":1", "$1 v", ":1"]);
        let all = requests.join("\r\n");
        for cut in [0, 7, 20, all.len() / 2, all.len() - 1] {
            let (front, rest) = all.split_at(cut);
            peer.0.write_all(front.as_bytes()).await.unwrap();
            let mut answers = peer.read().await;
            if !answers.is_empty() {
                answers.push(' ');
            }
            answers += &peer.ask(&format!("{rest}\r\n")).await;
            assert_eq!(answers, single.join(" "), "cut at {cut}");
        }
    });
}

#[test]
fn requests_that_come_together_see_what_those_before_them_have_changed() {
    with_server(Some("secret"), |running| async move {
        let mut peer = running.connect();
        // Longer than a client may send that has not given the password.
        let long = "x".repeat(20_000);
        let set = format!("*3\r\n$3\r\nSET\r\n$1\r\nl\r\n$20000\r\n{long}");
        let answers = peer.ask(&format!("AUTH secret\r\n{set}\r\nSTRLEN l")).await;
        assert_eq!(answers, "+OK +OK :20000");
        let mut requests: Vec<_> = (0..40).map(|n| format!("SET k{n} {n}\r\nGET k{n}")).collect();
        let mut answers: Vec<_> =
            (0..40_usize).map(|n| format!("+OK ${} {n}", n.to_string().len())).collect();
        for (request, answer) in [
            ("MULTI\r\nSET a 1\r\nGET a\r\nEXEC", "+OK +QUEUED +QUEUED *2 +OK $1 1"),
            ("CLIENT REPLY SKIP\r\nGET a\r\nGET a", "$1 1"),
            ("SELECT 1\r\nGET a\r\nSELECT 0\r\nGET a", "+OK $-1 +OK $1 1"),
            ("BLPOP none 0.01\r\nSET a 2\r\nGET a", "*-1 +OK $1 2"),
            ("RPUSH list 1\r\nGET list\r\nSET list 1\r\nGET list", ":1 {} +OK $1 1"),
            ("HELLO 3\r\nGET none", "{hello} _"),
        ] {
            requests.push(request.to_owned());
            answers.push(answer.to_owned());
        }
        let wrong_type = "-WRONGTYPE Operation against a key holding the wrong kind of value";
        let answers = answers.join(" ").replace("{}", wrong_type);
        let (before, after) = answers.split_once("{hello}").unwrap();
        let mut all = peer.ask(&requests.join("\r\n")).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        all = format!("{all} {}", peer.read().await).trim_end().to_owned();
        assert!(all.starts_with(before) && all.ends_with(after), "{all}");
    });
}

#[test]
fn keys_are_counted_as_found_or_not_wherever_a_command_reads_them() {
    served(|running| async move {
        let mut peer = running.connect();
        let (mut hits, mut misses) = (0, 0);
        for (request, found, missed) in [
            ("MULTI\r\nGET a\r\nGET n\r\nMGET a n\r\nEXEC", 2, 2),
            ("EVAL \"redis.call('GET', KEYS[1]) redis.call('GET', 'n')\" 1 a", 1, 1),
            ("EVAL_RO \"redis.call('GET', KEYS[1]) redis.call('GET', 'n')\" 1 a", 1, 1),
            ("GETEX a\r\nGETEX n\r\nGETSET a 1\r\nGETDEL n", 2, 2),
            ("SET a 1 GET\r\nSET n 1 GET\r\nGETDEL n", 2, 1),
            ("TTL a\r\nTYPE n\r\nOBJECT ENCODING a\r\nDUMP n\r\nTOUCH a n", 3, 3),
            ("SORT l\r\nSORT_RO n\r\nCOPY a b\r\nZUNION 2 n none", 2, 3),
            // They answer nothing that they have read.
            ("SET a 1\r\nSET a 1 NX\r\nSETNX a 1\r\nINCR a\r\nSMOVE n none x", 0, 0),
        ] {
            peer.expect(&[("MSET a 1", "+OK"), ("DEL n b l", ":0"), ("LPUSH l 1", ":1")]).await;
            peer.ask(request).await;
            (hits, misses) = (hits + found, misses + missed);
            let statistics = peer.ask("INFO stats").await;
            let expected = format!("keyspace_hits:{hits} keyspace_misses:{misses} ");
            assert!(statistics.contains(&expected), "{request}: {expected}: {statistics}");
            peer.ask("DEL n b l").await;
        }
    });
}

#[test]
fn refused_requests_and_removed_keys_are_counted() {
    served(|running| async move {
        let mut peer = running.connect();
        peer.expect(&[("MSET a 1 b 2", "+OK"), ("SELECT 3", "+OK"), ("SET c 1", "+OK")]).await;
        let changes = async |peer: &mut Peer| {
            let said = peer.ask("INFO persistence").await;
            let (_, after) = said.split_once("rdb_changes_since_last_save:").unwrap();
            after.split(' ').next().unwrap().parse::<u64>().unwrap()
        };
        let before = changes(&mut peer).await;
        peer.expect(&[("FLUSHALL", "+OK")]).await;
        assert_eq!(changes(&mut peer).await, before + 3);
        for request in ["GET", "GET a b", "CLIENT SETNAME", "CLIENT NONE", "NONE"] {
            assert!(peer.ask(request).await.starts_with("-ERR"), "{request}");
        }
        let said = peer.ask("INFO commandstats").await;
        let lines = said.split(' ').filter(|line| line.contains("rejected_calls="));
        let rejected = lines.filter(|line| !line.contains("rejected_calls=0"));
        let expected = [("cmdstat_get:", "rejected_calls=2"), ("setname:", "rejected_calls=1")];
        let rejected: Vec<_> = rejected.collect();
        assert_eq!(rejected.len(), expected.len(), "{rejected:?}");
        for (line, (name, count)) in rejected.into_iter().zip(expected) {
            assert!(line.contains(name) && line.contains(count), "{line}");
        }
    });
}

#[test]
fn what_others_are_to_know_of_a_short_request_is_told_to_them() {
    served(|running| async move {
        let (mut one, mut other) = (running.connect(), running.connect());
        one.expect(&[("SET a 1", "+OK"), ("GET a", "$1 1"), ("GET none", "$-1")]).await;
        assert!(one.ask("INFO stats").await.contains("keyspace_hits:1 keyspace_misses:1 "));
        assert!(one.ask("INFO commandstats").await.contains("cmdstat_get:calls=2,"));
        one.expect(&[("SET a 2", "+OK")]).await;
        assert!(other.ask("CLIENT LIST").await.contains("cmd=set "));
        one.expect(&[("SET old 1 PX 5", "+OK")]).await;
        std::thread::sleep(Duration::from_millis(10));
        one.expect(&[("SET old 2", "+OK")]).await;
        assert!(one.ask("INFO stats").await.contains("expired_keys:1 "));
        // A client with a cache of its own.
        assert!(other.ask("HELLO 3").await.starts_with('%'));
        other.expect(&[("CLIENT TRACKING ON", "+OK"), ("GET a", "$1 2")]).await;
        one.expect(&[("SET a 3", "+OK")]).await;
        assert_eq!(other.read().await, ">2 $10 invalidate *1 $1 a");
        other.expect(&[("CLIENT TRACKING OFF", "+OK")]).await;
        // Events of keys, of one whose time is past too.
        other
            .expect(&[
                ("CONFIG SET notify-keyspace-events Ex$", "+OK"),
                ("SUBSCRIBE __keyevent@0__:set", ">3 $9 subscribe $18 __keyevent@0__:set :1"),
                (
                    "SUBSCRIBE __keyevent@0__:expired",
                    ">3 $9 subscribe $22 __keyevent@0__:expired :2",
                ),
            ])
            .await;
        one.expect(&[("SET a 4 PX 5", "+OK")]).await;
        std::thread::sleep(Duration::from_millis(10));
        one.expect(&[("GET a", "$-1"), ("SET a 5", "+OK"), ("GET a", "$1 5")]).await;
        let message = |channel: &str| format!(">3 $7 message ${} {channel} $1 a", channel.len());
        let [set, expired] = ["__keyevent@0__:set", "__keyevent@0__:expired"].map(message);
        assert_eq!(other.read().await, format!("{set} {expired} {set}"));
        other.expect(&[("CONFIG SET notify-keyspace-events \"\"", "+OK")]).await;
        // Clients that see all commands, and those that wait for the end of a pause.
        let mut monitor = running.connect();
        monitor.expect(&[("MONITOR", "+OK")]).await;
        one.expect(&[("SET a 6", "+OK")]).await;
        assert!(monitor.read().await.ends_with("\"SET\" \"a\" \"6\""));
        drop(monitor);
        other.expect(&[("CLIENT PAUSE 1000 WRITE", "+OK")]).await;
        one.expect(&[("GET a", "$1 6"), ("SET a 7", "")]).await;
        other.expect(&[("CLIENT UNPAUSE", "+OK")]).await;
        assert_eq!(one.read().await, "+OK");
        other.expect(&[("CONFIG SET maxmemory 1", "+OK")]).await;
        let refusal = "-OOM command not allowed when used memory > 'maxmemory'.";
        one.expect(&[("GET a", "$1 7"), ("SET a 8", refusal)]).await;
    });
}

#[test]
fn commands_are_answered_in_both_versions() {
    served(|running| async move {
        let mut peer = running.connect();
        peer.expect(&[
            ("SET key value", "+OK"),
            ("GET key", "$5 value"),
            ("GET none", "$-1"),
            ("HSET hash a 1 b 2", ":2"),
            ("HGETALL hash", "*4 $1 a $1 1 $1 b $1 2"),
            ("ZADD z 1.5 m", ":1"),
            ("ZSCORE z m", "$3 1.5"),
            ("LPUSH key x", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
            ("GET", "-ERR wrong number of arguments for 'get' command"),
            (
                "NOSUCH a b",
                "-ERR unknown command 'NOSUCH', with args beginning with: 'a' 'b' ".trim_end(),
            ),
            ("CLIENT nosuch", "-ERR unknown subcommand 'nosuch'. Try CLIENT HELP."),
            ("CLIENT SETINFO a", "-ERR wrong number of arguments for 'client|setinfo' command"),
            ("SELECT 16", "-ERR DB index is out of range"),
            ("SELECT 15", "+OK"),
            ("GET key", "$-1"),
            ("SELECT 0", "+OK"),
        ])
        .await;
        assert!(peer.ask("HELLO 3").await.starts_with("%7 $6 server $6 valkey $7 version"));
        peer.expect(&[
            ("GET none", "_"),
            ("HGETALL hash", "%2 $1 a $1 1 $1 b $1 2"),
            ("ZSCORE z m", ",1.5"),
            ("ZRANGE z 0 -1 WITHSCORES", "*1 *2 $1 m ,1.5"),
            ("HELLO 4", "-NOPROTO unsupported protocol version"),
            ("CONFIG SET extended-redis-compatibility yes", "+OK"),
        ])
        .await;
        assert!(peer.ask("HELLO 3").await.starts_with("%7 $6 server $5 redis $7 version $5 7.2.4"));
        let info = peer.ask("INFO server").await;
        assert!(info.contains("redis_mode:") && !info.contains("server_mode:"), "{info}");
        peer.expect(&[("CONFIG SET extended-redis-compatibility no", "+OK")]).await;
        // Requests that come together are answered together, in order.
        let answers = peer.ask("SET n 5\r\nINCR n\r\nGET n\r\nPING\r\nQUIT\r\nGET n").await;
        assert_eq!(answers, "+OK :6 $1 6 +PONG +OK (end)");
    });
}

#[test]
fn a_password_is_asked_for() {
    with_server(Some("secret"), |running| async move {
        let mut peer = running.connect();
        peer.expect(&[
            ("GET a", "-NOAUTH Authentication required."),
            ("AUTH wrong", "-WRONGPASS invalid username-password pair or user is disabled."),
            ("AUTH other secret", "-WRONGPASS invalid username-password pair or user is disabled."),
            ("AUTH default secret", "+OK"),
            ("GET a", "$-1"),
            ("RESET", "+RESET"),
            ("GET a", "-NOAUTH Authentication required."),
        ])
        .await;
        let greeting = peer.ask("HELLO 2 AUTH default secret SETNAME me").await;
        assert!(greeting.starts_with("*14 "), "{greeting}");
        peer.expect(&[("CLIENT GETNAME", "$2 me")]).await;
        let mut late = running.connect();
        tokio::time::sleep(Duration::from_secs(40)).await;
        assert_eq!(late.read().await, "(end)");
    });
}

#[test]
fn a_frame_that_breaks_the_protocol_ends_the_connection_after_earlier_answers() {
    served(|running| async move {
        let mut peer = running.connect();
        let answer = peer.ask("PING\r\n*1\r\nx").await;
        assert_eq!(answer, "+PONG -ERR Protocol error: expected '$', got 'x' (end)");
        assert_eq!(running.connect().ask("POST / HTTP/1.1").await, "(end)");
    });
}

#[test]
fn transactions_are_executed_whole_or_not_at_all() {
    served(|running| async move {
        let (mut one, mut other) = (running.connect(), running.connect());
        one.expect(&[
            ("EXEC", "-ERR EXEC without MULTI"),
            ("MULTI", "+OK"),
            ("SET a 1", "+QUEUED"),
            ("LPUSH a x", "+QUEUED"),
            ("INCR a", "+QUEUED"),
        ])
        .await;
        other.expect(&[("GET a", "$-1")]).await;
        let answers =
            "*3 +OK -WRONGTYPE Operation against a key holding the wrong kind of value :2";
        one.expect(&[
            ("EXEC", answers),
            ("MULTI", "+OK"),
            ("NOSUCH", "-ERR unknown command 'NOSUCH', with args beginning with:"),
            ("SET a 5", "+QUEUED"),
            ("EXEC", "-EXECABORT Transaction discarded because of previous errors."),
            ("WATCH a b", "+OK"),
            ("MULTI", "+OK"),
            ("GET a", "+QUEUED"),
        ])
        .await;
        other.expect(&[("DEL b", ":0"), ("SET a 2", "+OK")]).await;
        one.expect(&[("EXEC", "*-1"), ("WATCH b", "+OK"), ("MULTI", "+OK"), ("GET a", "+QUEUED")])
            .await;
        other.expect(&[("DEL b", ":0")]).await;
        one.expect(&[("EXEC", "*1 $1 2"), ("SET a 1 PX 500", "+OK"), ("WATCH a", "+OK")]).await;
        std::thread::sleep(Duration::from_millis(501));
        one.expect(&[("MULTI", "+OK"), ("PING", "+QUEUED"), ("EXEC", "*-1")]).await;
        let answer = "-EXECABORT Transaction discarded because of: wrong number of arguments for \
                      'exec' command";
        one.expect(&[("MULTI", "+OK"), ("EXEC 1", answer), ("PING", "+PONG")]).await;
    });
}

#[test]
fn numbers_and_ids_at_the_ends_of_their_ranges_are_those_of_stock() {
    served(|running| async move {
        let mut one = running.connect();
        let no_id = "-ERR Invalid stream ID specified as stream command argument";
        one.expect(&[
            ("BITFIELD b OVERFLOW SAT SET u4 0 -1", "*1 :0"),
            ("BITFIELD b GET u4 0", "*1 :15"),
            ("ZADD z 1700000000000000000 a", ":1"),
            ("ZSCORE z a", "$19 1700000000000000000"),
            ("XADD s 1-1 f v", "$3 1-1"),
            ("XGROUP CREATE s g +", no_id),
            ("XGROUP CREATE s g 0", "+OK"),
            ("XCLAIM s g c 0 1-1 FORCE JUSTID", "*1 $3 1-1"),
            ("XCLAIM s g c 0 1-1", "*1 *2 $3 1-1 *2 $1 f $1 v"),
            ("XGROUP SETID s g -", no_id),
            ("CLIENT KILL MAXAGE 0", "-ERR maxage should be greater than 0"),
        ])
        .await;
        let pending = one.ask("XPENDING s g - + 9").await;
        assert!(pending.ends_with(":2"), "{pending}");
    });
}

#[test]
fn a_reader_of_a_stream_waits_on_while_its_key_is_a_list() {
    served(|running| async move {
        let (mut one, mut other) = (running.connect(), running.connect());
        assert_eq!(one.ask("XREAD BLOCK 0 STREAMS k 0").await, "");
        let pushed = [("RPUSH k x", ":1"), ("DEL k", ":1"), ("XADD k 1-1 a b", "$3 1-1")];
        other.expect(&pushed).await;
        assert_eq!(one.read().await, "*1 *2 $1 k *1 *2 $3 1-1 *2 $1 a $1 b");
    });
}

#[test]
fn clients_that_wait_are_served_in_order_after_the_command_that_pushed() {
    served(|running| async move {
        let mut waiting = [running.connect(), running.connect(), running.connect()];
        for peer in &mut waiting {
            assert_eq!(peer.ask("BLPOP none list 0").await, "");
        }
        let mut pusher = running.connect();
        pusher.expect(&[("LPUSH list a b", ":2")]).await;
        assert_eq!(waiting[0].read().await, "*2 $4 list $1 b");
        assert_eq!(waiting[1].read().await, "*2 $4 list $1 a");
        assert_eq!(waiting[2].read().await, "");
        // Within a transaction nothing is served before its end.
        pusher.send("MULTI\r\nRPUSH list x\r\nLPUSH list y\r\nEXEC\r\nLLEN list").await;
        assert!(pusher.read().await.ends_with("*2 :1 :2 :1"));
        assert_eq!(waiting[2].read().await, "*2 $4 list $1 y");
        // One that moves fills the list of another one.
        assert_eq!(waiting[0].ask("BLMOVE source target LEFT RIGHT 0").await, "");
        assert_eq!(waiting[1].ask("BRPOP target 0").await, "");
        pusher.expect(&[("RPUSH source z", ":1"), ("EXISTS source target", ":0")]).await;
        assert_eq!(waiting[0].read().await, "$1 z");
        assert_eq!(waiting[1].read().await, "*2 $6 target $1 z");
        // Further requests of a client that waits come after its answer.
        assert_eq!(waiting[0].ask("BZPOPMIN zset 1\r\nPING").await, "");
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(waiting[0].read().await, "*-1 +PONG");
        pusher
            .expect(&[
                ("BLPOP none 0x7FFFFFFFFFFFFF", "-ERR timeout is out of range"),
                ("BLPOP none one", "-ERR timeout is not a float or out of range"),
                ("BLPOP none -1", "-ERR timeout is negative"),
            ])
            .await;
        assert_eq!(waiting[0].ask("MULTI\r\nBLPOP list2 0\r\nEXEC").await, "+OK +QUEUED *1 *-1");
    });
}

#[test]
fn a_client_that_has_gone_gets_no_element() {
    served(|running| async move {
        let mut pusher = running.connect();
        for round in 0..20 {
            let mut gone = running.connect();
            assert_eq!(gone.ask("BLPOP list 0").await, "");
            let mut stays = running.connect();
            assert_eq!(stays.ask("BRPOP list 0").await, "");
            drop(gone);
            assert_eq!(stays.read().await, "");
            pusher.expect(&[("LPUSH list x", ":1"), ("EXISTS list", ":0")]).await;
            assert_eq!(stays.read().await, "*2 $4 list $1 x", "{round}");
        }
        assert!(pusher.ask("INFO clients").await.contains("blocked_clients:0"));
    });
}

#[test]
fn messages_come_after_the_answers_before_them() {
    served(|running| async move {
        let (mut one, mut other) = (running.connect(), running.connect());
        one.expect(&[
            ("SUBSCRIBE a", "*3 $9 subscribe $1 a :1"),
            ("PSUBSCRIBE ?", "*3 $10 psubscribe $1 ? :2"),
            (
                "GET x",
                "-ERR Can't execute 'get': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / \
                QUIT / RESET are allowed in this context",
            ),
            (
                "CLIENT SETNAME x",
                "-ERR Can't execute 'client|setname': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / \
                PING / QUIT / RESET are allowed in this context",
            ),
            ("PING", "*2 $4 pong $0"),
        ])
        .await;
        other.expect(&[("PUBLISH a hi", ":2"), ("PUBLISH nothing hi", ":0")]).await;
        assert_eq!(one.read().await, "*3 $7 message $1 a $2 hi *4 $8 pmessage $1 ? $1 a $2 hi");
        assert!(other.ask("HELLO 3").await.starts_with('%'));
        other
            .expect(&[
                ("SUBSCRIBE b", ">3 $9 subscribe $1 b :1"),
                ("PUBLISH b me", ":2 >3 $7 message $1 b $2 me"),
                ("PUBSUB NUMSUB a b c", "*6 $1 a :1 $1 b :1 $1 c :0"),
                ("CONFIG SET notify-keyspace-events KEA", "+OK"),
                ("SUBSCRIBE __keyevent@0__:set", ">3 $9 subscribe $18 __keyevent@0__:set :2"),
                ("SET k v", "+OK >3 $7 message $18 __keyevent@0__:set $1 k"),
            ])
            .await;
        drop(one);
        other.expect(&[("PUBSUB CHANNELS a", "*0"), ("PUBLISH a x", ":0")]).await;
    });
}

#[test]
fn keys_expire_without_a_read() {
    served(|running| async move {
        let mut peer = running.connect();
        peer.expect(&[("SET a 1 PX 20", "+OK"), ("SET b 1", "+OK"), ("DBSIZE", ":2")]).await;
        std::thread::sleep(Duration::from_millis(30));
        tokio::time::sleep(Duration::from_millis(200)).await;
        peer.expect(&[("DBSIZE", ":1"), ("TTL b", ":-1"), ("TTL a", ":-2")]).await;
    });
}

#[test]
fn a_long_log_is_read_by_several_threads_as_it_was_written() {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
    let open = || {
        let server = Arc::new(Server::new(Options { workers: 1, ..Options::default() }));
        let (disk, sync) = (Arc::clone(&disk), "no".to_owned());
        server.keep(&KeeperOptions { disk, path: "/keys".into(), sync }).unwrap();
        server
    };
    let request = |step: usize| {
        let (one, other) = (step * 7919 % 211, step * 104_729 % 211);
        match step % 8 {
            0 => format!("MSET k{one} {step} k{other} {step}"),
            1 => format!("COPY k{one} k{other} REPLACE"),
            2 => format!("DEL k{one}"),
            3 => format!("APPEND k{one} x"),
            _ => format!("SET k{one} {step}"),
        }
    };
    let keys: Vec<_> = (0..211).map(|key| format!("k{key}")).collect();
    let all = format!("MGET {}", keys.join(" "));
    let (written, ask) = (Rc::new(std::cell::OnceCell::new()), all.clone());
    let told = Rc::clone(&written);
    let server = open();
    with(Arc::clone(&server), |running| async move {
        let mut peer = running.connect();
        for first in (0..8000).step_by(1000) {
            let requests: Vec<_> = (first..first + 1000).map(request).collect();
            peer.ask(&requests.join("\r\n")).await;
        }
        told.set(peer.ask(&ask).await).unwrap();
    });
    server.close_log().unwrap();
    drop(server);
    with(open(), |running| async move {
        assert_eq!(running.connect().ask(&all).await, *written.get().unwrap());
    });
}

#[test]
fn a_compaction_ends_when_it_was_tried_also_while_the_log_cannot_be_written() {
    let faulty = FaultyDisk::new(MemoryDisk::default());
    let disk: Arc<dyn Disk> = Arc::new(faulty.clone());
    let server = Arc::new(Server::new(Options { workers: 1, ..Options::default() }));
    let sync = "always".to_owned();
    server.keep(&KeeperOptions { disk, path: "/keys".into(), sync }).unwrap();
    with(Arc::clone(&server), |running| async move {
        let mut peer = running.connect();
        faulty.fail(Operation::Sync, 1, std::io::ErrorKind::StorageFull);
        peer.send("SET a 1").await;
        peer.read().await;
        while !faulty.has_failed() {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    // The writer waits for 200 ms before it tries again.
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(server.finish_import().unwrap(), 1);
}
