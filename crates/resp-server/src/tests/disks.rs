//! The log on disks that are slow, or full.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use zodium_disk::{FaultyDisk, MemoryDisk, Operation};
use zodium_keyspace::now;

use super::{Peer, with};
use crate::durability::compact;
use crate::{KeeperOptions, Options, Server};

/// A server with its log on a disk.
fn open(disk: &FaultyDisk, sync: &str) -> Arc<Server> {
    let server = Arc::new(Server::new(Options { workers: 1, ..Options::default() }));
    let (disk, sync) = (Arc::new(disk.clone()), sync.to_owned());
    server.keep(&KeeperOptions { disk, path: "/keys".into(), sync }).unwrap();
    server
}

/// What a client is answered as soon as another thread has brought that about.
async fn read_late(peer: &mut Peer) -> String {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let answer = peer.read().await;
        if !answer.is_empty() || Instant::now() > deadline {
            return answer;
        }
        sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_client_that_writes_waits_for_a_disk_that_hangs() {
    for sync in ["no", "everysec"] {
        let disk = FaultyDisk::new(MemoryDisk::default());
        let server = open(&disk, sync);
        with(Arc::clone(&server), |running| async move {
            let (mut writes, mut reads) = (running.connect(), running.connect());
            let (told, hangs) = mpsc::channel();
            let (end, ended) = mpsc::channel::<()>();
            disk.before_next(Operation::Write, move || {
                told.send(()).unwrap();
                ended.recv().ok();
            });
            writes.expect(&[("SET a 1", "+OK")]).await;
            hangs.recv().unwrap();
            sleep(Duration::from_millis(1100));
            writes.expect(&[("GET a", "$1 1"), ("SET a 2", "")]).await;
            reads.expect(&[("GET a", "$1 2")]).await;
            drop(end);
            assert_eq!(read_late(&mut writes).await, "+OK", "{sync}");
            server.close_log().unwrap();
        });
    }
}

#[test]
fn a_compaction_that_fails_is_not_tried_again_at_once() {
    let disk = FaultyDisk::new(MemoryDisk::default());
    let server = open(&disk, "no");
    with(Arc::clone(&server), |running| async move {
        let mut peer = running.connect();
        disk.fail_from(Operation::Open, 1, ErrorKind::StorageFull);
        let before = disk.count(Operation::Open);
        peer.expect(&[("CONFIG SET auto-aof-rewrite-min-size 0", "+OK"), ("SET a 1", "+OK")]).await;
        let began = now();
        while disk.count(Operation::Open) == before {
            tokio::time::sleep(Duration::from_millis(100)).await;
            sleep(Duration::from_millis(1));
        }
        for _ in 0..50 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            sleep(Duration::from_millis(1));
        }
        // The next one comes after two seconds, which can pass on a slow machine.
        let tried = disk.count(Operation::Open) - before;
        assert!(tried == 1 || now() - began > 2000, "{tried} times");
        disk.mend();
        peer.send("SAVE").await;
        assert_eq!(read_late(&mut peer).await, "+OK");
        assert!(peer.ask("INFO persistence").await.contains("aof_last_bgrewrite_status:ok"));
    });
}

#[test]
fn what_changes_while_a_compaction_syncs_is_copied_before_all_stripes_are_locked() {
    let disk = FaultyDisk::new(MemoryDisk::default());
    let server = open(&disk, "no");
    let fill = {
        let server = Arc::clone(&server);
        move || {
            let set = |number: u32| format!("*3\r\n$3\r\nSET\r\n$5\r\nk{number:04}\r\n$1\r\nv\r\n");
            let all: String = (0..1000).map(set).collect();
            server.import_commands(all.as_bytes()).unwrap();
        }
    };
    fill();
    let copied = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&copied);
    let compacting = thread::current().id();
    disk.after_each(move |operation, disk| {
        if operation == Operation::Write && thread::current().id() == compacting {
            let copy = disk.bytes("/keys.new".as_ref()).unwrap();
            seen.store(copy.len(), Ordering::Relaxed);
        }
    });
    disk.before_next(Operation::Sync, fill);
    assert!(compact(&server));
    server.close_log().unwrap();
    let whole = disk.files().bytes("/keys".as_ref()).unwrap().len();
    let copied = copied.load(Ordering::Relaxed);
    // A record of these keys has 40 bytes: 2,000 were copied, and hardly one is left.
    assert!(copied > 60_000 && whole - copied < 1000, "{copied} of {whole}");
}
