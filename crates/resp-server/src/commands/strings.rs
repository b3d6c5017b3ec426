//! Strings: `GET`, `SET` and the like.

use zodium_keyspace::{EntryRef, Hold, Text};
use zodium_resp::Arguments;

use super::expiring::{ExpiryOption, expiry_option, relative};
use super::tying;
use crate::beside::Beside;
use crate::call::{Call, Options, is};
use crate::events::Class;
use crate::fail::{Fail, Outcome, SYNTAX};
use crate::storages::Rights;
use crate::ties::TieWish;

/// The string of a key, which need not be there.
pub(super) fn read<'a>(hold: &'a Hold, key: &[u8]) -> Result<Option<Text<'a>>, Fail> {
    Ok(hold.read_string(key)?)
}

pub(super) fn get(call: &mut Call) -> Outcome {
    match read(call.hold, call.word(1))? {
        Some(text) => call.reply.stored(text),
        None => call.reply.null(),
    }
    Ok(())
}

pub(super) fn mget(call: &mut Call) -> Outcome {
    let keys = call.arguments.from(1);
    call.reply.array(keys.len());
    for key in keys.iter() {
        // A value of another type is no error here.
        match call.hold.read_string(key) {
            Ok(Some(text)) => call.reply.stored(text),
            _ => call.reply.null(),
        }
    }
    Ok(())
}

/// The options of `SET`.
#[derive(Default)]
struct SetOptions<'a> {
    only_new: bool,
    only_old: bool,
    /// The value that the key must have.
    only_equal: Option<&'a [u8]>,
    gets: bool,
    keeps_time: bool,
    expiry: Option<ExpiryOption<'a>>,
    /// The objects that the key is tied to.
    tie: Option<TieWish>,
}

fn set_options<'a>(
    beside: &Beside,
    rights: Rights,
    arguments: Arguments<'a>,
) -> Result<SetOptions<'a>, Fail> {
    let mut found = SetOptions::default();
    let mut options = Options::from(arguments, 3);
    while let Some(word) = options.next() {
        // An option may come again, but not beside one that contradicts it.
        let has_equal = found.only_equal.is_some();
        if is(word, "nx") && !found.only_old && !has_equal {
            found.only_new = true;
        } else if is(word, "xx") && !found.only_new && !has_equal {
            found.only_old = true;
        } else if is(word, "ifeq") && !found.only_new && !found.only_old {
            found.only_equal = Some(options.value()?);
        } else if is(word, "get") {
            found.gets = true;
        } else if is(word, "tie") && found.tie.is_none() {
            found.tie = Some(tying::wish(beside, rights, &mut options)?);
        } else if is(word, "keepttl") && found.expiry.is_none() {
            found.keeps_time = true;
        } else {
            let fits = |option: &ExpiryOption| {
                !found.keeps_time && found.expiry.as_ref().is_none_or(|had| had.is_like(option))
            };
            let option = expiry_option(word).filter(fits).ok_or(SYNTAX)?;
            found.expiry = Some(option.of(options.value()?));
        }
    }
    Ok(found)
}

/// Checks the options of a `SET` that is executed later.
pub(crate) fn check_set(beside: &Beside, rights: Rights, arguments: Arguments) -> Outcome {
    set_options(beside, rights, arguments).map(drop)
}

pub(super) fn set(call: &mut Call) -> Outcome {
    let (key, value) = (call.word(1), call.word(2));
    let options = set_options(&call.server.beside, call.rights(), call.arguments)?;
    let expires_at = match &options.expiry {
        Some(option) => Some(option.at(call.hold.now, "set")?),
        None => None,
    };
    let old = match options.gets || options.only_equal.is_some() {
        true => read(call.hold, key)?.map(Text::to_bytes),
        false => None,
    };
    let is_there = call.hold.entry(key).is_some();
    let is_allowed = match options.only_equal {
        Some(wanted) => old.as_deref() == Some(wanted),
        None => !(options.only_new && is_there || options.only_old && !is_there),
    };
    // Entered last: a tie is kept only if the key is set.
    let ties = match &options.tie {
        Some(wish) if is_allowed => tying::bind(call, key, wish)?,
        _ => None,
    };
    let is_allowed = is_allowed && options.tie.is_some() == ties.is_some();
    if options.gets {
        match &old {
            Some(old) => call.reply.shared(old),
            None => call.reply.null(),
        }
    }
    if is_allowed {
        let kept = || call.hold.entry(key).and_then(EntryRef::expires_at);
        let expires_at = if options.keeps_time { kept() } else { expires_at };
        if let Some(ties) = &ties {
            let time = expires_at.map(|at| at.to_string());
            let time = time.iter().flat_map(|at| [&b"pxat"[..], at.as_bytes()]);
            call.log_instead([&b"set"[..], key, value].into_iter().chain(time));
            call.log_ties(ties);
        }
        store(call, key, value, expires_at);
        call.hold.tie(key, ties.unwrap_or_default());
        if options.expiry.is_some() {
            call.announce(key, Class::Generic, "expire");
        }
    }
    match (options.gets, is_allowed) {
        (true, _) => {}
        (false, true) => call.reply.ok(),
        (false, false) => call.reply.null(),
    }
    Ok(())
}

/// Sets a key, and announces it.
fn store(call: &mut Call, key: &[u8], value: &[u8], expires_at: Option<u64>) {
    call.hold.put_string(key, value, expires_at);
    call.changed(key, Class::String, "set");
}

pub(super) fn setnx(call: &mut Call) -> Outcome {
    let (key, value) = (call.word(1), call.word(2));
    let is_new = !call.hold.has(key);
    if is_new {
        store(call, key, value, None);
    }
    call.reply.flag(is_new);
    Ok(())
}

pub(super) fn setex(call: &mut Call) -> Outcome {
    set_with_time(call, "setex", 1000)
}

pub(super) fn psetex(call: &mut Call) -> Outcome {
    set_with_time(call, "psetex", 1)
}

fn set_with_time(call: &mut Call, name: &str, unit_ms: i64) -> Outcome {
    let at = relative(call.word(2), unit_ms, call.hold.now, name)?;
    store(call, call.word(1), call.word(3), Some(at));
    call.announce(call.word(1), Class::Generic, "expire");
    call.reply.ok();
    Ok(())
}

pub(super) fn getset(call: &mut Call) -> Outcome {
    let (key, value) = (call.word(1), call.word(2));
    match read(call.hold, key)? {
        Some(old) => call.reply.stored(old),
        None => call.reply.null(),
    }
    store(call, key, value, None);
    Ok(())
}

pub(super) fn getdel(call: &mut Call) -> Outcome {
    let key = call.word(1);
    let Some(old) = read(call.hold, key)? else {
        call.reply.null();
        return Ok(());
    };
    call.reply.stored(old);
    call.remove(key);
    Ok(())
}

pub(super) fn getex(call: &mut Call) -> Outcome {
    let key = call.word(1);
    let mut options = Options::from(call.arguments, 2);
    let (mut persists, mut expiry) = (false, None::<ExpiryOption>);
    while let Some(word) = options.next() {
        if is(word, "persist") && expiry.is_none() {
            persists = true;
        } else {
            let fits = |option: &ExpiryOption| {
                !persists && expiry.as_ref().is_none_or(|had| had.is_like(option))
            };
            let option = expiry_option(word).filter(fits).ok_or(SYNTAX)?;
            expiry = Some(option.of(options.value()?));
        }
    }
    let Some(value) = read(call.hold, key)? else {
        call.reply.null();
        return Ok(());
    };
    let at = expiry.as_ref().map(|option| option.at(call.hold.now, "getex")).transpose()?;
    call.reply.stored(value);
    match at {
        Some(at) if call.hold.is_past(at) => {
            call.remove(key);
        }
        Some(at) => {
            call.hold.expire_at(key, Some(at));
            call.changed(key, Class::Generic, "expire");
        }
        None if persists && call.hold.entry(key).is_some_and(|e| e.expires_at().is_some()) => {
            call.hold.expire_at(key, None);
            call.changed(key, Class::Generic, "persist");
        }
        None => {}
    }
    Ok(())
}

pub(super) fn mset(call: &mut Call) -> Outcome {
    set_all(call, "mset")?;
    call.reply.ok();
    Ok(())
}

pub(super) fn msetnx(call: &mut Call) -> Outcome {
    let mut keys = call.arguments.from(1).iter().step_by(2);
    let may = !keys.any(|key| call.hold.has(key));
    if call.len().is_multiple_of(2) {
        return Err(Fail::arity("msetnx"));
    }
    if may {
        set_all(call, "msetnx")?;
    }
    call.reply.flag(may);
    Ok(())
}

fn set_all(call: &mut Call, name: &str) -> Outcome {
    if call.len().is_multiple_of(2) {
        return Err(Fail::arity(name));
    }
    for place in (1..call.len()).step_by(2) {
        store(call, call.word(place), call.word(place + 1), None);
    }
    Ok(())
}
