//! `SCAN`, `HSCAN`, `SSCAN` and `ZSCAN`.
//!
//! A cursor is a place among the hashes of keys: the server remembers nothing, and what is there
//! from the first call to the last is given. Collections that the stock server would keep in one
//! piece are given whole, as it does.

use zodium_keyspace::{Hash, Set, SortedSet, ValueRef};
use zodium_resp::format_double;

use super::encoding;
use crate::call::{Call, Options, integer, is};
use crate::fail::{Fail, Outcome, SYNTAX};
use crate::glob;
use crate::reply::Reply;

/// Elements that a call gives if it does not say how many.
const COUNT: usize = 10;
/// Types that exist here.
const TYPES: [&str; 6] = ["string", "list", "set", "zset", "hash", "stream"];

/// The options of a scan.
struct Scan<'a> {
    cursor: u64,
    count: usize,
    pattern: Option<&'a [u8]>,
    kind: Option<&'a [u8]>,
    only_names: bool,
}

impl<'o> Scan<'o> {
    /// The scan of a command whose options begin at a place.
    fn of(call: &Call<'o, '_>, cursor: u64, options: usize) -> Result<Scan<'o>, Fail> {
        let is_of_keys = is(call.word(0), "scan");
        let mut scan = Scan { cursor, count: COUNT, pattern: None, kind: None, only_names: false };
        let mut options = Options::from(call.arguments, options);
        while let Some(word) = options.next() {
            if is(word, "count") {
                let count = integer(options.value()?)?;
                scan.count = usize::try_from(count).ok().filter(|c| *c > 0).ok_or(SYNTAX)?;
            } else if is(word, "match") {
                scan.pattern = Some(options.value()?);
            } else if is(word, "type") && is_of_keys {
                let kind = options.value()?;
                if !TYPES.iter().any(|name| is(kind, name)) {
                    let kind = String::from_utf8_lossy(kind);
                    return Err(Fail::text(format!("ERR unknown type name '{kind}'")));
                }
                scan.kind = Some(kind);
            } else if is(word, "novalues") {
                if !is(call.word(0), "hscan") {
                    return Err(Fail::fixed("ERR NOVALUES option can only be used in HSCAN"));
                }
                scan.only_names = true;
            } else if is(word, "noscores") && is(call.word(0), "zscan") {
                scan.only_names = true;
            } else {
                return Err(SYNTAX);
            }
        }
        Ok(scan)
    }

    fn fits(&self, word: &[u8]) -> bool {
        self.pattern.is_none_or(|pattern| pattern == b"*" || glob::fits(pattern, word))
    }

    /// What a scan visits from the cursor on, and the next cursor; with `whole` all of it.
    fn elements<'a, T>(
        &self,
        whole: bool,
        scan: impl Fn(u64, &mut dyn FnMut(&'a [u8], T)) -> Option<u64>,
    ) -> (u64, Vec<(&'a [u8], T)>) {
        let (mut found, mut visited) = (Vec::new(), 0);
        let mut position = if whole { 0 } else { self.cursor.reverse_bits() };
        loop {
            let next = scan(position, &mut |name, value| {
                visited += 1;
                if self.fits(name) {
                    found.push((name, value));
                }
            });
            match next {
                None => return (0, found),
                Some(next) if visited >= self.count && !whole => {
                    return (next.reverse_bits(), found);
                }
                Some(next) => position = next,
            }
        }
    }
}

/// The cursor among the arguments.
fn cursor(call: &Call, place: usize) -> Result<u64, Fail> {
    let text = std::str::from_utf8(call.word(place)).ok();
    let text = text.filter(|text| !text.starts_with('+'));
    text.and_then(|text| text.parse().ok()).ok_or(Fail::fixed("ERR invalid cursor"))
}

pub(super) fn scan(call: &mut Call) -> Outcome {
    let scan = Scan::of(call, cursor(call, 1)?, 2)?;
    let mut found: Vec<&[u8]> = Vec::new();
    let next = call.hold.scan(scan.cursor, scan.count, &mut |entry| {
        let name = entry.value().type_name();
        let is_of_kind = scan.kind.is_none_or(|kind| is(kind, name));
        if is_of_kind && scan.fits(entry.key()) {
            found.push(entry.key());
        }
    });
    begin(&mut call.reply, next);
    call.reply.words(&found);
    Ok(())
}

pub(super) fn hscan(call: &mut Call) -> Outcome {
    let cursor = cursor(call, 2)?;
    // Without a key the options are not even looked at.
    let Some(hash) = call.hold.read::<Hash>(call.word(1))? else { return nothing(call) };
    let scan = Scan::of(call, cursor, 3)?;
    let whole = encoding::is_in_one_piece(call.server, ValueRef::Hash(hash));
    let (next, found) = scan.elements(whole, |from, visit| hash.scan(from, visit));
    begin(&mut call.reply, next);
    call.reply.array(found.len() * if scan.only_names { 1 } else { 2 });
    for (field, value) in found {
        call.reply.bulk(field);
        if !scan.only_names {
            call.reply.bulk(value);
        }
    }
    Ok(())
}

pub(super) fn sscan(call: &mut Call) -> Outcome {
    let cursor = cursor(call, 2)?;
    // Without a key the options are not even looked at.
    let Some(set) = call.hold.read::<Set>(call.word(1))? else { return nothing(call) };
    let scan = Scan::of(call, cursor, 3)?;
    let whole = encoding::is_in_one_piece(call.server, ValueRef::Set(set));
    let (next, found) = scan.elements(whole, |from, visit| set.scan(from, visit));
    begin(&mut call.reply, next);
    call.reply.array(found.len());
    found.into_iter().for_each(|(member, ())| call.reply.bulk(member));
    Ok(())
}

pub(super) fn zscan(call: &mut Call) -> Outcome {
    let cursor = cursor(call, 2)?;
    // Without a key the options are not even looked at.
    let Some(set) = call.hold.read::<SortedSet>(call.word(1))? else { return nothing(call) };
    let scan = Scan::of(call, cursor, 3)?;
    let whole = encoding::is_in_one_piece(call.server, ValueRef::SortedSet(set));
    let (next, found) = scan.elements(whole, |from, visit| set.scan(from, visit));
    begin(&mut call.reply, next);
    call.reply.array(found.len() * if scan.only_names { 1 } else { 2 });
    for (member, score) in found {
        call.reply.bulk(member);
        if !scan.only_names {
            // Bytes also in RESP3.
            call.reply.text(&format_double(score));
        }
    }
    Ok(())
}

fn begin(reply: &mut Reply, next: u64) {
    reply.array(2);
    reply.text(&next.to_string());
}

fn nothing(call: &mut Call) -> Outcome {
    begin(&mut call.reply, 0);
    call.reply.array(0);
    Ok(())
}
