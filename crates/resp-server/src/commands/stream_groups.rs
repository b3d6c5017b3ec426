//! Groups of consumers: `XGROUP`, `XACK`, `XPENDING`.

use zodium_keyspace::{Group, Pending, PendingEntries, Stream, StreamId};

use super::introspection::help;
use super::stream_options::{bound, id, no_group};
use crate::call::{Call, integer, is};
use crate::events::Class;
use crate::fail::{Fail, Outcome, SYNTAX};

const NO_STREAM: Fail = Fail::fixed(
    "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use \
     the MKSTREAM option to create an empty stream automatically.",
);

/// The options of `XGROUP CREATE` and `XGROUP SETID`.
struct Start {
    makes: bool,
    read: Option<u64>,
}

impl Start {
    fn of(call: &Call, may_make: bool) -> Result<Start, Fail> {
        let mut start = Start { makes: false, read: None };
        let mut options = crate::call::Options::from(call.arguments, 5);
        while let Some(word) = options.next() {
            if is(word, "mkstream") && may_make {
                start.makes = true;
            } else if is(word, "entriesread") && options.left() > 0 {
                let number = integer(options.value()?)?;
                if number < -1 {
                    return Err(Fail::fixed("ERR value for ENTRIESREAD must be positive or -1"));
                }
                start.read = u64::try_from(number).ok();
            } else {
                let name = String::from_utf8_lossy(call.word(1)).into_owned();
                return Err(Fail::text(format!(
                    "ERR unknown subcommand or wrong number of arguments for '{name}'. Try XGROUP \
                     HELP."
                )));
            }
        }
        Ok(start)
    }
}

/// An id; `$` is the last one.
fn from_id(word: &[u8], stream: Option<&Stream>) -> Result<StreamId, Fail> {
    match word {
        b"$" => Ok(stream.map_or(StreamId::default(), |stream| stream.last)),
        word => id(word, 0),
    }
}

pub(super) fn create(call: &mut Call) -> Outcome {
    let (key, name) = (call.word(2), call.word(3));
    let start = Start::of(call, true)?;
    let stream = call.hold.read::<Stream>(key)?;
    if stream.is_none() && !start.makes {
        return Err(NO_STREAM);
    }
    let last = from_id(call.word(4), stream)?;
    if stream.is_some_and(|stream| stream.groups.contains_key(name)) {
        return Err(Fail::fixed("BUSYGROUP Consumer Group name already exists"));
    }
    let is_new = stream.is_none();
    let group = Group { last, read: start.read, ..Group::default() };
    call.hold.make::<Stream>(key)?.groups.insert(name.into(), group);
    match is_new {
        true => call.changed(key, Class::Stream, "xgroup-create"),
        false => call.changed_groups(key, "xgroup-create"),
    }
    call.reply.ok();
    Ok(())
}

/// The group of a subcommand, which must be there.
fn group<'a>(call: &'a mut Call) -> Result<&'a mut Group, Fail> {
    let (key, name) = (call.word(2), call.word(3));
    let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
    let error = Fail::text(format!(
        "NOGROUP No such consumer group '{}' for key name '{}'",
        text(name),
        text(key)
    ));
    let stream = call.hold.write::<Stream>(key)?.ok_or(NO_STREAM)?;
    stream.groups.get_mut(name).ok_or(error)
}

pub(super) fn set_id(call: &mut Call) -> Outcome {
    let key = call.word(2);
    let start = Start::of(call, false)?;
    let stream = call.hold.read::<Stream>(key)?;
    let last = from_id(call.word(4), stream);
    let group = group(call)?;
    (group.last, group.read) = (last?, start.read);
    call.changed_groups(key, "xgroup-setid");
    call.reply.ok();
    Ok(())
}

pub(super) fn destroy(call: &mut Call) -> Outcome {
    let (key, name) = (call.word(2), call.word(3));
    let stream = call.hold.write::<Stream>(key)?.ok_or(NO_STREAM)?;
    let was_there = stream.groups.remove(name).is_some();
    if was_there {
        call.changed_groups(key, "xgroup-destroy");
    }
    call.reply.flag(was_there);
    Ok(())
}

pub(super) fn create_consumer(call: &mut Call) -> Outcome {
    let (key, consumer, now) = (call.word(2), call.word(4), call.hold.now);
    let group = group(call)?;
    let is_new = !group.consumers.contains_key(consumer);
    if is_new {
        group.see(consumer, now);
        call.changed_groups(key, "xgroup-createconsumer");
    }
    call.reply.flag(is_new);
    Ok(())
}

pub(super) fn delete_consumer(call: &mut Call) -> Outcome {
    let (key, consumer) = (call.word(2), call.word(4));
    let group = group(call)?;
    let pending = group.pending.remove_consumer(consumer);
    let was_there = group.consumers.remove(consumer).is_some();
    if was_there {
        call.changed_groups(key, "xgroup-delconsumer");
    }
    call.reply.count(pending);
    Ok(())
}

pub(super) fn xack(call: &mut Call) -> Outcome {
    let (key, name) = (call.word(1), call.word(2));
    let ids: Result<Vec<StreamId>, Fail> =
        call.arguments.from(3).iter().map(|word| id(word, 0)).collect();
    let stream = call.hold.write::<Stream>(key)?;
    let Some(group) = stream.and_then(|stream| stream.groups.get_mut(name)) else {
        call.reply.count(0);
        return Ok(());
    };
    let acknowledged = ids?.into_iter().filter(|id| group.pending.remove(*id)).count();
    if acknowledged > 0 {
        call.hold.changed_beside(key);
    }
    call.reply.count(acknowledged);
    Ok(())
}

/// Which pending entries are asked for.
struct Wanted<'a> {
    start: StreamId,
    end: StreamId,
    count: usize,
    idle_min: u64,
    consumer: Option<&'a [u8]>,
}

impl<'a> Wanted<'a> {
    /// `None` for the summary.
    fn of(call: &Call<'a, '_>) -> Result<Option<Wanted<'a>>, Fail> {
        if call.len() == 3 {
            return Ok(None);
        }
        let has_idle = is(call.word(3), "idle");
        let first = if has_idle { 5 } else { 3 };
        let idle_min = if has_idle { integer(call.word(4))? } else { 0 };
        if call.len() < first + 3 || call.len() > first + 4 {
            return Err(SYNTAX);
        }
        let count = integer(call.word(first + 2))?;
        Ok(Some(Wanted {
            start: bound(call.word(first), true)?,
            end: bound(call.word(first + 1), false)?,
            count: usize::try_from(count).unwrap_or(0),
            idle_min: u64::try_from(idle_min).unwrap_or(0),
            consumer: (call.len() > first + 3).then(|| call.word(first + 3)),
        }))
    }

    fn among<'p>(&self, pending: &'p PendingEntries, now: u64) -> Vec<(StreamId, &'p Pending)> {
        if self.start > self.end {
            return Vec::new();
        }
        let ids = self.start..=self.end;
        let is_idle = |(_, pending): &(StreamId, &Pending)| {
            now.saturating_sub(pending.delivered_at) >= self.idle_min
        };
        match self.consumer {
            None => pending.range(ids).filter(is_idle).take(self.count).collect(),
            Some(name) => pending.range_of(name, ids).filter(is_idle).take(self.count).collect(),
        }
    }
}

pub(super) fn xpending(call: &mut Call) -> Outcome {
    let (key, name) = (call.word(1), call.word(2));
    let wanted = Wanted::of(call)?;
    let stream = call.hold.read::<Stream>(key)?;
    let Some(group) = stream.and_then(|stream| stream.groups.get(name)) else {
        return Err(no_group(call, key, name, ""));
    };
    let Some(wanted) = wanted else {
        answer_summary(&mut call.reply, group);
        return Ok(());
    };
    let now = call.hold.now;
    let found = wanted.among(&group.pending, now);
    call.reply.array(found.len());
    for (id, pending) in found {
        call.reply.array(4);
        call.reply.text(&id.to_string());
        call.reply.bulk(&pending.consumer);
        call.reply.integer(now.saturating_sub(pending.delivered_at).cast_signed());
        call.reply.integer(pending.count.cast_signed());
    }
    Ok(())
}

fn answer_summary(reply: &mut crate::reply::Reply, group: &Group) {
    reply.array(4);
    reply.count(group.pending.len());
    reply.bulk_or_null(group.pending.first().map(|id| id.to_string()));
    reply.bulk_or_null(group.pending.last().map(|id| id.to_string()));
    if group.pending.is_empty() {
        return reply.null_array();
    }
    let counts = group.consumers.keys().map(|name| (name, group.pending.count_of(name)));
    let counts: Vec<_> = counts.filter(|(_, count)| *count > 0).collect();
    reply.array(counts.len());
    for (name, count) in counts {
        reply.array(2);
        reply.bulk(name);
        reply.text(&count.to_string());
    }
}

pub(super) fn xgroup_help(call: &mut Call) -> Outcome {
    help(
        call,
        "XGROUP",
        &[
            ("CREATE <key> <groupname> <id|$> [option]", "Create a new consumer group."),
            ("CREATECONSUMER <key> <groupname> <consumer>", "Create a new consumer."),
            ("DELCONSUMER <key> <groupname> <consumer>", "Remove the specified consumer."),
            ("DESTROY <key> <groupname>", "Remove the specified group."),
            ("SETID <key> <groupname> <id|$> [ENTRIESREAD entries_read]", "Set the current ID."),
        ],
    );
    Ok(())
}
