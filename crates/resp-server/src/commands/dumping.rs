//! `DUMP` and `RESTORE`: values in the format of RDB, with its version and a checksum.

use zodium_keyspace::{Entry, ValueRef};
use zodium_rdb::{Input, NEWEST_VERSION, VERSION, read_value, sum, write_value};
use zodium_resp::parse_integer;

use crate::call::{Call, Options, is};
use crate::events::Class;
use crate::fail::{Fail, Outcome, SYNTAX};

/// Bytes behind a value: the version, and the sum.
const TAIL_BYTES: usize = 10;

const WRONG_SUM: Fail = Fail::fixed("ERR DUMP payload version or checksum are wrong");
const BAD_DATA: Fail = Fail::fixed("ERR Bad data format");
const BUSY_KEY: Fail = Fail::fixed("BUSYKEY Target key name already exists.");
const WRONG_TIME: Fail = Fail::fixed("ERR Invalid TTL value, must be >= 0");
const WRONG_IDLE_TIME: Fail = Fail::fixed("ERR Invalid IDLETIME value, must be >= 0");
const WRONG_FREQUENCY: Fail = Fail::fixed("ERR Invalid FREQ value, must be >= 0 and <= 255");

/// `DUMP key`
pub(super) fn dump(call: &mut Call) -> Outcome {
    let Some(entry) = call.hold.find(call.word(1)) else {
        call.reply.null();
        return Ok(());
    };
    call.reply.bulk(&payload_of(entry.value()));
    Ok(())
}

/// A value as `DUMP` gives it.
pub(crate) fn payload_of(value: ValueRef<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_value(&mut bytes, value);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    let sum = sum(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}

/// The options of `RESTORE`.
#[derive(Default)]
struct RestoreOptions {
    replaces: bool,
    is_absolute: bool,
    /// Seconds since the last use.
    idle: Option<u64>,
    frequency: Option<u8>,
}

fn options(call: &Call) -> Result<RestoreOptions, Fail> {
    let mut found = RestoreOptions::default();
    let mut options = Options::from(call.arguments, 4);
    while let Some(word) = options.next() {
        if is(word, "replace") {
            found.replaces = true;
        } else if is(word, "absttl") {
            found.is_absolute = true;
        } else if is(word, "idletime") && options.left() > 0 && found.frequency.is_none() {
            let seconds = crate::call::integer(options.value()?)?;
            found.idle = Some(u64::try_from(seconds).map_err(|_| WRONG_IDLE_TIME)?);
        } else if is(word, "freq") && options.left() > 0 && found.idle.is_none() {
            let frequency = crate::call::integer(options.value()?)?;
            found.frequency = Some(u8::try_from(frequency).map_err(|_| WRONG_FREQUENCY)?);
        } else {
            return Err(SYNTAX);
        }
    }
    Ok(found)
}

/// `RESTORE key ttl value [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]`
pub(super) fn restore(call: &mut Call) -> Outcome {
    let options = options(call)?;
    let (key, payload) = (call.word(1), call.word(3));
    if !options.replaces && call.hold.has(key) {
        return Err(BUSY_KEY);
    }
    let time = parse_integer(call.word(2)).ok_or(crate::fail::NO_INTEGER)?;
    let time = u64::try_from(time).map_err(|_| WRONG_TIME)?;
    let mut value = checked(payload).ok_or(WRONG_SUM)?;
    let (kind, rest) = value.split_first().ok_or(BAD_DATA)?;
    value = rest;
    let bytes_max = call.server.settings.bulk_bytes_max() as u64;
    let mut input = Input::new(&mut value).decompressing(bytes_max);
    let read = read_value(*kind, &mut input).map_err(|_| BAD_DATA)?;
    if !value.is_empty() {
        return Err(BAD_DATA);
    }
    let expires_at = match (time, options.is_absolute) {
        (0, _) => None,
        (time, true) => Some(time),
        (time, false) => Some(call.hold.now.saturating_add(time)),
    };
    if expires_at.is_some_and(|at| call.hold.is_past(at)) {
        call.remove(key);
    } else {
        // To listeners it is a new key, whatever was there.
        call.hold.remove(key);
        call.hold.put(key, Entry::new(read).expiring(expires_at));
        let now = call.hold.now / 1000;
        call.hold.set_use(
            key,
            options.idle.map(|idle| now.saturating_sub(idle)),
            options.frequency,
        );
        call.changed(key, Class::Generic, "restore");
    }
    call.reply.ok();
    Ok(())
}

/// The value of a payload whose version is known, and whose sum is right.
fn checked(payload: &[u8]) -> Option<&[u8]> {
    let (value, tail) = payload.split_at_checked(payload.len().checked_sub(TAIL_BYTES)?)?;
    let (version, wanted) = tail.split_first_chunk::<2>()?;
    let wanted = u64::from_le_bytes(wanted.try_into().ok()?);
    let is_known = u16::from_le_bytes(*version) <= NEWEST_VERSION;
    // A sum of zero says that there is none.
    let is_sound = wanted == 0 || sum(&payload[..payload.len() - size_of::<u64>()]) == wanted;
    (is_known && is_sound).then_some(value)
}
