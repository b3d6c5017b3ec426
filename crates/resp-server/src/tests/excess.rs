//! Commands that would take all memory or time, or end the server.

use std::sync::{Arc, mpsc};
use std::thread::{self, ThreadId};
use std::time::Duration;

use bytes::Bytes;
use zodium_keyspace::{Entry, Stripes, Value, now};

use super::{new_server, served, with};
use crate::Server;
use crate::memory::{Room, make_room};

const KEYS: usize = 5000;

/// A server whose keys may go, with many of them.
fn filled() -> Arc<Server> {
    let server = new_server(None);
    server.settings.set("maxmemory-policy", "allkeys-random").unwrap();
    let mut hold = server.keyspace.lock(Stripes::ALL, now());
    for number in 0..KEYS {
        hold.put_string(format!("k{number}").as_bytes(), b"value", None);
    }
    drop(hold);
    server
}

fn set_limit(server: &Server, bytes: u64) {
    server.settings.set("maxmemory", &bytes.to_string()).unwrap();
}

fn keys(server: &Server) -> usize {
    server.keyspace.lock(Stripes::ALL, now()).len()
}

#[test]
fn a_command_removes_a_few_keys_and_the_others_go_between_requests() {
    let server = filled();
    with(Arc::clone(&server), |running| async move {
        let most = server.keyspace.used_bytes() / 10;
        set_limit(&server, most);
        assert_eq!(make_room(&server), Room::Soon);
        assert_eq!(keys(&server), KEYS - 100);
        // A small command takes less than goes for it, so that its client need not wait.
        let mut peer = running.connect();
        let answer = peer.ask("SET k v\r\nDBSIZE").await;
        let left: usize = answer.strip_prefix("+OK :").unwrap().parse().unwrap();
        assert!((KEYS - 301..=KEYS - 299).contains(&left), "{left}");
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(server.keyspace.used_bytes() <= most);
        assert_ne!(keys(&server), 0);
        assert_eq!(make_room(&server), Room::Enough);
        server.settings.set("maxmemory-policy", "noeviction").unwrap();
        set_limit(&server, 1);
        assert_eq!(make_room(&server), Room::None);
    });
}

#[test]
fn a_client_whose_command_takes_more_than_goes_at_once_waits_for_the_rest() {
    let server = filled();
    with(Arc::clone(&server), |running| async move {
        let most = server.keyspace.used_bytes();
        set_limit(&server, most);
        let mut peer = running.connect();
        let large = "x".repeat(50_000);
        for set in [format!("SET one {large}"), format!("MULTI\r\nSET two {large}\r\nEXEC")] {
            let answer = peer.ask(&format!("{set}\r\nINFO memory")).await;
            let (_, used) = answer.split_once("used_memory:").unwrap();
            let used: u64 = used.split(' ').next().unwrap().parse().unwrap();
            assert!(used <= most, "{used} of {most}");
        }
        assert!(keys(&server) > 1000);
    });
}

/// Bytes that tell which thread has freed them.
struct Told(mpsc::Sender<ThreadId>);

impl AsRef<[u8]> for Told {
    fn as_ref(&self) -> &[u8] {
        &[0; 1 << 20]
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        self.0.send(thread::current().id()).unwrap();
    }
}

#[test]
fn large_values_are_freed_on_another_thread() {
    let server = new_server(None);
    with(Arc::clone(&server), |running| async move {
        let (sender, freed_by) = mpsc::channel();
        let put = || {
            let value = Value::String(Bytes::from_owner(Told(sender.clone())));
            server.keyspace.lock(Stripes::ALL, now()).put(b"k", Entry::new(value));
        };
        let mut peer = running.connect();
        for (request, answer) in [
            ("DEL k", ":1"),
            ("UNLINK k", ":1"),
            ("SET k v", "+OK"),
            ("SETEX k 10 v", "+OK"),
            ("EXPIRE k 0", ":1"),
            ("SINTERSTORE k none", ":0"),
        ] {
            put();
            peer.expect(&[(request, answer)]).await;
            let thread = freed_by.recv_timeout(Duration::from_secs(20)).unwrap();
            assert_ne!(thread, thread::current().id(), "{request}");
        }
        put();
        server.settings.set("maxmemory-policy", "allkeys-random").unwrap();
        set_limit(&server, 1);
        assert_eq!(make_room(&server), Room::Enough);
        let thread = freed_by.recv_timeout(Duration::from_secs(20)).unwrap();
        assert_ne!(thread, thread::current().id());
    });
}

#[test]
fn settings_of_requests_leave_room_for_requests() {
    served(|running| async move {
        let mut peer = running.connect();
        for name in ["proto-max-bulk-len", "client-query-buffer-limit"] {
            for wrong in ["0", "1048575", "4294967297", "9223372036854775807"] {
                let answer = peer.ask(&format!("CONFIG SET {name} {wrong}")).await;
                let expected = "argument must be between 1048576 and 4294967296 inclusive";
                assert!(answer.starts_with('-') && answer.ends_with(expected), "{answer}");
            }
            for right in ["1mb", "4gb"] {
                assert_eq!(peer.ask(&format!("CONFIG SET {name} {right}")).await, "+OK");
            }
        }
    });
}

#[test]
fn a_transaction_has_no_more_bytes_than_a_request() {
    served(|running| async move {
        let mut peer = running.connect();
        peer.expect(&[("CONFIG SET client-query-buffer-limit 1mb", "+OK"), ("MULTI", "+OK")]).await;
        let set = format!("SET k {}", "x".repeat(60_000));
        for _ in 0..17 {
            assert_eq!(peer.ask(&set).await, "+QUEUED");
        }
        let answer = peer.ask(&set).await;
        assert!(answer.starts_with("-ERR the commands of the transaction are longer"), "{answer}");
        // Further commands are queued for nothing, as in any broken transaction.
        assert_eq!(peer.ask(&set).await, "+QUEUED");
        let answer = peer.ask("EXEC").await;
        assert!(answer.starts_with("-EXECABORT"), "{answer}");
        peer.expect(&[("EXISTS k", ":0"), ("MULTI", "+OK"), ("PING", "+QUEUED")]).await;
        peer.expect(&[("EXEC", "*1 +PONG")]).await;
    });
}

#[test]
fn reads_of_a_transaction_whose_answers_are_too_long_are_not_executed() {
    served(|running| async move {
        let mut peer = running.connect();
        peer.expect(&[("CONFIG SET proto-max-bulk-len 1mb", "+OK")]).await;
        let word = "x".repeat(1000);
        let words = [word.as_str(); 60].join(" ");
        for _ in 0..10 {
            peer.ask(&format!("RPUSH l {words}")).await;
        }
        let answer = peer
            .ask("MULTI\r\nLRANGE l 0 -1\r\nLRANGE l 0 -1\r\nLLEN l\r\nRPUSH l x\r\nEXEC")
            .await;
        let refused = "-ERR not executed: the answers of this transaction are longer than";
        assert_eq!(answer.matches(" *600 ").count(), 2);
        assert!(answer.contains(refused) && answer.ends_with(" :601"));
    });
}

#[test]
fn elements_are_chosen_again_and_again_up_to_a_number() {
    served(|running| async move {
        let mut peer = running.connect();
        peer.expect(&[
            ("SADD s a", ":1"),
            ("ZADD z 1 a", ":1"),
            ("HSET h a 1", ":1"),
            ("SRANDMEMBER s -3", "*3 $1 a $1 a $1 a"),
            ("ZRANDMEMBER z -2", "*2 $1 a $1 a"),
            ("HRANDFIELD h -1 WITHVALUES", "*2 $1 a $1 1"),
            ("SRANDMEMBER s 9223372036854775807", "*1 $1 a"),
        ])
        .await;
        for request in ["SRANDMEMBER s", "ZRANDMEMBER z", "HRANDFIELD h", "SRANDMEMBER none"] {
            for count in ["-1048577", "-10000000000", "-9223372036854775808"] {
                let request = format!("{request} {count}");
                assert_eq!(peer.ask(&request).await, "-ERR value is out of range", "{request}");
            }
        }
        let long = "x".repeat(10_000);
        peer.expect(&[("CONFIG SET proto-max-bulk-len 1mb", "+OK")]).await;
        peer.ask(&format!("SADD long {long}\r\nZADD zlong 1 {long}\r\nHSET hlong {long} 1")).await;
        for request in ["SRANDMEMBER long", "ZRANDMEMBER zlong", "HRANDFIELD hlong"] {
            let answer = peer.ask(&format!("{request} -105")).await;
            assert!(answer.starts_with("-ERR the answer would be longer"), "{}", &answer[..40]);
            assert!(peer.ask(&format!("{request} -100")).await.starts_with("*100 "));
        }
    });
}

#[test]
fn what_is_looked_up_for_each_element_has_a_limit() {
    served(|running| async move {
        let mut peer = running.connect();
        peer.expect(&[("CONFIG SET proto-max-bulk-len 1mb", "+OK")]).await;
        peer.ask(&format!("SET ka {}\r\nRPUSH l {}", "x".repeat(10_000), "a ".repeat(120))).await;
        for request in
            ["SORT l BY nosort GET k*", "SORT l BY k* ALPHA", "SORT l GET k* ALPHA STORE m"]
        {
            let answer = peer.ask(request).await;
            assert!(answer.starts_with("-ERR the answer would be longer"), "{request}");
        }
        assert!(peer.ask("SORT l BY k* ALPHA GET # LIMIT 0 1").await.starts_with('-'));
        assert!(peer.ask("SORT l BY nosort GET k* LIMIT 0 100").await.starts_with("*100 $10000 x"));
        peer.expect(&[("LTRIM l 0 1", "+OK"), ("SORT l BY k* ALPHA", "*2 $1 a $1 a")]).await;
    });
}

#[test]
fn numbers_at_the_end_of_their_range_are_taken() {
    served(|running| async move {
        let mut peer = running.connect();
        peer.expect(&[
            ("SET s ab", "+OK"),
            ("BITCOUNT s 9223372036854775807 -1", ":0"),
            ("BITCOUNT s 9223372036854775807 9223372036854775807", ":0"),
            ("BITCOUNT s -9223372036854775808 9223372036854775807", ":6"),
            ("BITPOS s 1 9223372036854775807", ":-1"),
            ("BITCOUNT s 0 9223372036854775807 BIT", ":6"),
            ("XADD x 1-1 a b", "$3 1-1"),
            ("XGROUP CREATE x g 0 ENTRIESREAD 9223372036854775807", "+OK"),
            ("XREADGROUP GROUP g c STREAMS x >", "*1 *2 $1 x *1 *2 $3 1-1 *2 $1 a $1 b"),
            ("XCLAIM x g c 0 1-1 RETRYCOUNT 9223372036854775807 JUSTID", "*1 $3 1-1"),
            ("XCLAIM x g c 0 1-1", "*1 *2 $3 1-1 *2 $1 a $1 b"),
        ])
        .await;
    });
}

#[test]
fn unions_add_scores_up_in_one_order() {
    served(|running| async move {
        let mut peer = running.connect();
        peer.expect(&[
            ("ZADD a 1 x 2 y 5 b", ":3"),
            ("ZADD b 10 x -2 y 5 a", ":3"),
            ("SADD c y z", ":2"),
            ("ZUNIONSTORE u 3 a b c", ":5"),
            ("ZRANGE u 0 -1 WITHSCORES", "*10 $1 y $1 1 $1 z $1 1 $1 a $1 5 $1 b $1 5 $1 x $2 11"),
            ("ZUNION 2 a b WEIGHTS 2 1 AGGREGATE MAX", "*4 $1 y $1 a $1 b $1 x"),
            (
                "ZUNION 2 a b AGGREGATE MIN WITHSCORES",
                "*8 $1 y $2 -2 $1 x $1 1 $1 a $1 5 $1 b $1 5",
            ),
        ])
        .await;
    });
}

#[test]
fn a_pause_of_all_commands_can_be_ended() {
    served(|running| async move {
        let (mut one, mut other) = (running.connect(), running.connect());
        let long = "-ERR timeout is out of range: a pause takes a week at most";
        one.expect(&[
            ("CLIENT PAUSE 9223372036854775807 ALL", long),
            ("CLIENT PAUSE 604800001", long),
            ("CLIENT PAUSE 604800000 ALL", "+OK"),
            ("GET a", ""),
        ])
        .await;
        other.expect(&[("CLIENT UNPAUSE", "+OK")]).await;
        assert_eq!(one.read().await, "$-1");
    });
}

#[test]
fn a_transaction_that_may_add_is_refused_while_memory_is_full() {
    served(|running| async move {
        let (mut one, mut other) = (running.connect(), running.connect());
        one.expect(&[("SET a 1", "+OK"), ("MULTI", "+OK"), ("SET a 2", "+QUEUED")]).await;
        other.expect(&[("CONFIG SET maxmemory 1", "+OK")]).await;
        let refusal = "-EXECABORT Transaction discarded because of: OOM command not allowed when \
                       used memory > 'maxmemory'.";
        one.expect(&[("EXEC", refusal), ("GET a", "$1 1")]).await;
        one.expect(&[("MULTI", "+OK"), ("DEL a", "+QUEUED"), ("EXEC", "*1 :1")]).await;
    });
}

#[test]
fn commands_that_are_refused_for_memory_are_counted() {
    let server = new_server(None);
    with(Arc::clone(&server), |running| async move {
        let (mut peer, mut other) = (running.connect(), running.connect());
        peer.expect(&[("SET a 1", "+OK"), ("MULTI", "+OK"), ("SET a 2", "+QUEUED")]).await;
        other.expect(&[("CONFIG SET maxmemory 1", "+OK")]).await;
        for request in ["EXEC", "SET a 2", "EVAL \"return redis.call('SET', 'a', 1)\" 0"] {
            let answer = peer.ask(request).await;
            assert!(answer.starts_with('-') && answer.contains("OOM "), "{answer}");
        }
        assert!(peer.ask("INCR none x").await.starts_with("-ERR"));
        let refused = || (server.figures().refused_for_memory, server.figures().refused_for_file);
        assert_eq!(refused(), (3, 0));
        peer.expect(&[("CONFIG RESETSTAT", "+OK")]).await;
        assert_eq!(refused(), (0, 0));
    });
}
