//! What is read from the log is what the clients had seen.

use std::rc::Rc;
use std::sync::Arc;

use zodium_disk::{Disk, MemoryDisk};
use zodium_keylog::{Log, OpenError, Sync};
use zodium_resp::OwnedRequest;
use zodium_tls::PeerIdentity;
use zodium_types::{Oid, Tid};

use super::{Peer, with};
use crate::durability::{write_command, write_parked};
use crate::{Commit, KeeperOptions, Loaded, Options, Server, Storages};

/// The object that keys are tied to.
const OBJECT: Oid = Oid(7);

/// A storage whose objects were all written by its only transaction, this one; 0 if there is none.
pub(super) struct OneCommit(pub(super) Tid);

impl Storages for OneCommit {
    fn find(&self, name: &str) -> Option<usize> {
        (name == "main").then_some(0)
    }

    fn name(&self, _: usize) -> &'static str {
        "main"
    }

    fn admits(&self, _: usize, _: Option<&PeerIdentity>) -> bool {
        true
    }

    fn last_tid(&self, _: usize) -> Tid {
        self.0
    }

    fn may_have_changed(&self, _: usize, _: Tid, _: &[Oid]) -> bool {
        false
    }

    fn changed_at(&self, _: usize, _: Oid) -> Option<Tid> {
        Some(self.0)
    }

    fn tokens_after(&self, _: usize, _: Tid, _: &mut dyn FnMut(Tid, &[u8])) {}

    fn count(&self) -> usize {
        1
    }

    fn load(&self, _: usize, _: Oid, _: Tid, _: bool) -> Loaded {
        Loaded::Missing
    }
}

/// A server with the log on a disk, beside a storage.
fn open(disk: &Arc<dyn Disk>) -> Arc<Server> {
    open_with(disk, "no", OneCommit(Tid(1)))
}

pub(super) fn open_with(
    disk: &Arc<dyn Disk>,
    sync: &str,
    storages: impl Storages + 'static,
) -> Arc<Server> {
    try_open(disk, sync, storages).unwrap()
}

fn try_open(
    disk: &Arc<dyn Disk>,
    sync: &str,
    storages: impl Storages + 'static,
) -> Result<Arc<Server>, OpenError> {
    let server = Arc::new(Server::new(Options { workers: 1, ..Options::default() }));
    server.attach(Arc::new(storages));
    let (disk, sync) = (Arc::clone(disk), sync.to_owned());
    server.keep(&KeeperOptions { disk, path: "/keys".into(), sync })?;
    Ok(server)
}

/// What a request is answered by a server that has executed `steps`, and by one that has read the
/// log of the first.
pub(super) fn answers(steps: impl AsyncFn(&Server, &mut Peer), question: &str) -> [String; 2] {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
    let ask = |server: Arc<Server>, are_there: bool| {
        let (answer, steps) = (Rc::new(std::cell::OnceCell::new()), &steps);
        let told = Rc::clone(&answer);
        with(Arc::clone(&server), |running| async move {
            let mut peer = running.connect();
            if !are_there {
                steps(&server, &mut peer).await;
            }
            told.set(peer.ask(question).await).unwrap();
            server.close_log().unwrap();
        });
        answer.get().unwrap().clone()
    };
    [ask(open(&disk), false), ask(open(&disk), true)]
}

#[test]
fn keys_whose_ties_were_cut_are_not_seen_again_when_the_log_is_read() {
    for (prepare, command, question, expected) in [
        ("SADD tied a\r\nSADD s b", "SUNIONSTORE d s tied", "SMEMBERS d", "*1 $1 b"),
        ("SADD tied a\r\nSADD s a", "SDIFFSTORE d s tied", "SMEMBERS d", "*1 $1 a"),
        ("SADD tied a\r\nSADD s a\r\nSADD d x", "SINTERSTORE d s tied", "SMEMBERS d", "*0"),
        ("ZADD tied 1 a\r\nZADD z 2 b", "ZUNIONSTORE d 2 tied z", "ZRANGE d 0 -1", "*1 $1 b"),
        ("ZADD tied 1 a\r\nZADD d 2 b", "ZRANGESTORE d tied 0 -1", "ZRANGE d 0 -1", "*0"),
        ("SET tied abc\r\nSET s d", "BITOP OR d s tied", "GET d", "$1 d"),
        ("RPUSH l ed xx\r\nSET tied 3", "SORT l BY ti* STORE d", "LRANGE d 0 -1", "*2 $2 ed $2 xx"),
        ("RPUSH l ed\r\nSET tied 3", "SORT l GET ti* ALPHA STORE d", "LRANGE d 0 -1", "*1 $0"),
        (
            "SADD tied a\r\nSADD s b",
            "MULTI\r\nSUNIONSTORE d s tied\r\nSADD tied c\r\nEXEC",
            "SMEMBERS d",
            "*1 $1 b",
        ),
        ("SADD tied a\r\nSADD s b", "SUNIONSTORE tied s tied", "SMEMBERS tied", "*1 $1 b"),
        (
            "SADD tied a\r\nSADD s b",
            "EVAL \"redis.call('SUNIONSTORE', 'd', 's', 'tied')\" 0",
            "SMEMBERS d",
            "*1 $1 b",
        ),
    ] {
        let steps = async |server: &Server, peer: &mut Peer| {
            peer.ask(prepare).await;
            peer.expect(&[(&format!("ZTIE tied {:x}", OBJECT.0), ":1")]).await;
            server.committed(0, &[Commit { tid: Tid(1), oids: &[OBJECT], number: 1 }]);
            let answer = peer.ask(command).await;
            assert!(!answer.contains("-ERR"), "{answer}");
        };
        assert_eq!(answers(steps, question), [expected, expected], "{command}");
    }
}

#[test]
fn values_beyond_a_limit_that_is_lower_now_come_back() {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
    let server = open(&disk);
    with(Arc::clone(&server), |running| async move {
        running.connect().expect(&[("SETRANGE k 2000000 x", ":2000001")]).await;
        server.close_log().unwrap();
    });
    let server = Arc::new(Server::new(Options { workers: 1, ..Options::default() }));
    assert_eq!(server.configure("proto-max-bulk-len", "1mb"), Ok(true));
    server.keep(&KeeperOptions { disk, path: "/keys".into(), sync: "no".to_owned() }).unwrap();
    with(server, |running| async move {
        let mut peer = running.connect();
        peer.expect(&[("STRLEN k", ":2000001")]).await;
        assert!(peer.ask("SETRANGE n 2000000 x").await.contains("exceeds maximum allowed size"));
    });
}

#[test]
fn streams_are_cut_by_the_settings_of_their_time() {
    for (command, expected) in
        [("XADD s MAXLEN ~ 3 99-1 f v", ":3"), ("XTRIM s MAXLEN ~ 3", ":4"), ("PING", ":6")]
    {
        let steps = async |_: &Server, peer: &mut Peer| {
            // Small nodes at first, then large ones as by default.
            peer.ask("CONFIG SET stream-node-max-entries 100").await;
            for number in 1..7 {
                peer.ask(&format!("XADD s MAXLEN ~ 3 {number}-1 f v")).await;
            }
            peer.ask("CONFIG SET stream-node-max-entries 2").await;
            peer.ask(command).await;
        };
        assert_eq!(answers(steps, "XLEN s"), [expected, expected], "{command}");
    }
}

fn request(words: &str) -> OwnedRequest {
    words.split(' ').map(str::as_bytes).collect()
}

/// A log with a record of a string, and one of each of these items behind it; its bytes.
fn log_with(items: &[&[u8]]) -> (MemoryDisk, Vec<u8>) {
    let memory = MemoryDisk::default();
    let disk: Arc<dyn Disk> = Arc::new(memory.clone());
    let log = Log::open(&disk, "/keys".as_ref(), Sync::No, |_| Ok::<(), OpenError>(())).unwrap();
    let mut known = Vec::new();
    write_command(&mut known, 0, request("SET a 1").arguments());
    for item in [&[known.as_slice()], items].concat() {
        log.append(&[&1_790_000_000_000_u64.to_be_bytes(), item].concat());
    }
    drop(log);
    let bytes = memory.bytes("/keys".as_ref()).unwrap();
    (memory, bytes)
}

/// Else the next compaction would write a log without it.
#[test]
fn a_log_with_something_unknown_is_refused_and_stays_as_it_is() {
    let command = |words: &str| {
        let mut item = Vec::new();
        write_command(&mut item, 0, request(words).arguments());
        item
    };
    let value = [&[2, 0, 0, 0, 0, 1, b'z'][..], &[0; 8], &[0, 0, 0, 2, 250, 1]].concat();
    let mut parked = Vec::new();
    let newer = request("SETNEWER a 2");
    write_parked(&mut parked, b"token", 0, &[], [newer.arguments()].into_iter());
    for (item, what) in [
        (command("SETNEWER a 2"), "ERR unknown command 'SETNEWER'"),
        (command("DEL"), "ERR wrong number of arguments for 'del' command"),
        (value, "a value of the kind 250"),
        (parked, "ERR unknown command 'SETNEWER'"),
        (vec![7, 0, 0, 0, 0], "an item"),
    ] {
        let (disk, before) = log_with(&[&item, &command("SET b 1")]);
        // The end of a write that a crash has cut off stays too.
        let before = [before, vec![0xd1]].concat();
        disk.put("/keys".as_ref(), before.clone());
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let error = try_open(&shared, "no", OneCommit(Tid(1))).err().unwrap().to_string();
        let at = before.windows(item.len()).position(|bytes| bytes == item).unwrap() - 18;
        let expected = format!("/keys has at byte {at} what this program does not know ({what}");
        assert!(error.starts_with(&expected), "{error}, and not {expected}");
        assert!(disk.bytes("/keys".as_ref()).unwrap() == before, "{what}");
    }
}

/// Its client got the error.
#[test]
fn a_logged_command_that_fails_does_not_prevent_a_start() {
    let mut item = Vec::new();
    for words in ["SET text abc", "INCR text", "SET a 2 NEWOPTION", "SET last 3"] {
        write_command(&mut item, 0, request(words).arguments());
    }
    let (disk, _) = log_with(&[&item]);
    with(open(&(Arc::new(disk) as Arc<dyn Disk>)), |running| async move {
        running.connect().expect(&[("GET a", "$1 1"), ("GET last", "$1 3")]).await;
    });
}

#[test]
fn ties_to_a_storage_that_has_lost_its_last_transaction_are_cut_when_the_log_is_read() {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
    let run = |storage, request: &'static str, expected: &'static str| {
        let server = open_with(&disk, "no", storage);
        with(Arc::clone(&server), |running| async move {
            running.connect().expect(&[(request, expected)]).await;
            server.close_log().unwrap();
        });
    };
    let commit = || OneCommit(Tid(1));
    run(commit(), "SET tied a TIE 7", "+OK");
    run(commit(), "GET tied", "$1 a");
    run(OneCommit(Tid::ZERO), "GET tied", "$-1");
    run(commit(), "GET tied", "$-1");
}

#[test]
fn members_of_a_set_that_weigh_the_same_are_stored_in_one_order() {
    let members: Vec<_> = (10..60).map(|number| number.to_string()).collect();
    let add = format!("SADD s {}", members.join(" "));
    for (sort, expected) in [
        ("SORT s BY w_* ALPHA LIMIT 0 3 STORE d", "*3 $2 10 $2 11 $2 12"),
        ("SORT s BY w_* ALPHA DESC LIMIT 0 3 STORE d", "*3 $2 59 $2 58 $2 57"),
        ("SORT s BY w_* LIMIT 0 3 STORE d", "*3 $2 10 $2 11 $2 12"),
        ("SORT s BY * LIMIT 0 3 STORE d", "*3 $2 10 $2 11 $2 12"),
    ] {
        let steps = async |_: &Server, peer: &mut Peer| {
            peer.expect(&[(&add, ":50"), (sort, ":3")]).await;
        };
        assert_eq!(answers(steps, "LRANGE d 0 -1"), [expected, expected], "{sort}");
    }
}

#[test]
fn a_client_that_waits_is_not_served_before_the_log_can_be_written() {
    let memory = Arc::new(MemoryDisk::default());
    let disk: Arc<dyn Disk> = Arc::clone(&memory) as Arc<dyn Disk>;
    let server = open_with(&disk, "always", OneCommit(Tid(1)));
    with(Arc::clone(&server), |running| async move {
        let (mut peer, mut waits) = (running.connect(), running.connect());
        let mut lost = running.connect();
        assert_eq!(waits.ask("BLPOP list 0").await, "");
        peer.send("MULTI\r\nRPUSH list x\r\nZEXEC token").await;
        // The log has threads of its own, for which the time of the test does not wait.
        let answer =
            until(async || Some(peer.read().await).filter(|all| all.ends_with(":1"))).await;
        assert_eq!(answer, "+OK +QUEUED :1");
        memory.set_capacity(memory.used_bytes());
        lost.send("SET a 1").await;
        until(async || {
            lost.read().await;
            server.log.check().err()
        })
        .await;
        // A commit cannot be refused any more.
        assert_eq!(server.claim(0, 1, b"token"), Ok(true));
        server.committed(0, &[Commit { tid: Tid(1), oids: &[], number: 1 }]);
        assert_eq!(waits.read().await, "");
        peer.expect(&[("LRANGE list 0 -1", "*1 $1 x")]).await;
        memory.set_capacity(u64::MAX);
        let answer = until(async || Some(waits.read().await).filter(|all| !all.is_empty())).await;
        assert_eq!(answer, "*2 $4 list $1 x");
        peer.expect(&[("EXISTS list", ":0")]).await;
    });
}

/// They are copied in pieces, some of which their writers make useless.
#[test]
fn large_values_that_change_during_a_compaction_come_back() {
    let fill = "for i = 1, 10000 do redis.call('RPUSH', 'l', i) redis.call('SADD', 'm', i) \
         redis.call('ZADD', 'z', i % 7, i) redis.call('HSET', 'h', i, 'v') \
         redis.call('HSET', 'still', i, 'v') end redis.call('EXPIRE', 'still', 100000)";
    let question = "PEXPIRETIME still\r\nEVAL \"local all = redis.call('LRANGE', 'l', 0, -1) \
         for _, word in ipairs(redis.call('ZRANGE', 'z', 0, -1, 'WITHSCORES')) do \
         all[#all + 1] = word end local sorted = redis.call('SMEMBERS', 'm') \
         for _, key in ipairs({'h', 'still'}) do local hash = redis.call('HGETALL', key) \
         for i = 1, #hash, 2 do sorted[#sorted + 1] = key .. hash[i] .. '=' .. hash[i + 1] end end \
         table.sort(sorted) \
         return redis.sha1hex(table.concat(all, ',') .. table.concat(sorted, ','))\" 0";
    let steps = async |server: &Server, peer: &mut Peer| {
        peer.expect(&[(&format!("EVAL \"{fill}\" 0"), "$-1")]).await;
        for round in 0..5 {
            let before = server.log.keeper().map(|keeper| keeper.log.replacements());
            // The one before may be in place, and not ended.
            until(async || peer.ask("BGREWRITEAOF").await.starts_with('+').then_some(())).await;
            let mut number = 0;
            until(async || {
                for key in ["h", "m", "z", "l"] {
                    number += 1;
                    let change = match key {
                        "h" => format!("HSET h {number} {round}\r\nHDEL h {}", number * 7 % 9000),
                        "m" => format!("SREM m {number}"),
                        "z" => format!("ZADD z {round} {number}"),
                        _ => format!("LSET l {number} {round}\r\nRPOPLPUSH l l"),
                    };
                    peer.ask(&change).await;
                }
                let now = server.log.keeper().map(|keeper| keeper.log.replacements());
                (now > before).then_some(())
            })
            .await;
        }
    };
    let [before, again] = answers(steps, question);
    assert!(before.starts_with(":1") && before.contains("$40 "), "{before}");
    assert_eq!(again, before);
}

/// What a thing becomes that depends on other threads.
pub(super) async fn until<T>(mut look: impl AsyncFnMut() -> Option<T>) -> T {
    for _ in 0..2000 {
        if let Some(found) = look().await {
            return found;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("it does not happen");
}
