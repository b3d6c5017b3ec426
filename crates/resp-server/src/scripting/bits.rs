//! The library `bit` of scripts: operations on 32 bits, with results from -2^31 to 2^31 - 1.

use mlua::{Lua, Result, Table, Variadic};

/// Operations on 32 bits.
type Unary = fn(u32) -> u32;
type Binary = fn(u32, u32) -> u32;

/// A number's bits: it wraps around at 2^32, and a fraction is rounded.
fn bits(number: f64) -> u32 {
    let wrapped = number.round_ties_even().rem_euclid(4_294_967_296.0);
    wrapped as u32
}

fn number(bits: u32) -> f64 {
    f64::from(bits.cast_signed())
}

/// The library.
pub(super) fn library(lua: &Lua) -> Result<Table> {
    let table = lua.create_table()?;
    let unary: [(&str, Unary); 3] =
        [("tobit", |a| a), ("bnot", |a| !a), ("bswap", u32::swap_bytes)];
    for (name, operation) in unary {
        let function = lua.create_function(move |_, a: f64| Ok(number(operation(bits(a)))))?;
        table.raw_set(name, function)?;
    }
    let folds: [(&str, Binary); 3] =
        [("band", |a, b| a & b), ("bor", |a, b| a | b), ("bxor", |a, b| a ^ b)];
    for (name, operation) in folds {
        let function = lua.create_function(move |_, (a, rest): (f64, Variadic<f64>)| {
            let all = rest.iter().fold(bits(a), |all, one| operation(all, bits(*one)));
            Ok(number(all))
        })?;
        table.raw_set(name, function)?;
    }
    // Only the last five bits of a distance count.
    let shifts: [(&str, Binary); 5] = [
        ("lshift", |a, n| a << (n & 31)),
        ("rshift", |a, n| a >> (n & 31)),
        ("arshift", |a, n| (a.cast_signed() >> (n & 31)).cast_unsigned()),
        ("rol", |a, n| a.rotate_left(n & 31)),
        ("ror", |a, n| a.rotate_right(n & 31)),
    ];
    for (name, operation) in shifts {
        let function = lua.create_function(move |_, (a, n): (f64, f64)| {
            Ok(number(operation(bits(a), bits(n))))
        })?;
        table.raw_set(name, function)?;
    }
    table.raw_set("tohex", lua.create_function(|_, (a, n): (f64, Option<f64>)| Ok(hex(a, n)))?)?;
    Ok(table)
}

/// So many hexadecimal digits, 8 without a number; in upper case if it is negative.
fn hex(number: f64, digits: Option<f64>) -> String {
    let digits = digits.unwrap_or(8.0);
    let text = match digits < 0.0 {
        true => format!("{:08X}", bits(number)),
        false => format!("{:08x}", bits(number)),
    };
    let count = (digits.abs() as usize).min(8);
    text[8 - count..].to_owned()
}
