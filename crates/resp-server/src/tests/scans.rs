//! `HSCAN`, `SSCAN` and `ZSCAN`: how much a call gives, and that all is given.

use std::collections::BTreeSet;

use super::{Peer, served};

/// The next cursor and the elements of an answer, without values of `v` and scores.
async fn scan(peer: &mut Peer, request: &str) -> (String, Vec<String>) {
    let answer = peer.ask(request).await;
    assert!(answer.starts_with("*2"), "{request}: {answer}");
    let words = answer.split(' ').filter(|word| !word.starts_with(['$', '*']));
    let mut words = words.map(str::to_owned).filter(|word| word != "0.5" && !word.starts_with('v'));
    (words.next().unwrap(), words.collect())
}

/// The elements that each call gave, until the last.
async fn scan_all(peer: &mut Peer, command: &str, count: usize) -> Vec<Vec<String>> {
    let (mut cursor, mut parts) = ("0".to_owned(), Vec::new());
    loop {
        let request = format!("{command} key {cursor} COUNT {count}");
        let (next, found) = scan(peer, &request).await;
        parts.push(found);
        if next == "0" {
            return parts;
        }
        cursor = next;
    }
}

/// Fills `key` with elements that are `long` bytes longer than their numbers.
async fn fill(peer: &mut Peer, command: &str, numbers: std::ops::Range<usize>, long: usize) {
    let pad = "x".repeat(long);
    let adds = numbers.map(|number| match command {
        "HSCAN" => format!("HSET key f{number} v{pad}"),
        "SSCAN" => format!("SADD key f{number}{pad}"),
        _ => format!("ZADD key 0.5 f{number}{pad}"),
    });
    peer.ask(&adds.collect::<Vec<_>>().join("\r\n")).await;
}

#[test]
fn a_call_gives_the_whole_only_of_what_is_in_one_piece() {
    served(|running| async move {
        let mut peer = running.connect();
        for command in ["HSCAN", "SSCAN", "ZSCAN"] {
            for (count, long, is_whole) in [(72, 5, true), (72, 100, false), (600, 5, false)] {
                fill(&mut peer, command, 0..count, long).await;
                let encoding = peer.ask("OBJECT ENCODING key").await;
                assert_eq!(encoding.ends_with("listpack"), is_whole, "{command} {encoding}");
                let parts = scan_all(&mut peer, command, 20).await;
                let all: BTreeSet<_> = parts.iter().flatten().collect();
                assert_eq!(all.len(), count, "{command}");
                // A call ends with the group of the table that has the last of so many.
                assert!(is_whole || parts.iter().all(|part| part.len() < 20 + 16), "{command}");
                assert_eq!(parts.len() == 1, is_whole, "{command} {count} {long}");
                peer.expect(&[("DEL key", ":1")]).await;
            }
        }
        let numbers: Vec<_> = (1000..1300).map(|number| number.to_string()).collect();
        peer.ask(&format!("SADD key {}", numbers.join(" "))).await;
        let parts = scan_all(&mut peer, "SSCAN", 10).await;
        assert_eq!((parts.len(), parts[0].len()), (1, 300));
    });
}

#[test]
fn what_is_there_all_the_time_is_given_when_the_collection_gets_into_one_piece() {
    served(|running| async move {
        let mut peer = running.connect();
        for command in ["HSCAN", "SSCAN", "ZSCAN"] {
            fill(&mut peer, command, 0..100, 10).await;
            fill(&mut peer, command, 100..200, 100).await;
            let (cursor, mut found) = scan(&mut peer, &format!("{command} key 0 COUNT 50")).await;
            assert!(cursor != "0" && found.len() < 100, "{command}");
            let remove = match command {
                "HSCAN" => "HDEL",
                "SSCAN" => "SREM",
                _ => "ZREM",
            };
            let pad = if command == "HSCAN" { String::new() } else { "x".repeat(100) };
            let long: Vec<_> = (100..200).map(|number| format!("f{number}{pad}")).collect();
            peer.expect(&[(&format!("{remove} key {}", long.join(" ")), ":100")]).await;
            let (cursor, rest) = scan(&mut peer, &format!("{command} key {cursor} COUNT 10")).await;
            assert_eq!(cursor, "0", "{command}");
            found.extend(rest);
            found.retain(|element| !long.contains(element));
            assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), 100, "{command}");
            peer.expect(&[("DEL key", ":1")]).await;
        }
    });
}
