//! Keys of any type: `DEL`, `RENAME`, `COPY`, `OBJECT` and the like.

use zodium_keyspace::{DATABASES, EntryRef, Record, Uses};
use zodium_resp::parse_integer;

use super::encoding;
use super::tying::tie_as;
use crate::call::{Call, Options, integer, is};
use crate::events::Class;
use crate::fail::{Fail, NO_DATABASE, NO_INTEGER, NO_KEY, Outcome, SYNTAX};
use crate::glob;

pub(super) fn del(call: &mut Call) -> Outcome {
    let mut removed = 0;
    for key in call.arguments.from(1).iter() {
        removed += usize::from(call.remove(key));
    }
    call.reply.count(removed);
    Ok(())
}

pub(super) fn exists(call: &mut Call) -> Outcome {
    let there = call.arguments.from(1).iter().filter(|key| call.hold.has(key)).count();
    call.reply.count(there);
    Ok(())
}

pub(super) fn touch(call: &mut Call) -> Outcome {
    let entries = call.arguments.from(1).iter().filter_map(|key| call.hold.find(key));
    let there = entries.inspect(|entry| call.hold.note_use(*entry)).count();
    call.reply.count(there);
    Ok(())
}

pub(super) fn type_of(call: &mut Call) -> Outcome {
    let name = call.hold.find(call.word(1)).map_or("none", |entry| entry.value().type_name());
    call.reply.simple(name);
    Ok(())
}

pub(super) fn rename(call: &mut Call) -> Outcome {
    move_key(call)?;
    call.reply.ok();
    Ok(())
}

pub(super) fn renamenx(call: &mut Call) -> Outcome {
    let (source, target) = (call.word(1), call.word(2));
    if !call.hold.has(source) {
        return Err(NO_KEY);
    }
    let may = !call.hold.has(target);
    if may {
        move_key(call)?;
    }
    call.reply.flag(may);
    Ok(())
}

fn move_key(call: &mut Call) -> Outcome {
    let (source, target) = (call.word(1), call.word(2));
    if source == target {
        return if call.hold.has(source) { Ok(()) } else { Err(NO_KEY) };
    }
    let ties = call.hold.ties(source);
    let entry = call.hold.take(source).map(Record::into_entry).ok_or(NO_KEY)?;
    // Its own event of a new key: clients that wait for it are served.
    call.hold.remove(target);
    call.hold.put(target, entry);
    tie_as(call, target, &ties);
    call.changed(source, Class::Generic, "rename_from");
    call.changed(target, Class::Generic, "rename_to");
    Ok(())
}

/// A database among the arguments.
pub(super) fn database(word: &[u8]) -> Result<usize, Fail> {
    let number = parse_integer(word).ok_or(NO_INTEGER)?;
    usize::try_from(number).ok().filter(|number| *number < DATABASES).ok_or(NO_DATABASE)
}

pub(super) fn move_to(call: &mut Call) -> Outcome {
    let key = call.word(1);
    let (source, target) = (call.hold.database, database(call.word(2))?);
    if source == target {
        return Err(Fail::fixed("ERR source and destination objects are the same"));
    }
    call.hold.database = target;
    let is_there = call.hold.has(key);
    call.hold.database = source;
    if is_there {
        call.reply.flag(false);
        return Ok(());
    }
    let ties = call.hold.ties(key);
    let Some(entry) = call.hold.take(key).map(Record::into_entry) else {
        call.reply.flag(false);
        return Ok(());
    };
    call.changed(key, Class::Generic, "move_from");
    call.hold.database = target;
    call.hold.put(key, entry);
    tie_as(call, key, &ties);
    call.changed(key, Class::Generic, "move_to");
    call.hold.database = source;
    call.reply.flag(true);
    Ok(())
}

pub(super) fn copy(call: &mut Call) -> Outcome {
    let (key, copy) = (call.word(1), call.word(2));
    let source = call.hold.database;
    let (mut target, mut replaces) = (source, false);
    let mut options = Options::from(call.arguments, 3);
    while let Some(word) = options.next() {
        if is(word, "replace") {
            replaces = true;
        } else if is(word, "db") {
            target = database(options.value()?)?;
        } else {
            return Err(SYNTAX);
        }
    }
    if source == target && key == copy {
        return Err(Fail::fixed("ERR source and destination objects are the same"));
    }
    let ties = call.hold.ties(key);
    let Some(entry) = call.hold.find(key).map(EntryRef::to_entry) else {
        call.reply.flag(false);
        return Ok(());
    };
    call.hold.database = target;
    let may = replaces || call.hold.entry(copy).is_none();
    if may {
        call.hold.remove(copy);
        call.hold.put(copy, entry);
        tie_as(call, copy, &ties);
        call.changed(copy, Class::Generic, "copy_to");
    }
    call.hold.database = source;
    call.reply.flag(may);
    Ok(())
}

pub(super) fn randomkey(call: &mut Call) -> Outcome {
    call.reply.bulk_or_null(call.hold.random());
    Ok(())
}

pub(super) fn keys(call: &mut Call) -> Outcome {
    let pattern = call.word(1);
    let fits = |key: &&[u8]| pattern == b"*" || glob::fits(pattern, key);
    let found: Vec<&[u8]> = call.hold.iter().map(EntryRef::key).filter(fits).collect();
    call.reply.words(&found);
    Ok(())
}

pub(super) fn object_encoding(call: &mut Call) -> Outcome {
    let value = call.hold.find(call.word(2)).map(EntryRef::value);
    let name = value.map(|value| encoding::of(call.server, value));
    call.reply.bulk_or_null(name);
    Ok(())
}

pub(super) fn object_refcount(call: &mut Call) -> Outcome {
    answer_about(call, |_, _| 1)
}

pub(super) fn object_idletime(call: &mut Call) -> Outcome {
    let is_there = call.hold.entry(call.word(2)).is_some();
    if is_there && call.hold.uses != Uses::Times {
        return Err(Fail::fixed(
            "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that \
             when switching between policies at runtime LRU and LFU data will take some time to \
             adjust.",
        ));
    }
    answer_about(call, |entry, now| {
        let seconds = i64::try_from(now / 1000).unwrap_or(i64::MAX);
        (seconds - i64::from(entry.used_at(now))).max(0)
    })
}

pub(super) fn object_freq(call: &mut Call) -> Outcome {
    let (uses, is_there) = (call.hold.uses, call.hold.entry(call.word(2)).is_some());
    if is_there && uses == Uses::Times {
        return Err(Fail::fixed(
            "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please \
             note that when switching between policies at runtime LRU and LFU data will take some \
             time to adjust.",
        ));
    }
    answer_about(call, |entry, now| entry.frequency(now, uses).into())
}

fn answer_about(call: &mut Call, about: impl FnOnce(EntryRef<'_>, u64) -> i64) -> Outcome {
    match call.hold.find(call.word(2)) {
        Some(entry) => call.reply.integer(about(entry, call.hold.now)),
        None => call.reply.null(),
    }
    Ok(())
}

pub(super) fn object_help(call: &mut Call) -> Outcome {
    super::introspection::help(
        call,
        "OBJECT",
        &[
            ("ENCODING <key>", "Return the kind of internal representation of a <key>."),
            (
                "FREQ <key>",
                "Return the access frequency of a <key>, if the policy is of frequencies.",
            ),
            ("IDLETIME <key>", "Return the idle time of a <key> in seconds."),
            ("REFCOUNT <key>", "Return the number of references to a <key>: always 1."),
        ],
    );
    Ok(())
}

/// Elements by whose sizes that of a value is estimated, unless the client says how many.
const SAMPLES: usize = 5;

pub(super) fn memory_usage(call: &mut Call) -> Outcome {
    let key = call.word(2);
    let samples = match call.len() {
        3 => SAMPLES,
        5 if is(call.word(3), "samples") => {
            usize::try_from(integer(call.word(4))?).map_err(|_| SYNTAX)?
        }
        _ => return Err(SYNTAX),
    };
    match call.hold.entry(key) {
        Some(entry) => call.reply.count(entry.estimated_bytes(samples)),
        None => call.reply.null(),
    }
    Ok(())
}

pub(super) fn memory_help(call: &mut Call) -> Outcome {
    super::introspection::help(
        call,
        "MEMORY",
        &[(
            "USAGE <key> [SAMPLES <count>]",
            "Return memory in bytes used by <key> and its value, by estimate.",
        )],
    );
    Ok(())
}
