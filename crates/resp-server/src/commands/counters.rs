//! Numbers in strings: `INCR` and the like.

use zodium_resp::{add_decimals, format_double, parse_double, parse_integer};

use super::strings::read;
use crate::call::Call;
use crate::events::Class;
use crate::fail::{Fail, NAN, NO_FLOAT, NO_INTEGER, OVERFLOW, Outcome};

pub(super) fn incr(call: &mut Call) -> Outcome {
    add(call, 1)
}

pub(super) fn decr(call: &mut Call) -> Outcome {
    add(call, -1)
}

pub(super) fn incrby(call: &mut Call) -> Outcome {
    let by = call.integer(2)?;
    add(call, by)
}

pub(super) fn decrby(call: &mut Call) -> Outcome {
    let by = call.integer(2)?;
    let by = by.checked_neg().ok_or(Fail::fixed("ERR decrement would overflow"))?;
    add(call, by)
}

fn add(call: &mut Call, by: i64) -> Outcome {
    let key = call.word(1);
    let old = match read(call.hold, key)? {
        Some(text) => parse_integer(&text).ok_or(NO_INTEGER)?,
        None => 0,
    };
    let sum = old.checked_add(by).ok_or(OVERFLOW)?;
    replace(call, key, sum.to_string().as_bytes())?;
    call.changed(key, Class::String, "incrby");
    call.reply.integer(sum);
    Ok(())
}

pub(super) fn incrbyfloat(call: &mut Call) -> Outcome {
    let (key, by) = (call.word(1), call.word(2));
    let old = read(call.hold, key)?.map_or(&b"0"[..], |text| text.bytes());
    let sum = sum(old, by)?;
    replace(call, key, sum.as_bytes())?;
    call.changed(key, Class::String, "incrbyfloat");
    call.reply.text(&sum);
    Ok(())
}

/// The sum of two numbers, written without an exponent. Exact where both are short decimals.
pub(super) fn sum(one: &[u8], other: &[u8]) -> Result<String, Fail> {
    if let Some(sum) = add_decimals(one, other) {
        return Ok(sum);
    }
    let number = |text: &[u8]| parse_double(text).ok_or(NO_FLOAT);
    let sum = number(one)? + number(other)?;
    if !sum.is_finite() {
        return Err(NAN);
    }
    let text = format_double(sum);
    Ok(if text.contains('e') { format!("{sum}") } else { text })
}

/// Sets the string of a key, whose time stays.
fn replace(call: &mut Call, key: &[u8], value: &[u8]) -> Outcome {
    Ok(call.hold.replace_string(key, value)?)
}
