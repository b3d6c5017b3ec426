//! Times to live count from the command that sets them, however long it has waited.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use zodium_keyspace::{Stripes, now};

use super::{Peer, served, with};
use crate::{Options, Server};

/// Milliseconds that another one keeps a client waiting.
const WAIT: u64 = 100;
/// The longest time between two ticks of a system.
const TICK: u64 = 10;

/// When a key expires whose time to live is given in seconds, in milliseconds since 1970.
async fn set_at(peer: &mut Peer, seconds: u64) -> u64 {
    let at: u64 = peer.ask("PEXPIRETIME key").await.trim_start_matches(':').parse().unwrap();
    at - seconds * 1000
}

#[test]
fn a_command_happens_after_those_before_it_in_a_pipeline() {
    served(|running| async move {
        let mut peer = running.connect();
        let busy = format!("local t = os.clock(); while os.clock() < t + {} do end", 0.15);
        for setting in ["SET key 1 EX 100", "MULTI\r\nSETEX key 100 1\r\nEXEC"] {
            let begun = now();
            peer.ask(&format!("EVAL \"{busy}\" 0\r\n{setting}")).await;
            let set_at = set_at(&mut peer, 100).await;
            assert!(set_at + TICK >= begun + WAIT, "{set_at} {begun}");
        }
    });
}

#[test]
fn the_time_stands_still_within_a_script_and_a_transaction() {
    let script = "local first = redis.call('TIME') local t = os.clock() \
                  while os.clock() < t + 0.03 do end local last = redis.call('TIME') \
                  redis.call('SET', 'key', 1, 'PX', 100000) return {first[1] .. first[2], \
                  last[1] .. last[2], first[1] * 1000 + math.floor(first[2] / 1000), \
                  redis.call('PEXPIRETIME', 'key') - 100000}";
    served(|running| async move {
        let mut peer = running.connect();
        for _ in 0..3 {
            let answer = peer.ask(&format!("EVAL \"{script}\" 0")).await;
            let [_, _, first, _, last, time, set_at] = *answer.split(' ').collect::<Vec<_>>()
            else {
                panic!("{answer}");
            };
            assert_eq!((first, time), (last, set_at));
        }
        let eval = format!("EVAL \"{script}\" 0");
        let answer = peer.ask(&format!("MULTI\r\nTIME\r\n{eval}\r\nTIME\r\nEXEC")).await;
        let answer = answer.rsplit_once("QUEUED *3 ").unwrap().1;
        let words: Vec<_> = answer.split(' ').filter(|word| !word.starts_with('*')).collect();
        assert_eq!(words[..4], words[words.len() - 4..], "{answer}");
        let before = peer.ask("TIME").await;
        assert_ne!(before, peer.ask("TIME").await);
    });
}

#[test]
fn a_command_happens_when_it_has_its_locks() {
    let server = Arc::new(Server::new(Options { workers: 1, ..Options::default() }));
    with(Arc::clone(&server), |running| async move {
        let mut peer = running.connect();
        for setting in ["SET key 1 EX 100", "MULTI\r\nSETEX key 100 1\r\nEXEC"] {
            let begun = now();
            let (told, is_locked) = mpsc::channel();
            let locked = Arc::clone(&server);
            // As a script does.
            let holder = thread::spawn(move || {
                let hold = locked.keyspace.lock(Stripes::ALL, 0);
                told.send(()).unwrap();
                thread::sleep(Duration::from_millis(WAIT));
                drop(hold);
            });
            is_locked.recv().unwrap();
            peer.ask(setting).await;
            holder.join().unwrap();
            let set_at = set_at(&mut peer, 100).await;
            assert!(set_at + TICK >= begun + WAIT, "{set_at} {begun}");
        }
    });
}
