//! Streams: adding, reading ranges, deleting and trimming.

use zodium_keyspace::{Stream, StreamId};

use super::stream_options::{Trim, answer_entry, bound, id, only_count};
use crate::call::{Call, Options, integer, is};
use crate::events::Class;
use crate::fail::{Fail, Outcome, SYNTAX};

const TOO_SMALL: Fail =
    Fail::fixed("ERR The ID specified in XADD is equal or smaller than the target stream top item");
const NO_IDS: Fail =
    Fail::fixed("ERR The stream has exhausted the last possible ID, unable to add more items");

/// The id of a new entry.
#[derive(Clone, Copy, Debug)]
enum NewId {
    /// `*`
    Auto,
    /// `5-*`
    At(u64),
    Given(StreamId),
}

impl NewId {
    fn of(word: &[u8]) -> Result<NewId, Fail> {
        if word == b"*" {
            return Ok(NewId::Auto);
        }
        match word.strip_suffix(b"-*") {
            Some(ms) if !ms.contains(&b'-') => Ok(NewId::At(id(ms, 0)?.ms)),
            _ => Ok(NewId::Given(id(word, 0)?)),
        }
    }

    fn within(self, stream: &Stream, now: u64) -> Result<StreamId, Fail> {
        if stream.last == StreamId::MAX {
            return Err(NO_IDS);
        }
        let found = match self {
            NewId::Auto => return stream.next_id(now).ok_or(NO_IDS),
            NewId::Given(id) => id,
            NewId::At(ms) if ms == stream.last.ms => {
                let number = stream.last.number.checked_add(1).ok_or(TOO_SMALL)?;
                StreamId { ms, number }
            }
            NewId::At(ms) => StreamId { ms, number: 0 },
        };
        if found <= stream.last { Err(TOO_SMALL) } else { Ok(found) }
    }
}

pub(super) fn xadd(call: &mut Call) -> Outcome {
    let key = call.word(1);
    let mut options = Options::from(call.arguments, 2);
    let (mut trim, mut makes) = (Trim::default(), true);
    let new_id = loop {
        let word = options.next().ok_or(SYNTAX)?;
        if is(word, "nomkstream") {
            makes = false;
        } else if !trim.take(word, &mut options)? {
            break NewId::of(word)?;
        }
    };
    trim.check(false)?;
    if options.left() == 0 || !options.left().is_multiple_of(2) {
        return Err(Fail::arity("xadd"));
    }
    if matches!(new_id, NewId::Given(id) if id == StreamId::default()) {
        return Err(Fail::fixed("ERR The ID specified in XADD must be greater than 0-0"));
    }
    let now = call.hold.now;
    let there = call.hold.read::<Stream>(key)?;
    if there.is_none() && !makes {
        call.reply.null();
        return Ok(());
    }
    let id = match there {
        Some(stream) => new_id.within(stream, now)?,
        None => new_id.within(&Stream::default(), now)?,
    };
    let fields = call.arguments.from(call.len() - options.left());
    let stream = call.hold.make::<Stream>(key)?;
    stream.add(id, fields.iter().map(Into::into).collect());
    let (trimmed, cut) = trim.apply(stream, &call.server.settings);
    if trim.is_approximate {
        let (left, id) = (stream.len().to_string(), id.to_string());
        let exact = [&b"xadd"[..], key, b"maxlen", b"=", left.as_bytes(), id.as_bytes()];
        call.log_instead(exact.into_iter().chain(fields.iter()));
    }
    cut.into_iter().for_each(|cut| call.hold.discard(cut));
    call.hold.note_filled(key);
    call.changed(key, Class::Stream, "xadd");
    if trimmed > 0 {
        call.announce(key, Class::Stream, "xtrim");
    }
    call.reply.text(&id.to_string());
    Ok(())
}

pub(super) fn xlen(call: &mut Call) -> Outcome {
    let length = call.hold.read::<Stream>(call.word(1))?.map_or(0, Stream::len);
    call.reply.count(length);
    Ok(())
}

pub(super) fn xrange(call: &mut Call) -> Outcome {
    range(call, (2, 3), false)
}

pub(super) fn xrevrange(call: &mut Call) -> Outcome {
    range(call, (3, 2), true)
}

fn range(call: &mut Call, (start, end): (usize, usize), is_reversed: bool) -> Outcome {
    let (start, end) = (bound(call.word(start), true)?, bound(call.word(end), false)?);
    let count = only_count(call, 4)?;
    let Some(stream) = call.hold.read::<Stream>(call.word(1))? else {
        call.reply.array(0);
        return Ok(());
    };
    if count == Some(0) {
        call.reply.null_array();
        return Ok(());
    }
    let most = count.unwrap_or(usize::MAX);
    if start > end {
        call.reply.array(0);
        return Ok(());
    }
    let entries = stream.range(start..=end);
    let found: Vec<_> = match is_reversed {
        true => entries.rev().take(most).collect(),
        false => entries.take(most).collect(),
    };
    call.reply.array(found.len());
    found.into_iter().for_each(|(id, fields)| answer_entry(&mut call.reply, id, Some(fields)));
    Ok(())
}

pub(super) fn xdel(call: &mut Call) -> Outcome {
    let key = call.word(1);
    if call.hold.read::<Stream>(key)?.is_none() {
        call.reply.count(0);
        return Ok(());
    }
    let ids: Result<Vec<StreamId>, Fail> =
        call.arguments.from(2).iter().map(|word| id(word, 0)).collect();
    let ids = ids?;
    let removed = match call.hold.write::<Stream>(key)? {
        Some(stream) => ids.into_iter().filter(|id| stream.remove(*id)).count(),
        None => 0,
    };
    if removed > 0 {
        call.changed(key, Class::Stream, "xdel");
    }
    call.reply.count(removed);
    Ok(())
}

pub(super) fn xtrim(call: &mut Call) -> Outcome {
    let key = call.word(1);
    let mut options = Options::from(call.arguments, 2);
    let mut trim = Trim::default();
    while let Some(word) = options.next() {
        if !trim.take(word, &mut options)? {
            return Err(SYNTAX);
        }
    }
    trim.check(true)?;
    let settings = &call.server.settings;
    let stream = call.hold.write::<Stream>(key)?;
    let ((removed, cut), left) =
        stream.map_or_else(Default::default, |stream| (trim.apply(stream, settings), stream.len()));
    cut.into_iter().for_each(|cut| call.hold.discard(cut));
    if removed > 0 {
        call.changed(key, Class::Stream, "xtrim");
        let left = left.to_string();
        call.log_instead([&b"xtrim"[..], key, b"maxlen", b"=", left.as_bytes()]);
    }
    call.reply.count(removed);
    Ok(())
}

pub(super) fn xsetid(call: &mut Call) -> Outcome {
    let key = call.word(1);
    let last = id(call.word(2), 0)?;
    let (mut added, mut deleted_max) = (None, None);
    let mut options = Options::from(call.arguments, 3);
    while let Some(word) = options.next() {
        if is(word, "entriesadded") && options.left() > 0 {
            let number = integer(options.value()?)?;
            let error = Fail::fixed("ERR entries_added must be positive");
            added = Some(u64::try_from(number).map_err(|_| error)?);
        } else if is(word, "maxdeletedid") && options.left() > 0 {
            let deleted = id(options.value()?, 0)?;
            if deleted > last {
                return Err(Fail::fixed(
                    "ERR The ID specified in XSETID is smaller than the provided \
                     max_deleted_entry_id",
                ));
            }
            deleted_max = Some(deleted);
        } else {
            return Err(SYNTAX);
        }
    }
    let Some(stream) = call.hold.write::<Stream>(key)? else { return Err(crate::fail::NO_KEY) };
    if last < stream.deleted_max {
        return Err(Fail::fixed(
            "ERR The ID specified in XSETID is smaller than current max_deleted_entry_id",
        ));
    }
    if stream.range(..).next_back().is_some_and(|(top, _)| last < top) {
        return Err(Fail::fixed(
            "ERR The ID specified in XSETID is smaller than the target stream top item",
        ));
    }
    if added.is_some_and(|added| added < stream.len() as u64) {
        return Err(Fail::fixed(
            "ERR The entries_added specified in XSETID is smaller than the target stream length",
        ));
    }
    stream.last = last;
    stream.added = added.unwrap_or(stream.added);
    stream.deleted_max = deleted_max.unwrap_or(stream.deleted_max);
    call.changed(key, Class::Stream, "xsetid");
    call.reply.ok();
    Ok(())
}
