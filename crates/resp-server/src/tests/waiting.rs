//! Clients that wait: those that are told not to any longer, or go, or want no answer.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use zodium_keyspace::Stripes;

use super::{Peer, served, with};
use crate::transaction::end_left_watches;
use crate::{Options, Server};

async fn id_of(peer: &mut Peer) -> String {
    peer.ask("CLIENT ID").await.trim_start_matches(':').to_owned()
}

#[test]
fn a_client_that_was_killed_gets_no_element() {
    served(|running| async move {
        let mut pusher = running.connect();
        let (mut gone, mut stays) = (running.connect(), running.connect());
        let id = id_of(&mut gone).await;
        assert_eq!(gone.ask("BLPOP list 0").await, "");
        assert_eq!(stays.ask("BRPOP list 0").await, "");
        // The worker takes the letter of the first request after the second one.
        let answers = pusher.ask(&format!("CLIENT KILL ID {id}\r\nLPUSH list x")).await;
        assert_eq!(answers, ":1 :1");
        assert_eq!(gone.read().await, "(end)");
        assert_eq!(stays.read().await, "*2 $4 list $1 x");
        assert!(pusher.ask("INFO clients").await.contains("blocked_clients:0"));
    });
}

#[test]
fn a_client_that_was_killed_is_gone_also_if_it_reads_nothing() {
    let server = Arc::new(Server::new(Options { workers: 1, ..Options::default() }));
    with(Arc::clone(&server), |running| async move {
        let (mut killer, mut stuck) = (running.connect(), running.connect());
        let id = id_of(&mut stuck).await;
        killer.expect(&[("SETRANGE long 6000000 x", ":6000001")]).await;
        stuck.send("GET long").await;
        killer.expect(&[("PING", "+PONG"), (&*format!("CLIENT KILL ID {id}"), ":1")]).await;
        assert_eq!(server.connections(), 1);
    });
}

#[test]
fn a_client_that_has_killed_itself_sends_no_more_commands() {
    served(|running| async move {
        let (mut peer, mut other) = (running.connect(), running.connect());
        let id = id_of(&mut peer).await;
        let requests = format!("CLIENT KILL ID {id} SKIPME no\r\nSET key 1\r\nSET key 2");
        assert_eq!(peer.ask(&requests).await, ":1 (end)");
        other.expect(&[("EXISTS key", ":0")]).await;
    });
}

#[test]
fn a_client_that_kills_itself_within_a_transaction_gets_no_answers_behind_that() {
    served(|running| async move {
        let (mut peer, mut other) = (running.connect(), running.connect());
        let id = id_of(&mut peer).await;
        let kill = &*format!("CLIENT KILL ID {id} SKIPME no");
        let requests = ["MULTI", "SET a 1", kill, "SET b 1", "GET a", "EXEC", "SET c 1"];
        let queued = ["+QUEUED"; 4].join(" ");
        let answers = peer.ask(&requests.join("\r\n")).await;
        assert_eq!(answers, format!("+OK {queued} *4 +OK :1 (end)"));
        other.expect(&[("EXISTS a b", ":2"), ("EXISTS c", ":0")]).await;
    });
}

#[test]
fn clients_that_wait_for_keys_of_another_database_are_served_in_order() {
    served(|running| async move {
        let mut other = running.connect();
        other.expect(&[("SELECT 1", "+OK")]).await;
        let mut waiting = Vec::new();
        for number in [5, 2, 7, 1, 6, 3, 8, 4] {
            let mut peer = running.connect();
            let wait = format!("BLMOVE list{number} all LEFT RIGHT 0");
            assert_eq!(peer.ask(&wait).await, "");
            waiting.push(peer);
            other.expect(&[(&*format!("RPUSH list{number} {number}"), ":1")]).await;
        }
        let all = "*8 $1 5 $1 2 $1 7 $1 1 $1 6 $1 3 $1 8 $1 4";
        other.expect(&[("SWAPDB 0 1", "+OK"), ("SELECT 0", "+OK"), ("LRANGE all 0 -1", all)]).await;
    });
}

#[test]
fn a_client_that_was_unblocked_gets_no_element() {
    served(|running| async move {
        let (mut pusher, mut waits) = (running.connect(), running.connect());
        let id = id_of(&mut waits).await;
        for (how, answer) in
            [("TIMEOUT", "*-1"), ("ERROR", "-UNBLOCKED client unblocked via CLIENT UNBLOCK")]
        {
            let unblock = format!("CLIENT UNBLOCK {id} {how}");
            assert_eq!(pusher.ask(&unblock).await, ":0");
            assert_eq!(waits.ask("BLPOP list 0").await, "");
            let requests = [&unblock, "LPUSH list x", "EXISTS list", &unblock, "DEL list"];
            assert_eq!(pusher.ask(&requests.join("\r\n")).await, ":1 :1 :1 :0 :1");
            assert_eq!(waits.read().await, answer);
            // Neither is its next command ended.
            assert_eq!(waits.ask("BLPOP list 5").await, "");
            pusher.expect(&[("LPUSH list y", ":1"), ("EXISTS list", ":0")]).await;
            assert_eq!(waits.read().await, "*2 $4 list $1 y");
        }
    });
}

#[test]
fn the_shortest_time_to_wait_is_not_for_ever() {
    served(|running| async move {
        let mut waits = running.connect();
        waits.expect(&[("BLPOP list 1e-10", "*-1"), ("BLPOP list 0", "")]).await;
    });
}

#[test]
fn a_request_that_waits_is_freed_when_its_wait_ends() {
    let server = Arc::new(Server::new(Options { workers: 1, ..Options::default() }));
    with(Arc::clone(&server), |running| async move {
        let mut other = running.connect();
        let mut waits = running.connect();
        let id = id_of(&mut waits).await.parse().unwrap();
        let waiter = || server.waiting.of_client(id).as_ref().map(Arc::downgrade);
        // A client that is served before its time is over, one that is not, and one that goes.
        assert_eq!(waits.ask("BLPOP list 1000000").await, "");
        let served = waiter().unwrap();
        other.expect(&[("LPUSH list x", ":1")]).await;
        assert_eq!(waits.read().await, "*2 $4 list $1 x");
        assert!(served.upgrade().is_none());
        assert_eq!(waits.ask("BLPOP list 1").await, "");
        let late = waiter().unwrap();
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(waits.read().await, "*-1");
        assert!(late.upgrade().is_none());
        assert_eq!(waits.ask("BLPOP list 1000000").await, "");
        let gone = waiter().unwrap();
        drop(waits);
        other.expect(&[("PING", "+PONG")]).await;
        assert!(gone.upgrade().is_none());
    });
}

#[test]
fn a_client_without_replies_gets_none_to_a_command_that_has_waited() {
    served(|running| async move {
        let (mut waits, mut pusher) = (running.connect(), running.connect());
        for (mode, next, answer) in [("SKIP", "PING", "+PONG"), ("OFF", "CLIENT REPLY ON", "+OK")] {
            assert_eq!(waits.ask(&format!("CLIENT REPLY {mode}\r\nBLPOP list 0")).await, "");
            pusher.expect(&[("LPUSH list x", ":1"), ("EXISTS list", ":0")]).await;
            waits.expect(&[("", ""), (next, answer), ("PING", "+PONG")]).await;
        }
    });
}

#[test]
fn a_subscription_uses_up_what_a_client_has_skipped() {
    served(|running| async move {
        let mut peer = running.connect();
        peer.ask("HELLO 3").await;
        let requests = "CLIENT REPLY SKIP\r\nSUBSCRIBE channel\r\nPING";
        assert_eq!(peer.ask(requests).await, ">3 $9 subscribe $7 channel :1 +PONG");
    });
}

/// Locks all keys on another thread, until the sender says that it ends.
fn lock_as_a_script_does(server: &Arc<Server>) -> (mpsc::Sender<()>, thread::JoinHandle<bool>) {
    let (told, is_locked) = mpsc::channel();
    let (end, ended) = mpsc::channel();
    let server = Arc::clone(server);
    let holder = thread::spawn(move || {
        let _hold = server.keyspace.lock(Stripes::ALL, 0);
        server.scripts.running.begin();
        told.send(()).unwrap();
        let is_told = ended.recv_timeout(Duration::from_secs(10)).is_ok();
        server.scripts.running.end();
        is_told
    });
    is_locked.recv().unwrap();
    (end, holder)
}

#[test]
fn a_transaction_that_waits_in_vain_for_a_script_watches_no_longer() {
    let server = Arc::new(Server::new(Options { workers: 1, ..Options::default() }));
    with(Arc::clone(&server), |running| async move {
        let mut peer = running.connect();
        peer.expect(&[
            ("CONFIG SET busy-reply-threshold 100", "+OK"),
            ("WATCH key", "+OK"),
            ("MULTI", "+OK"),
            ("PING", "+QUEUED"),
        ])
        .await;
        let (end, holder) = lock_as_a_script_does(&server);
        let answer = peer.ask("EXEC").await;
        assert!(answer.starts_with("-EXECABORT") && answer.contains("BUSY"), "{answer}");
        end.send(()).unwrap();
        assert!(holder.join().unwrap());
        running.connect().expect(&[("SET key 1", "+OK")]).await;
        peer.expect(&[("MULTI", "+OK"), ("PING", "+QUEUED"), ("EXEC", "*1 +PONG")]).await;
    });
}

#[test]
fn a_client_that_ends_watching_waits_for_no_lock() {
    let server = Arc::new(Server::new(Options { workers: 1, ..Options::default() }));
    with(Arc::clone(&server), |running| async move {
        let [mut one, mut other, mut gone] = [(); 3].map(|()| running.connect());
        for peer in [&mut one, &mut other, &mut gone] {
            peer.expect(&[("WATCH key", "+OK")]).await;
        }
        let (end, holder) = lock_as_a_script_does(&server);
        drop(gone);
        one.expect(&[("MULTI", "+OK"), ("DISCARD", "+OK")]).await;
        other.expect(&[("RESET", "+RESET")]).await;
        end_left_watches(&server);
        end.send(()).unwrap();
        assert!(holder.join().unwrap());
        assert_eq!(server.left_watches.lock().len(), 3);
        let watcher = server.left_watches.lock()[0].watcher.clone();
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(server.left_watches.lock().len(), 0);
        one.expect(&[("SET key 1", "+OK")]).await;
        assert!(!watcher.is_changed(), "it is still known");
    });
}

#[test]
fn a_client_that_sends_or_reads_something_long_slowly_is_not_idle() {
    let server = Arc::new(Server::new(Options { workers: 1, ..Options::default() }));
    with(Arc::clone(&server), |running| async move {
        let (mut uploads, mut silent) = (running.connect(), running.connect());
        let (mut reads, mut hangs) = (running.connect(), running.connect());
        silent
            .expect(&[("SETRANGE long 6000000 x", ":6000001"), ("CONFIG SET timeout 2", "+OK")])
            .await;
        reads.send("GET long").await;
        hangs.send("GET long").await;
        let mut part = vec![0; 1_000_000];
        assert_eq!(uploads.ask("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$50000").await, "");
        for _ in 0..5 {
            // On the clock of the system, and far from the limit, then on that of the tasks.
            thread::sleep(Duration::from_millis(600));
            uploads.0.write_all(&[b'x'; 10_000]).await.unwrap();
            reads.0.read_exact(&mut part).await.unwrap();
            tokio::time::sleep(Duration::from_millis(2100)).await;
        }
        // The one that hangs is gone too, though it reads nothing.
        assert_eq!(server.connections(), 2);
        assert_eq!(silent.read().await, "(end)");
        assert_eq!(uploads.ask("").await, "+OK");
        assert!(reads.ask("PING").await.ends_with("x +PONG"));
    });
}
