//! A faulty server, made from the real one: what it is asked, or what it sends, is changed.
//!
//! Only for tests of the checks themselves. Each change is a mistake that a server could make, and
//! that the simulation must notice.

use super::plan::RespBug;
use super::request::{Request, words};
use crate::random::Chance;

/// What is held back on one connection.
#[derive(Default)]
pub(super) struct Faults {
    /// The beginning of an answer.
    rest: Vec<u8>,
    /// Messages that come after the next answer.
    held: Vec<u8>,
}

/// What a server executes that makes a mistake.
pub(super) fn altered(bug: RespBug, request: &Request) -> Request {
    let mut altered = request.clone();
    let last = request.len() - 1;
    match (bug, &*request[0]) {
        (RespBug::TakesTwice, b"LPOP") => {
            altered = vec![b"LINDEX".to_vec(), request[1].clone(), b"0".to_vec()];
        }
        (RespBug::ForgetsWatches, b"WATCH") => altered = words(&["UNWATCH"]),
        (RespBug::IgnoresPauses, b"CLIENT") if request[1] == b"PAUSE" => {
            altered[2] = b"0".to_vec();
        }
        (RespBug::AnswersAgain, b"CLIENT") if request[2..] == [b"OFF"] => {
            altered[2] = b"SKIP".to_vec();
        }
        (RespBug::ExpiresLate, b"PEXPIRE") if request[2] != b"0" => {
            altered[2] = b"9999999".to_vec();
        }
        (RespBug::WaitsForEver, b"BLPOP" | b"BRPOP" | b"BLMOVE" | b"BZPOPMIN") => {
            altered[last] = b"0".to_vec();
        }
        _ => {}
    }
    altered
}

impl Faults {
    /// What a client receives in place of some bytes.
    pub(super) fn change(&mut self, bug: RespBug, bytes: &[u8], chance: &Chance) -> Vec<u8> {
        let changes = [
            RespBug::LostMessages,
            RespBug::RepeatedMessages,
            RespBug::LateInvalidations,
            RespBug::WrongBytes,
        ];
        if !changes.contains(&bug) {
            return bytes.to_vec();
        }
        self.rest.extend(bytes);
        let mut changed = Vec::new();
        while let Some(length) = length(&self.rest) {
            let mut frame: Vec<u8> = self.rest.drain(..length).collect();
            let is_invalidation = frame.starts_with(b">2\r\n$10\r\ninvalidate");
            let is_message = is_invalidation
                || frame.starts_with(b">3\r\n$7\r\nmessage")
                || frame.starts_with(b"*3\r\n$7\r\nmessage");
            match bug {
                RespBug::LostMessages if is_message && chance.permille(50) => continue,
                RespBug::RepeatedMessages if is_message && chance.permille(50) => {
                    changed.extend(&frame);
                }
                RespBug::LateInvalidations if is_invalidation => {
                    self.held.extend(frame);
                    continue;
                }
                RespBug::WrongBytes if chance.permille(5) => {
                    let place = frame.len() - 3;
                    frame[place] ^= 1;
                }
                _ => {}
            }
            changed.extend(frame);
            changed.append(&mut self.held);
        }
        changed
    }
}

/// The length of the answer that bytes begin with; `None` if it is not whole.
fn length(bytes: &[u8]) -> Option<usize> {
    let line = bytes.windows(2).position(|window| window == b"\r\n")? + 2;
    let count = std::str::from_utf8(&bytes[1..line - 2]).ok().and_then(|text| text.parse().ok());
    let count: i64 = count.unwrap_or(0);
    let elements = match bytes[0] {
        b'$' if count >= 0 => {
            let length = line + count as usize + 2;
            return (bytes.len() >= length).then_some(length);
        }
        b'*' | b'>' | b'~' => count.max(0),
        b'%' => 2 * count,
        _ => 0,
    };
    (0..elements).try_fold(line, |place, _| Some(place + length(&bytes[place..])?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_apart() {
        for (bytes, expected) in [
            (&b"+OK\r\n:1\r\n"[..], Some(5)),
            (b"$-1\r\n", Some(5)),
            (b"$2\r\nab\r\n", Some(8)),
            (b"$2\r\nab\r", None),
            (b"*2\r\n:1\r\n*1\r\n_\r\n_\r\n", Some(15)),
            (b"*2\r\n:1\r\n", None),
            (b"%1\r\n+a\r\n,1\r\n+b\r\n", Some(12)),
            (b"*-1\r\n", Some(5)),
        ] {
            assert_eq!(length(bytes), expected, "{bytes:?}");
        }
    }
}
