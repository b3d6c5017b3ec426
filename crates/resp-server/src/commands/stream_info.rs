//! `XINFO`: what streams, groups and consumers are like.

use zodium_keyspace::{Group, Stream, StreamId};

use super::introspection::help;
use super::stream_options::answer_entry;
use crate::call::{Call, Options, integer, is};
use crate::fail::{Fail, NO_KEY, Outcome};
use crate::reply::Reply;

fn subcommand_error() -> Fail {
    Fail::fixed("ERR unknown subcommand or wrong number of arguments for 'STREAM'. Try XINFO HELP.")
}

/// Entries of a full answer: 0 for all.
fn full(call: &Call) -> Result<Option<usize>, Fail> {
    if call.len() == 3 {
        return Ok(None);
    }
    let mut options = Options::from(call.arguments, 3);
    if !options.next().is_some_and(|word| is(word, "full")) {
        return Err(subcommand_error());
    }
    let Some(word) = options.next() else { return Ok(Some(10)) };
    match is(word, "count") && options.left() == 1 {
        true => Ok(Some(usize::try_from(integer(options.value()?)?).unwrap_or(10))),
        false => Err(subcommand_error()),
    }
}

pub(super) fn stream(call: &mut Call) -> Outcome {
    let now = call.hold.now;
    let stream = call.hold.read::<Stream>(call.word(2))?.ok_or(NO_KEY)?;
    let full = full(call)?;
    let reply = &mut call.reply;
    reply.map(if full.is_some() { 9 } else { 10 });
    number(reply, "length", stream.len() as u64);
    // Nodes of the stock server's tree: of 100 entries each.
    let nodes = stream.len().div_ceil(100) as u64;
    number(reply, "radix-tree-keys", nodes);
    number(reply, "radix-tree-nodes", nodes + 1);
    text(reply, "last-generated-id", stream.last);
    text(reply, "max-deleted-entry-id", stream.deleted_max);
    number(reply, "entries-added", stream.added);
    let first = stream.first().map_or(StreamId::default(), |(id, _)| id);
    text(reply, "recorded-first-entry-id", first);
    match full {
        None => {
            number(reply, "groups", stream.groups.len() as u64);
            for (name, entry) in
                [("first-entry", stream.first()), ("last-entry", stream.range(..).next_back())]
            {
                reply.text(name);
                match entry {
                    Some((id, fields)) => answer_entry(reply, id, Some(fields)),
                    None => reply.null(),
                }
            }
        }
        Some(count) => answer_full(reply, stream, if count == 0 { usize::MAX } else { count }, now),
    }
    Ok(())
}

fn number(reply: &mut Reply, name: &str, number: u64) {
    reply.text(name);
    reply.integer(number.cast_signed());
}

fn text(reply: &mut Reply, name: &str, id: StreamId) {
    reply.text(name);
    reply.text(&id.to_string());
}

fn known(reply: &mut Reply, name: &str, value: Option<i64>) {
    reply.text(name);
    match value {
        Some(number) => reply.integer(number),
        None => reply.null(),
    }
}

fn answer_full(reply: &mut Reply, stream: &Stream, count: usize, now: u64) {
    reply.text("entries");
    let entries: Vec<_> = stream.range(..).take(count).collect();
    reply.array(entries.len());
    entries.into_iter().for_each(|(id, fields)| answer_entry(reply, id, Some(fields)));
    reply.text("groups");
    reply.array(stream.groups.len());
    for (name, group) in &stream.groups {
        reply.map(7);
        reply.text("name");
        reply.bulk(name);
        text(reply, "last-delivered-id", group.last);
        known(reply, "entries-read", group.read.map(u64::cast_signed));
        known(reply, "lag", stream.lag(group));
        number(reply, "pel-count", group.pending.len() as u64);
        reply.text("pending");
        let pending: Vec<_> = group.pending.range(..).take(count).collect();
        reply.array(pending.len());
        for (id, pending) in pending {
            reply.array(4);
            reply.text(&id.to_string());
            reply.bulk(&pending.consumer);
            reply.integer(pending.delivered_at.cast_signed());
            reply.integer(pending.count.cast_signed());
        }
        answer_consumers(reply, group, count, now);
    }
}

fn answer_consumers(reply: &mut Reply, group: &Group, count: usize, _now: u64) {
    reply.text("consumers");
    reply.array(group.consumers.len());
    for (name, consumer) in &group.consumers {
        reply.map(5);
        reply.text("name");
        reply.bulk(name);
        number(reply, "seen-time", consumer.seen_at);
        reply.text("active-time");
        reply.integer(consumer.active_at.map_or(-1, u64::cast_signed));
        number(reply, "pel-count", group.pending.count_of(name) as u64);
        reply.text("pending");
        let own: Vec<_> = group.pending.range_of(name, ..).take(count).collect();
        reply.array(own.len());
        for (id, pending) in own {
            reply.array(3);
            reply.text(&id.to_string());
            reply.integer(pending.delivered_at.cast_signed());
            reply.integer(pending.count.cast_signed());
        }
    }
}

pub(super) fn groups(call: &mut Call) -> Outcome {
    let stream = call.hold.read::<Stream>(call.word(2))?.ok_or(NO_KEY)?;
    let reply = &mut call.reply;
    reply.array(stream.groups.len());
    for (name, group) in &stream.groups {
        reply.map(6);
        reply.text("name");
        reply.bulk(name);
        number(reply, "consumers", group.consumers.len() as u64);
        number(reply, "pending", group.pending.len() as u64);
        text(reply, "last-delivered-id", group.last);
        known(reply, "entries-read", group.read.map(u64::cast_signed));
        known(reply, "lag", stream.lag(group));
    }
    Ok(())
}

pub(super) fn consumers(call: &mut Call) -> Outcome {
    let (key, name, now) = (call.word(2), call.word(3), call.hold.now);
    let stream = call.hold.read::<Stream>(key)?.ok_or(NO_KEY)?;
    let lossy = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
    let error = || {
        let (group, key) = (lossy(name), lossy(key));
        Fail::text(format!("NOGROUP No such consumer group '{group}' for key name '{key}'"))
    };
    let group = stream.groups.get(name).ok_or_else(error)?;
    let reply = &mut call.reply;
    reply.array(group.consumers.len());
    for (name, consumer) in &group.consumers {
        reply.map(4);
        reply.text("name");
        reply.bulk(name);
        number(reply, "pending", group.pending.count_of(name) as u64);
        number(reply, "idle", now.saturating_sub(consumer.seen_at));
        reply.text("inactive");
        let inactive = consumer.active_at.map(|at| now.saturating_sub(at).cast_signed());
        reply.integer(inactive.unwrap_or(-1));
    }
    Ok(())
}

pub(super) fn xinfo_help(call: &mut Call) -> Outcome {
    help(
        call,
        "XINFO",
        &[
            ("CONSUMERS <key> <groupname>", "Show consumers of <groupname>."),
            ("GROUPS <key>", "Show the stream consumer groups."),
            ("STREAM <key> [FULL [COUNT <count>]]", "Show information about the stream."),
        ],
    );
    Ok(())
}
