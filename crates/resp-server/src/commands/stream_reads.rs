//! `XREAD` and `XREADGROUP`: entries behind ids, of several streams, with waiting.

use std::ops::{Bound, Range};

use zodium_keyspace::{Pending, Sight, Stream, StreamId};
use zodium_resp::{OwnedRequest, parse_integer};

use super::after_streams;
use super::stream_options::{answer_entry, count, id, no_group};
use crate::call::{Call, Options, is};
use crate::fail::{Fail, Outcome, SYNTAX};

/// A command's options.
#[derive(Default)]
struct Reading<'a> {
    count: Option<usize>,
    /// Seconds to wait; 0 for ever.
    wait: Option<f64>,
    group: Option<(&'a [u8], &'a [u8])>,
    acknowledges: bool,
    /// Places of the keys. Those of the ids follow.
    keys: Range<usize>,
}

/// From where a stream is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    /// Entries behind this one.
    After(StreamId),
    /// Entries that no consumer of the group has got.
    New,
}

fn timeout(word: &[u8]) -> Result<f64, Fail> {
    let ms = parse_integer(word);
    let ms = ms.ok_or(Fail::fixed("ERR timeout is not an integer or out of range"))?;
    match ms < 0 {
        true => Err(Fail::fixed("ERR timeout is negative")),
        false => Ok(ms as f64 / 1000.0),
    }
}

impl<'a> Reading<'a> {
    fn of(call: &Call<'a, '_>, is_grouped: bool) -> Result<Reading<'a>, Fail> {
        let mut found = Reading::default();
        let mut options = Options::from(call.arguments, 1);
        let only_grouped = |name: &str| {
            Err(Fail::text(format!(
                "ERR The {name} option is only supported by XREADGROUP. You called XREAD instead."
            )))
        };
        while let Some(word) = options.next() {
            if is(word, "block") && options.left() > 0 {
                found.wait = Some(timeout(options.value()?)?);
            } else if is(word, "count") && options.left() > 0 {
                found.count = Some(count(options.value()?)?);
            } else if is(word, "group") && options.left() >= 2 {
                if !is_grouped {
                    return only_grouped("GROUP");
                }
                found.group = Some((options.value()?, options.value()?));
            } else if is(word, "noack") {
                if !is_grouped {
                    return only_grouped("NOACK");
                }
                found.acknowledges = true;
            } else if is(word, "streams") && options.left() > 0 {
                if !options.left().is_multiple_of(2) {
                    return Err(unbalanced(is_grouped));
                }
                found.keys = after_streams(call.arguments, call.len() - options.left() - 1);
                break;
            } else {
                return Err(SYNTAX);
            }
        }
        if found.keys.is_empty() {
            return Err(SYNTAX);
        }
        if is_grouped && found.group.is_none() {
            return Err(Fail::fixed("ERR Missing GROUP option for XREADGROUP"));
        }
        Ok(found)
    }
}

fn unbalanced(is_grouped: bool) -> Fail {
    let (name, symbol) = if is_grouped { ("xreadgroup", '>') } else { ("xread", '$') };
    Fail::text(format!(
        "ERR Unbalanced '{name}' list of streams: for each stream key an ID or '{symbol}' must be \
         specified."
    ))
}

pub(super) fn xread(call: &mut Call) -> Outcome {
    let reading = Reading::of(call, false)?;
    let mut starts = Vec::new();
    for place in reading.keys.clone() {
        let word = call.word(place + reading.keys.len());
        let stream = call.hold.read::<Stream>(call.word(place))?;
        starts.push(match word {
            b"$" => stream.map_or(StreamId::default(), |stream| stream.last),
            // The last entry that there ever was, if it was not deleted.
            b"+" => stream.and_then(|stream| stream.last.previous()).unwrap_or_default(),
            b">" => {
                return Err(Fail::fixed(
                    "ERR The > ID can be specified only when calling XREADGROUP using the GROUP \
                     <group> <consumer> option.",
                ));
            }
            word => id(word, 0)?,
        });
    }
    let most = reading.count.filter(|count| *count > 0).unwrap_or(usize::MAX);
    let behind = |start: StreamId| (Bound::Excluded(start), Bound::Unbounded);
    let mut found = Vec::new();
    for (place, start) in reading.keys.clone().zip(&starts) {
        let stream = call.hold.read::<Stream>(call.word(place))?;
        let Some(stream) = stream else { continue };
        let entries: Vec<_> = stream.range(behind(*start)).take(most).collect();
        if !entries.is_empty() {
            found.push((call.word(place), entries));
        }
    }
    if found.is_empty() {
        if reading.wait.is_some() {
            call.waits_as = Some(with_ids(call, &reading, &starts));
        }
        wait(call, reading.wait);
        return Ok(());
    }
    begin_answer(call.reply.is_resp3(), &mut call.reply, found.len());
    for (key, entries) in found {
        begin_stream(call.reply.is_resp3(), &mut call.reply, key);
        call.reply.array(entries.len());
        entries.iter().for_each(|(id, fields)| answer_entry(&mut call.reply, *id, Some(fields)));
    }
    Ok(())
}

/// The same request with ids in numbers: `$` is the end of now, not that of later.
fn with_ids(call: &Call, reading: &Reading, starts: &[StreamId]) -> OwnedRequest {
    let ids: Vec<String> = starts.iter().map(StreamId::to_string).collect();
    let before = call.arguments.iter().take(reading.keys.end);
    before.chain(ids.iter().map(String::as_bytes)).collect()
}

fn wait(call: &mut Call, seconds: Option<f64>) {
    match seconds {
        Some(seconds) => call.wait(seconds, true),
        None => call.reply.null_array(),
    }
}

/// RESP3 has a map of keys, RESP2 an array of pairs.
fn begin_answer(is_resp3: bool, reply: &mut crate::reply::Reply, streams: usize) {
    match is_resp3 {
        true => reply.map(streams),
        false => reply.array(streams),
    }
}

fn begin_stream(is_resp3: bool, reply: &mut crate::reply::Reply, key: &[u8]) {
    if !is_resp3 {
        reply.array(2);
    }
    reply.bulk(key);
}

pub(super) fn xreadgroup(call: &mut Call) -> Outcome {
    let reading = Reading::of(call, true)?;
    let (group, consumer) = reading.group.unwrap_or_default();
    let meaningless = |symbol: &str| {
        Fail::text(format!(
            "ERR The {symbol} ID is meaningless in the context of XREADGROUP: you want to read the \
             history of this consumer by specifying a proper ID, or use the > ID to get new \
             messages. The {symbol} ID would just return an empty result set."
        ))
    };
    let mut starts = Vec::new();
    for place in reading.keys.clone() {
        let (key, word) = (call.word(place), call.word(place + reading.keys.len()));
        let stream = call.hold.read::<Stream>(key)?;
        if stream.is_none_or(|stream| !stream.groups.contains_key(group)) {
            return Err(no_group(call, key, group, " in XREADGROUP with GROUP option"));
        }
        starts.push(match word {
            b"$" => return Err(meaningless("$")),
            b"+" => return Err(meaningless("+")),
            b">" => From::New,
            word => From::After(id(word, 0)?),
        });
    }
    let most = reading.count.filter(|count| *count > 0).unwrap_or(usize::MAX);
    // What a consumer has got before is answered also if that is nothing.
    let mut answered = Vec::new();
    for (place, start) in reading.keys.clone().zip(&starts) {
        let key = call.word(place);
        let ids = match start {
            From::New => take_new(call, key, (group, consumer), most, reading.acknowledges)?,
            From::After(after) => history(call, key, (group, consumer), *after, most)?,
        };
        if *start != From::New || !ids.is_empty() {
            answered.push((key, ids));
        }
    }
    if answered.is_empty() {
        wait(call, reading.wait);
        return Ok(());
    }
    begin_answer(call.reply.is_resp3(), &mut call.reply, answered.len());
    for (key, ids) in answered {
        begin_stream(call.reply.is_resp3(), &mut call.reply, key);
        call.reply.array(ids.len());
        let stream = call.hold.read::<Stream>(key)?;
        for id in ids {
            let fields = stream.and_then(|stream| stream.get(id));
            answer_entry(&mut call.reply, id, fields);
        }
    }
    Ok(())
}

/// Notes the consumer of a group as seen. It is made if it is not there.
fn see(call: &mut Call, key: &[u8], (group, consumer): (&[u8], &[u8])) -> Outcome {
    let now = call.hold.now;
    let stream = call.hold.write::<Stream>(key)?;
    let found = stream.and_then(|stream| stream.groups.get_mut(group));
    match found.map(|group| group.see(consumer, now)) {
        Some(Sight::First) => call.changed_groups(key, "xgroup-createconsumer"),
        Some(Sight::Later) => call.hold.changed_beside(key),
        Some(Sight::Again) | None => (),
    }
    Ok(())
}

/// Delivers entries that no consumer of the group has got.
fn take_new(
    call: &mut Call,
    key: &[u8],
    (group, consumer): (&[u8], &[u8]),
    most: usize,
    are_acknowledged: bool,
) -> Result<Vec<StreamId>, Fail> {
    see(call, key, (group, consumer))?;
    let now = call.hold.now;
    let Some(stream) = call.hold.write::<Stream>(key)? else { return Ok(Vec::new()) };
    let Some(mut group) = stream.groups.remove_entry(group) else { return Ok(Vec::new()) };
    let behind = (Bound::Excluded(group.1.last), Bound::Unbounded);
    let ids: Vec<StreamId> = stream.range(behind).take(most).map(|(id, _)| id).collect();
    for id in &ids {
        stream.deliver(&mut group.1, *id);
        if !are_acknowledged {
            let pending = Pending { consumer: consumer.into(), delivered_at: now, count: 1 };
            group.1.pending.put(*id, pending);
        }
    }
    if !ids.is_empty() {
        group.1.note_active(consumer, now);
    }
    stream.groups.insert(group.0, group.1);
    if !ids.is_empty() {
        call.hold.changed_beside(key);
    }
    Ok(ids)
}

/// Entries that a consumer has got and not acknowledged.
fn history(
    call: &mut Call,
    key: &[u8],
    (group, consumer): (&[u8], &[u8]),
    after: StreamId,
    most: usize,
) -> Result<Vec<StreamId>, Fail> {
    see(call, key, (group, consumer))?;
    let now = call.hold.now;
    let Some(stream) = call.hold.write::<Stream>(key)? else { return Ok(Vec::new()) };
    let Some(read) = stream.groups.get(group) else { return Ok(Vec::new()) };
    let behind = (Bound::Excluded(after), Bound::Unbounded);
    let own = read.pending.range_of(consumer, behind).take(most);
    let told: Vec<StreamId> = own.map(|(id, _)| id).collect();
    // Those whose entries are gone are told, but not delivered.
    let delivered: Vec<_> = told.iter().filter(|id| stream.get(**id).is_some()).collect();
    let is_any = !delivered.is_empty();
    let pending = stream.groups.get_mut(group).map(|group| &mut group.pending);
    if let Some(pending) = pending {
        delivered.into_iter().for_each(|id| pending.deliver_again(*id, now));
    }
    if is_any {
        call.hold.changed_beside(key);
    }
    Ok(told)
}
