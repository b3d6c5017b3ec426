//! What clients send: requests chosen by chance, of few keys, so that clients meet.

use crate::random::Chance;

/// A command and its arguments.
pub(super) type Request = Vec<Vec<u8>>;

const KEYS: u64 = 5;
const CHANNELS: u64 = 2;

/// Chooses what a client sends at once: some requests, of which only the last one may wait.
/// `is_queueing` is whether the client is within a transaction, before and after.
pub(super) fn pipeline(chance: &Chance, is_queueing: &mut bool) -> Vec<Request> {
    let mut requests: Vec<_> =
        (0..chance.number(1..=4)).map(|_| request(chance, is_queueing)).collect();
    if chance.permille(250) && !*is_queueing {
        requests.push(waiting(chance));
    }
    requests
}

/// The request as it is sent.
pub(super) fn encoded(request: &Request) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", request.len()).into_bytes();
    for word in request {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

fn request(chance: &Chance, is_queueing: &mut bool) -> Request {
    let ends = *is_queueing && chance.permille(300);
    let begins = !*is_queueing && chance.permille(100);
    if ends || begins {
        *is_queueing = begins;
        let name = if begins { "MULTI" } else { ["EXEC", "EXEC", "DISCARD"][chance.place(3)] };
        return words(&[name]);
    }
    match chance.number(0..=99) {
        0..=9 if !*is_queueing => words(&["WATCH", &key(chance), &key(chance)]),
        10..=11 => words(&["UNWATCH"]),
        12..=19 => words(&["PUBLISH", &channel(chance), &value(chance)]),
        20..=21 => words(&["FLUSHALL"]),
        // Within transactions these never wait.
        22..=27 if *is_queueing => waiting(chance),
        _ => data(chance),
    }
}

/// A command that reads or changes keys at once.
fn data(chance: &Chance) -> Request {
    let (one, other, value) = (&*key(chance), &*key(chance), &*value(chance));
    match chance.number(0..=19) {
        0..=1 => words(&["SET", one, value]),
        2 => words(&["GET", one]),
        3 => words(&["MSET", one, value, other, "2"]),
        4 => words(&["MGET", one, other]),
        5 => words(&["INCR", one]),
        6 => words(&["APPEND", one, value]),
        7 => words(&["DEL", one, other]),
        8 => words(&["RENAME", one, other]),
        9..=12 => words(&["RPUSH", one, value]),
        13 => words(&["LPUSH", one, value, "2", "3"]),
        14 => words(&["LPOP", one]),
        15 => words(&["RPOP", one]),
        16 => words(&["LLEN", one]),
        17 => words(&["LRANGE", one, "0", "-1"]),
        18 => words(&["LMOVE", one, other, end(chance), end(chance)]),
        _ => words(&["EXISTS", one, other]),
    }
}

/// A command that waits for an element, if there is none.
fn waiting(chance: &Chance) -> Request {
    let (one, other) = (&*key(chance), &*key(chance));
    // For ever, or some seconds.
    let time = &*chance.number(0..=4).to_string();
    match chance.number(0..=3) {
        0 => words(&["BLPOP", one, time]),
        1 => words(&["BLPOP", one, other, time]),
        2 => words(&["BRPOP", one, other, time]),
        _ => words(&["BLMOVE", one, other, end(chance), end(chance), time]),
    }
}

/// Has a client subscribe, and take no other requests from then on.
pub(super) fn subscription(chance: &Chance) -> Request {
    words(&["SUBSCRIBE", &channel(chance)])
}

fn words(words: &[&str]) -> Request {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

fn key(chance: &Chance) -> String {
    format!("key{}", chance.number(1..=KEYS))
}

fn channel(chance: &Chance) -> String {
    format!("channel{}", chance.number(1..=CHANNELS))
}

/// A number, or a text that is often longer than what has room beside a key.
fn value(chance: &Chance) -> String {
    match chance.permille(600) {
        true => chance.number(0..=9).to_string(),
        false => "x".repeat(chance.size(8000) as usize),
    }
}

fn end(chance: &Chance) -> &'static str {
    ["LEFT", "RIGHT"][chance.place(2)]
}
