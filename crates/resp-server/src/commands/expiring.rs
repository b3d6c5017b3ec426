//! When keys expire: `EXPIRE`, `TTL` and the like, and the options of other commands.

use zodium_keyspace::EntryRef;
use zodium_resp::parse_integer;

use crate::call::{Call, Options, integer, is};
use crate::events::Class;
use crate::fail::{Fail, NO_INTEGER, Outcome};

/// A time as an option: `EX 10`, `PXAT 1700000000000`.
pub(super) struct ExpiryOption<'a> {
    unit_ms: i64,
    is_relative: bool,
    value: &'a [u8],
}

/// The option of a name; its value follows.
pub(super) fn expiry_option(name: &[u8]) -> Option<ExpiryOption<'static>> {
    let kinds = [("ex", 1000, true), ("px", 1, true), ("exat", 1000, false), ("pxat", 1, false)];
    let (_, unit_ms, is_relative) = kinds.into_iter().find(|(kind, ..)| is(name, kind))?;
    Some(ExpiryOption { unit_ms, is_relative, value: &[] })
}

impl ExpiryOption<'_> {
    /// The same, with a value.
    pub(super) fn of(self, value: &[u8]) -> ExpiryOption<'_> {
        ExpiryOption { unit_ms: self.unit_ms, is_relative: self.is_relative, value }
    }

    /// Whether both have the same name.
    pub(super) fn is_like(&self, other: &ExpiryOption) -> bool {
        (self.unit_ms, self.is_relative) == (other.unit_ms, other.is_relative)
    }

    /// The time in milliseconds since 1970. It must be positive.
    pub(super) fn at(&self, now: u64, command: &str) -> Result<u64, Fail> {
        match self.is_relative {
            true => relative(self.value, self.unit_ms, now, command),
            false => {
                let time = integer(self.value)?.checked_mul(self.unit_ms);
                let time = time.filter(|time| *time > 0);
                time.and_then(|time| u64::try_from(time).ok()).ok_or_else(|| invalid(command))
            }
        }
    }
}

/// A positive time from now on.
pub(super) fn relative(word: &[u8], unit: i64, now: u64, command: &str) -> Result<u64, Fail> {
    let time = integer(word)?;
    let time = time.checked_mul(unit).filter(|time| *time > 0);
    let now = i64::try_from(now).unwrap_or(i64::MAX);
    let at = time.and_then(|time| now.checked_add(time)).and_then(|at| u64::try_from(at).ok());
    at.ok_or_else(|| invalid(command))
}

fn invalid(command: &str) -> Fail {
    Fail::text(format!("ERR invalid expire time in '{command}' command"))
}

pub(super) fn expire(call: &mut Call) -> Outcome {
    set_time(call, "expire", 1000, true)
}

pub(super) fn pexpire(call: &mut Call) -> Outcome {
    set_time(call, "pexpire", 1, true)
}

pub(super) fn expireat(call: &mut Call) -> Outcome {
    set_time(call, "expireat", 1000, false)
}

pub(super) fn pexpireat(call: &mut Call) -> Outcome {
    set_time(call, "pexpireat", 1, false)
}

/// The conditions of `EXPIRE`.
#[derive(Default)]
struct Conditions {
    only_new: bool,
    only_old: bool,
    only_greater: bool,
    only_less: bool,
}

impl Conditions {
    fn of(call: &Call) -> Result<Conditions, Fail> {
        let mut found = Conditions::default();
        let mut options = Options::from(call.arguments, 3);
        while let Some(word) = options.next() {
            let option = [
                ("nx", &mut found.only_new),
                ("xx", &mut found.only_old),
                ("gt", &mut found.only_greater),
                ("lt", &mut found.only_less),
            ];
            let option = option.into_iter().find(|(name, _)| is(word, name));
            match option {
                Some((_, is_set)) => *is_set = true,
                None => {
                    let word = String::from_utf8_lossy(word);
                    return Err(Fail::text(format!("ERR Unsupported option {word}")));
                }
            }
        }
        let has_other = found.only_old || found.only_greater || found.only_less;
        if found.only_new && has_other {
            return Err(Fail::fixed(
                "ERR NX and XX, GT or LT options at the same time are not compatible",
            ));
        }
        if found.only_greater && found.only_less {
            return Err(Fail::fixed("ERR GT and LT options at the same time are not compatible"));
        }
        Ok(found)
    }

    /// Whether a key with this time may get that one.
    fn allow(&self, old: Option<u64>, new: i64) -> bool {
        // A key that never expires is like one that expires at the end of time.
        let old_at = old.map_or(i64::MAX, |at| i64::try_from(at).unwrap_or(i64::MAX));
        !(self.only_new && old.is_some()
            || self.only_old && old.is_none()
            || self.only_greater && (old.is_none() || new <= old_at)
            || self.only_less && old.is_some() && new >= old_at)
    }
}

fn set_time(call: &mut Call, name: &str, unit_ms: i64, is_relative: bool) -> Outcome {
    let key = call.word(1);
    let conditions = Conditions::of(call)?;
    let time = parse_integer(call.word(2)).ok_or(NO_INTEGER)?;
    let now = i64::try_from(call.hold.now).unwrap_or(i64::MAX);
    let at = time.checked_mul(unit_ms).and_then(|time| match is_relative {
        true => time.checked_add(now),
        false => Some(time),
    });
    let at = at.ok_or_else(|| invalid(name))?;
    let old = call.hold.entry(key).map(EntryRef::expires_at);
    let is_done = old.is_some_and(|old| conditions.allow(old, at));
    if is_done {
        match u64::try_from(at).ok().filter(|at| !call.hold.is_past(*at)) {
            Some(at) => {
                call.hold.expire_at(key, Some(at));
                call.changed(key, Class::Generic, "expire");
            }
            None => {
                call.remove(key);
            }
        }
    }
    call.reply.flag(is_done);
    Ok(())
}

pub(super) fn ttl(call: &mut Call) -> Outcome {
    // Rounded to the nearest second.
    answer_time(call, |at, now| at.saturating_sub(now).saturating_add(500) / 1000)
}

pub(super) fn pttl(call: &mut Call) -> Outcome {
    answer_time(call, u64::saturating_sub)
}

pub(super) fn expiretime(call: &mut Call) -> Outcome {
    answer_time(call, |at, _| at.saturating_add(500) / 1000)
}

pub(super) fn pexpiretime(call: &mut Call) -> Outcome {
    answer_time(call, |at, _| at)
}

fn answer_time(call: &mut Call, time: impl FnOnce(u64, u64) -> u64) -> Outcome {
    let answer = match call.hold.find(call.word(1)).map(EntryRef::expires_at) {
        None => -2,
        Some(None) => -1,
        Some(Some(at)) => i64::try_from(time(at, call.hold.now)).unwrap_or(i64::MAX),
    };
    call.reply.integer(answer);
    Ok(())
}

pub(super) fn persist(call: &mut Call) -> Outcome {
    let key = call.word(1);
    let has_time = call.hold.entry(key).is_some_and(|entry| entry.expires_at().is_some());
    if has_time {
        call.hold.expire_at(key, None);
        call.changed(key, Class::Generic, "persist");
    }
    call.reply.flag(has_time);
    Ok(())
}
