//! In which order events of keys are announced.

use std::time::Duration;

use super::{Peer, served};

/// A client that gets all events.
async fn listener(mut peer: Peer) -> Peer {
    peer.expect(&[("CONFIG SET notify-keyspace-events EAn", "+OK")]).await;
    assert!(peer.ask("PSUBSCRIBE __keyevent@0__:*").await.starts_with("*3"));
    peer
}

/// The events that have come, each with its key.
async fn events(listener: &mut Peer) -> String {
    let all = listener.read().await;
    let words: Vec<&str> = all.split(' ').collect();
    let event = |(place, word): (usize, &&str)| {
        let event = word.strip_prefix("__keyevent@0__:").filter(|event| *event != "*")?;
        Some(format!("{event} {}", words.get(place + 2)?))
    };
    let events: Vec<String> = words.iter().enumerate().filter_map(event).collect();
    events.join(", ")
}

#[test]
fn the_end_of_an_expired_key_is_announced_before_what_takes_its_place() {
    served(|running| async move {
        let mut peer = running.connect();
        let mut listener = listener(running.connect()).await;
        for (request, expected) in [
            ("SET a new", "expired a, new a, set a"),
            ("RPUSH a 1", "expired a, new a, rpush a"),
            ("DEL a", "expired a"),
            ("MULTI\r\nSET b 1\r\nDEL a\r\nSET c 1\r\nEXEC", "set b, expired a, set c"),
            // It may be told before: when the script comes to the stripe of the key.
            ("EVAL \"redis.call('SET','a','1') redis.call('SET','b','1')\" 0", {
                "expired a, new a, set a, set b"
            }),
            ("DEL b", "del b"),
        ] {
            peer.ask("MSET b 1 c 1").await;
            peer.ask("DEL a\r\nSET a old PX 5").await;
            std::thread::sleep(Duration::from_millis(8));
            listener.read().await;
            peer.ask(request).await;
            assert_eq!(events(&mut listener).await, expected, "{request}");
            assert!(peer.ask("INFO stats").await.contains("expired_keys:"));
        }
        // Each is counted and announced once.
        assert!(peer.ask("INFO stats").await.contains("expired_keys:5 "));
    });
}

#[test]
fn a_list_that_is_moved_from_announces_after_the_other_one() {
    served(|running| async move {
        let (mut peer, mut waiting) = (running.connect(), running.connect());
        let mut listener = listener(running.connect()).await;
        for (request, expected) in [
            ("RPOPLPUSH l m", "new m, lpush m, rpop l"),
            ("LMOVE l m LEFT RIGHT", "rpush m, lpop l, del l"),
            ("BLMOVE m l RIGHT RIGHT 1", "new l, rpush l, rpop m"),
            ("BRPOPLPUSH m l 1", "lpush l, rpop m, del m"),
            ("LMOVE l l LEFT RIGHT", "rpush l, lpop l"),
        ] {
            if request.starts_with("RPOPLPUSH") {
                peer.ask("RPUSH l 1 2").await;
                listener.read().await;
            }
            peer.ask(request).await;
            assert_eq!(events(&mut listener).await, expected, "{request}");
        }
        waiting.ask("BLMOVE from to LEFT RIGHT 0").await;
        peer.ask("RPUSH from 1").await;
        let expected = "new from, rpush from, new to, rpush to, lpop from, del from";
        assert_eq!(events(&mut listener).await, expected);
    });
}

#[test]
fn a_key_whose_value_is_replaced_is_not_announced_as_new() {
    served(|running| async move {
        let mut peer = running.connect();
        peer.ask("SADD s a\r\nSADD old x\r\nRPUSH l 1").await;
        let mut listener = listener(running.connect()).await;
        for (request, expected) in [
            ("SDIFFSTORE old s", "sdiffstore old"),
            ("SUNIONSTORE old s l2", "sunionstore old"),
            ("SORT l STORE old", "sortstore old"),
            ("SORT l STORE fresh", "new fresh, sortstore fresh"),
            ("SINTERSTORE old s none", "del old"),
        ] {
            peer.ask(request).await;
            assert_eq!(events(&mut listener).await, expected, "{request}");
        }
    });
}
