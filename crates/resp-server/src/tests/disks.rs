//! The log on disks that are slow, or full.

use std::io::ErrorKind;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use zodium_disk::{FaultyDisk, MemoryDisk, Operation};
use zodium_keyspace::now;

use super::{Peer, with};
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
