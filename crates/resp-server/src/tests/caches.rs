//! Clients with a cache of their own learn of a change before what comes of it.

use super::{Peer, served};

/// A client with a cache, told of changes in this way, which listens to a channel and to events.
async fn listener(mut peer: Peer, way: &str) -> Peer {
    assert!(peer.ask("HELLO 3").await.starts_with('%'));
    peer.expect(&[
        ("CONFIG SET notify-keyspace-events E$lx", "+OK"),
        (&format!("CLIENT TRACKING ON {way}"), "+OK"),
    ])
    .await;
    assert!(peer.ask("SUBSCRIBE ch").await.contains(" subscribe "));
    assert!(peer.ask("PSUBSCRIBE __keyevent@0__:*").await.contains(" psubscribe "));
    peer
}

/// What kinds of messages have come, with their last words.
async fn messages(listener: &mut Peer) -> String {
    let all = listener.read().await;
    let message = |part: &str| {
        let words: Vec<&str> = part.split(' ').collect();
        Some(format!("{} {}", words.get(2)?, words.last()?))
    };
    all.split('>').filter_map(|part| message(part.trim_end())).collect::<Vec<_>>().join(", ")
}

#[test]
fn a_client_that_gets_a_message_has_been_told_of_the_changes_before_it() {
    served(|running| async move {
        let mut peer = running.connect();
        let mut listener = listener(running.connect(), "").await;
        for (request, expected) in [
            ("SET k 2", "invalidate k, pmessage k"),
            ("MULTI\r\nSET k 2\r\nPUBLISH ch x\r\nEXEC", { "invalidate k, pmessage k, message x" }),
            ("MULTI\r\nPUBLISH ch x\r\nSET k 2\r\nEXEC", { "message x, invalidate k, pmessage k" }),
            // A change without an event.
            ("MULTI\r\nDEL k\r\nPUBLISH ch x\r\nSET k 1\r\nEXEC", {
                "invalidate k, message x, pmessage k"
            }),
            ("EVAL \"redis.call('DEL','k') redis.call('PUBLISH','ch','x')\" 0", {
                "invalidate k, message x"
            }),
            ("MULTI\r\nFLUSHALL\r\nPUBLISH ch x\r\nEXEC", "invalidate _, message x"),
        ] {
            peer.ask("SET k 1").await;
            listener.ask("GET k").await;
            peer.ask(request).await;
            assert_eq!(messages(&mut listener).await, expected, "{request}");
        }
        // A key whose time is past.
        peer.ask("SET k 1 PX 500").await;
        listener.ask("GET k").await;
        std::thread::sleep(std::time::Duration::from_millis(501));
        peer.ask("RPUSH k 1").await;
        let expected = "invalidate k, pmessage k, pmessage k";
        assert_eq!(messages(&mut listener).await, expected);
    });
}

#[test]
fn clients_of_prefixes_get_one_message_for_a_transaction() {
    served(|running| async move {
        let mut peer = running.connect();
        let mut listener = listener(running.connect(), "BCAST").await;
        peer.ask("MULTI\r\nSET a 1\r\nPUBLISH ch x\r\nSET b 2\r\nSET a 3\r\nEXEC").await;
        let all = listener.read().await;
        assert!(all.ends_with(" >2 $10 invalidate *2 $1 a $1 b"), "{all}");
        assert_eq!(all.matches("invalidate").count(), 1, "{all}");
    });
}

#[test]
fn a_client_that_has_waited_for_a_stream_is_told_of_the_next_change() {
    served(|running| async move {
        let (mut peer, mut reader) = (running.connect(), running.connect());
        assert!(reader.ask("HELLO 3").await.starts_with('%'));
        let told = ">2 $10 invalidate *1 $1 s";
        for (caching, is_told) in [("", true), ("YES", true), ("NO", false)] {
            let options = if caching == "YES" { "OPTIN" } else { "OPTOUT" };
            reader.ask(&format!("CLIENT TRACKING ON {options}")).await;
            if !caching.is_empty() {
                reader.expect(&[(&format!("CLIENT CACHING {caching}"), "+OK")]).await;
            }
            assert_eq!(reader.ask("XREAD BLOCK 0 STREAMS s $").await, "");
            peer.ask("XADD s * a b").await;
            let served = reader.read().await;
            assert!(served.contains(" $1 a $1 b"), "{served}");
            assert_eq!(served.contains(told), is_told, "{served}");
            peer.ask("XADD s * a b").await;
            assert_eq!(reader.read().await, if is_told { told } else { "" });
            peer.ask("XADD s * a b").await;
            assert_eq!(reader.read().await, "");
            reader.expect(&[("CLIENT TRACKING OFF", "+OK")]).await;
        }
    });
}

#[test]
fn clients_that_have_gone_are_not_remembered_for_a_key_that_never_changes() {
    served(|running| async move {
        let mut reader = listener(running.connect(), "").await;
        reader.ask("GET k").await;
        for _ in 0..200 {
            let mut other = listener(running.connect(), "").await;
            other.ask("GET k").await;
            other.send("QUIT").await;
        }
        let mut peer = running.connect();
        let stats = peer.ask("INFO stats").await;
        let items = stats.split(' ').find_map(|line| line.strip_prefix("tracking_total_items:"));
        let items: usize = items.unwrap().parse().unwrap();
        assert!((1..50).contains(&items), "{items}");
        peer.ask("SET k 1").await;
        assert_eq!(messages(&mut reader).await, "invalidate k, pmessage k");
    });
}

#[test]
fn a_subscriber_that_redirects_invalidations_to_itself_gets_them() {
    served(|running| async move {
        let (mut peer, mut cache) = (running.connect(), running.connect());
        let id = cache.ask("CLIENT ID").await;
        let tracking = format!("CLIENT TRACKING ON BCAST REDIRECT {}", id.trim_start_matches(':'));
        cache
            .expect(&[
                (&tracking, "+OK"),
                ("SUBSCRIBE __redis__:invalidate", "*3 $9 subscribe $20 __redis__:invalidate :1"),
            ])
            .await;
        peer.expect(&[("SET k 1", "+OK")]).await;
        assert_eq!(cache.read().await, "*3 $7 message $20 __redis__:invalidate *1 $1 k");
    });
}
