//! Parts of strings: `APPEND`, `GETRANGE`, `SETRANGE`, `STRLEN`, `SUBSTR`.

use zodium_keyspace::Text;

use super::positions::range;
use super::strings::read;
use crate::call::{Call, integer};
use crate::events::Class;
use crate::fail::{Fail, Outcome, TOO_LONG};

/// Strings from this length on are checked for memory before they are made.
const LONG_BYTES_MIN: usize = 1 << 20;

const NO_MEMORY: Fail = Fail::fixed("ERR the system has no memory for a string of this length");

pub(super) fn strlen(call: &mut Call) -> Outcome {
    let length = read(call.hold, call.word(1))?.map_or(0, |text| text.len());
    call.reply.count(length);
    Ok(())
}

pub(super) fn append(call: &mut Call) -> Outcome {
    let (key, more) = (call.word(1), call.word(2));
    let old = read(call.hold, key)?.map_or(0, |text| text.len());
    check_length(call, old.saturating_add(more.len()))?;
    let length = change(call, key, |bytes| {
        bytes.extend_from_slice(more);
    })?;
    call.changed(key, Class::String, "append");
    call.reply.count(length);
    Ok(())
}

pub(super) fn getrange(call: &mut Call) -> Outcome {
    let (start, end) = (call.integer(2)?, call.integer(3)?);
    let Some(text) = read(call.hold, call.word(1))? else {
        call.reply.bulk(b"");
        return Ok(());
    };
    // Two negative places in the wrong order are empty, also before the beginning.
    let is_empty = start < 0 && end < 0 && start > end;
    // Unlike in lists, an end before the beginning is the first byte.
    let end = end.max(-i64::try_from(text.len()).unwrap_or(i64::MAX));
    let places = range(start, end, text.len()).filter(|_| !is_empty).unwrap_or(0..0);
    match text {
        Text::Shared(bytes) => call.reply.shared(&bytes.slice(places)),
        Text::Packed(bytes) => call.reply.bulk(&bytes[places]),
    }
    Ok(())
}

pub(super) fn setrange(call: &mut Call) -> Outcome {
    let (key, value) = (call.word(1), call.word(3));
    let offset = integer(call.word(2))?;
    let offset = usize::try_from(offset).map_err(|_| Fail::fixed("ERR offset is out of range"))?;
    let old = read(call.hold, key)?.map_or(0, |text| text.len());
    if value.is_empty() {
        call.reply.count(old);
        return Ok(());
    }
    check_length(call, offset.saturating_add(value.len()))?;
    let length = change(call, key, |bytes| {
        let end = offset + value.len();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[offset..end].copy_from_slice(value);
    })?;
    call.changed(key, Class::String, "setrange");
    call.reply.count(length);
    Ok(())
}

fn check_length(call: &Call, length: usize) -> Outcome {
    match length > call.server.settings.bulk_bytes_max() {
        true => Err(TOO_LONG),
        false => check_memory(length),
    }
}

/// Whether the system has memory for a string of so many bytes, and for the one that it is copied
/// from. Without it the allocation would end the process.
pub(super) fn check_memory(length: usize) -> Outcome {
    if length < LONG_BYTES_MIN {
        return Ok(());
    }
    let mut probe: Vec<u8> = Vec::new();
    let is_there = probe.try_reserve_exact(length.saturating_mul(2)).is_ok();
    // The compiler must not do without the allocation.
    std::hint::black_box(&probe);
    if is_there { Ok(()) } else { Err(NO_MEMORY) }
}

/// Changes the string of a key, which begins as empty; returns its length. The time stays.
pub(super) fn change(
    call: &mut Call,
    key: &[u8],
    change: impl FnOnce(&mut Vec<u8>),
) -> Result<usize, Fail> {
    Ok(call.hold.change_string(key, change)?)
}
