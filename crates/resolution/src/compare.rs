//! Compares keys and values as Python does, as far as that is certain without Python.
//!
//! BTrees compares with `<` and then `==`, with `None` before everything. If Python would raise an
//! exception, Python does not resolve the conflict either. If Python would call a method of a
//! class, it cannot be resolved here. Both cases are [`Reason::Uncertain`].

use std::cmp::Ordering;

use zodium_pickle::{Global, Value};

use crate::Reason;

/// Compares two keys, or two values, as BTrees does.
pub(crate) fn compare(one: &Value<'_>, other: &Value<'_>) -> Result<Ordering, Reason> {
    match (one, other) {
        (Value::None, Value::None) => Ok(Ordering::Equal),
        (Value::None, _) => Ok(Ordering::Less),
        (_, Value::None) => Ok(Ordering::Greater),
        _ => order(one, other),
    }
}

/// Python's `<` and `==`, the latter where `<` is false.
fn order(one: &Value<'_>, other: &Value<'_>) -> Result<Ordering, Reason> {
    match (one, other) {
        (Value::Str(one), Value::Str(other)) => Ok(one.cmp(other)),
        (Value::Bytes(one), Value::Bytes(other)) => Ok(one.cmp(other)),
        (Value::Tuple(one), Value::Tuple(other)) | (Value::List(one), Value::List(other)) => {
            order_items(one, other)
        }
        (Value::Persistent(_), Value::Persistent(_)) | (Value::Object(_), Value::Object(_)) => {
            match equal(one, other)? {
                true => Ok(Ordering::Equal),
                false => uncertain("different objects"),
            }
        }
        _ if is_number(one) && is_number(other) => order_numbers(one, other),
        _ => uncertain("values that have no order"),
    }
}

fn order_items(one: &[Value<'_>], other: &[Value<'_>]) -> Result<Ordering, Reason> {
    for (one, other) in one.iter().zip(other) {
        if !equal(one, other)? {
            // `None` has no order here.
            return order(one, other);
        }
    }
    Ok(one.len().cmp(&other.len()))
}

/// Python's `==`.
fn equal(one: &Value<'_>, other: &Value<'_>) -> Result<bool, Reason> {
    match (one, other) {
        (Value::None, Value::None) => Ok(true),
        (Value::Tuple(one), Value::Tuple(other)) | (Value::List(one), Value::List(other)) => {
            equal_items(one, other)
        }
        (Value::Dict(one), Value::Dict(other)) => equal_entries(one, other),
        (Value::Persistent(one), Value::Persistent(other)) => equal_references(one, other),
        (Value::Global(one), Value::Global(other)) if one == other => Ok(true),
        (Value::Object(made), Value::Object(_)) => {
            match made.class().is_some_and(is_plain) && one == other {
                true => Ok(true),
                false => uncertain("instances of a class"),
            }
        }
        (Value::Object(_) | Value::Persistent(_) | Value::Global(_), _)
        | (_, Value::Object(_) | Value::Persistent(_) | Value::Global(_)) => {
            uncertain("an instance of a class")
        }
        _ if is_number(one) && is_number(other) => {
            Ok(order_numbers(one, other)? == Ordering::Equal)
        }
        (Value::Str(one), Value::Str(other)) => Ok(one == other),
        (Value::Bytes(one), Value::Bytes(other)) => Ok(one == other),
        // Different types, neither of which calls a method.
        _ => Ok(false),
    }
}

fn equal_items(one: &[Value<'_>], other: &[Value<'_>]) -> Result<bool, Reason> {
    if one.len() != other.len() {
        return Ok(false);
    }
    for (one, other) in one.iter().zip(other) {
        if !equal(one, other)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Dicts pickled in the same order can be compared; others would need the hash of every key.
fn equal_entries(
    one: &[(Value<'_>, Value<'_>)],
    other: &[(Value<'_>, Value<'_>)],
) -> Result<bool, Reason> {
    let mut alike = one.len() == other.len();
    for ((one_key, one_value), (other_key, other_value)) in one.iter().zip(other) {
        alike = alike && equal(one_key, other_key)? && equal(one_value, other_value)?;
    }
    if alike { Ok(true) } else { uncertain("dicts in different order") }
}

/// Instances of these classes are equal if they are constructed alike, and comparing raises
/// nothing.
fn is_plain(class: &Global<'_>) -> bool {
    match class.module() {
        "datetime" => ["date", "datetime", "time", "timedelta"].contains(&class.name()),
        _ => false,
    }
}

fn is_number(value: &Value<'_>) -> bool {
    matches!(value, Value::Bool(_) | Value::Int(_) | Value::BigInt(_) | Value::Float(_))
}

fn order_numbers(one: &Value<'_>, other: &Value<'_>) -> Result<Ordering, Reason> {
    match (one, other) {
        (Value::Float(one), Value::Float(other)) => one.partial_cmp(other).ok_or(NAN),
        (Value::Float(one), other) => order_with_float(other, *one).map(Ordering::reverse),
        (one, Value::Float(other)) => order_with_float(one, *other),
        (Value::BigInt(one), Value::BigInt(other)) => Ok(order_huge(one, other)),
        (Value::BigInt(one), _) => Ok(sign(one)),
        (_, Value::BigInt(other)) => Ok(sign(other).reverse()),
        (one, other) => Ok(one.as_int().cmp(&other.as_int())),
    }
}

const NAN: Reason = Reason::Uncertain("NaN");

/// Compares exactly, as Python does: the integer is not rounded.
fn order_with_float(one: &Value<'_>, float: f64) -> Result<Ordering, Reason> {
    if float.is_nan() {
        return Err(NAN);
    }
    let Some(int) = one.as_int() else { return uncertain("a huge integer and a float") };
    let limit = 2_f64.powi(127);
    if float >= limit {
        return Ok(Ordering::Less);
    }
    if float < -limit {
        return Ok(Ordering::Greater);
    }
    // Within 128 bits the integral part converts exactly.
    let whole = float.trunc();
    let fraction = float - whole;
    Ok(int.cmp(&(whole as i128)).then(0.0_f64.partial_cmp(&fraction).unwrap_or(Ordering::Equal)))
}

/// Compares minimal two's complements of more than 128 bits. With equal signs, the longer one is
/// farther from zero; with equal lengths, the bytes decide from the top.
fn order_huge(one: &[u8], other: &[u8]) -> Ordering {
    let by_sign = sign(one).cmp(&sign(other));
    let by_length = one.len().cmp(&other.len());
    let by_length = if sign(one) == Ordering::Less { by_length.reverse() } else { by_length };
    by_sign.then(by_length).then_with(|| one.iter().rev().cmp(other.iter().rev()))
}

/// Compares a huge integer with zero, and so with all that are not huge.
fn sign(bytes: &[u8]) -> Ordering {
    match bytes.last() {
        Some(top) if top & 0x80 != 0 => Ordering::Less,
        _ => Ordering::Greater,
    }
}

/// References are either equal or not comparable, because the objects are not available. A weak
/// reference equals only an identical one.
fn equal_references(one: &Value<'_>, other: &Value<'_>) -> Result<bool, Reason> {
    let alike = one == other;
    let same = match (strong_target(one), strong_target(other)) {
        (Some(one), Some(other)) => one == other,
        _ => false,
    };
    if alike || same { Ok(true) } else { uncertain("references to different objects") }
}

/// Database (`None`: this one) and oid of a strong reference.
fn strong_target<'v>(id: &'v Value<'_>) -> Option<(Option<&'v str>, &'v [u8])> {
    match id {
        Value::Bytes(oid) => Some((None, oid)),
        Value::Tuple(parts) => match &parts[..] {
            [Value::Bytes(oid), _] => Some((None, oid)),
            _ => None,
        },
        Value::List(parts) => match &parts[..] {
            [Value::Str(kind), Value::Tuple(parts)] if kind == "m" || kind == "n" => {
                match &parts[..] {
                    [Value::Str(database), Value::Bytes(oid), ..] => Some((Some(database), oid)),
                    _ => None,
                }
            }
            _ => None,
        },
        _ => None,
    }
}

fn uncertain<T>(what: &'static str) -> Result<T, Reason> {
    Err(Reason::Uncertain(what))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn huge(negative: bool, length: usize) -> Value<'static> {
        let top = if negative { 0x80 } else { 0x01 };
        let bytes = [vec![0; length - 1], vec![top]].concat();
        Value::from_twos_complement(&bytes).into_owned()
    }

    #[test]
    fn keys_are_ordered_as_python_orders_them() {
        let int = |number: i128| Value::Int(number);
        let numbers = [
            huge(true, 21),
            huge(true, 20),
            int(i128::MIN),
            Value::Float(-1.5),
            int(-1),
            Value::Float(-0.5),
            int(0),
            Value::Float(0.5),
            int(1),
            Value::Float((1_u64 << 53) as f64),
            int((1 << 53) + 1),
            int(i128::MAX),
            huge(false, 20),
            huge(false, 21),
        ];
        let tuple = |items: &[Value<'static>]| Value::Tuple(items.to_vec());
        let none = Value::None;
        let tuples = [
            tuple(&[]),
            tuple(&[int(1)]),
            tuple(&[int(1), none.clone(), "a".into()]),
            tuple(&[int(1), none.clone(), "b".into()]),
            tuple(&[int(2), "a".into()]),
        ];
        let texts = ["", "B", "a", "a\u{e9}", "\u{ffff}", "\u{10000}"].map(Value::from);
        for ordered in [&numbers[..], &tuples, &texts] {
            let ordered = [&[Value::None], ordered].concat();
            for (place, one) in ordered.iter().enumerate() {
                for (other_place, other) in ordered.iter().enumerate() {
                    let floats = matches!(one, Value::Float(_)) || matches!(other, Value::Float(_));
                    let huge = matches!(one, Value::BigInt(_)) || matches!(other, Value::BigInt(_));
                    if !(floats && huge) || place == other_place {
                        assert_eq!(
                            compare(one, other),
                            Ok(place.cmp(&other_place)),
                            "{one:?} {other:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn equal_numbers_of_different_kinds_are_equal() {
        for (one, other) in [
            (Value::Int(1), Value::Bool(true)),
            (Value::Int(0), Value::Float(-0.0)),
            (Value::Bool(false), Value::Float(0.0)),
            (Value::Int(-3), Value::Float(-3.0)),
        ] {
            assert_eq!(compare(&one, &other), Ok(Ordering::Equal), "{one:?} {other:?}");
            assert_eq!(compare(&other, &one), Ok(Ordering::Equal), "{one:?} {other:?}");
        }
    }

    #[test]
    fn what_python_would_not_order_is_left_to_it() {
        let dict = Value::dict([("a", 1.into())]);
        for (one, other) in [
            (Value::Int(1), Value::from("a")),
            (b"a".into(), "a".into()),
            (f64::NAN.into(), f64::NAN.into()),
            (dict.clone(), dict),
            (Value::tuple([Value::None]), Value::tuple([1.into()])),
            (Value::tuple([]), Value::list([])),
        ] {
            assert!(compare(&one, &other).is_err(), "{one:?} {other:?}");
        }
    }

    #[test]
    fn references_are_equal_or_not_comparable() {
        let reference = |id| Value::Persistent(Box::new(id));
        let oid = |number: u8| Value::from(vec![0, 0, 0, 0, 0, 0, 0, number]);
        let plain = |number| reference(Value::tuple([oid(number), "class".into()]));
        let weak = |number| reference(Value::list(["w".into(), Value::tuple([oid(number)])]));
        let far = |name: &'static str, number| {
            reference(Value::list(["n".into(), Value::tuple([name.into(), oid(number)])]))
        };
        for (one, other) in [
            (plain(1), plain(1)),
            (plain(1), reference(oid(1))),
            (weak(1), weak(1)),
            (far("a", 1), far("a", 1)),
        ] {
            assert_eq!(compare(&one, &other), Ok(Ordering::Equal));
        }
        for (one, other) in [
            (plain(1), plain(2)),
            (plain(1), weak(1)),
            (far("a", 1), far("b", 1)),
            (far("a", 1), plain(1)),
            (plain(1), Value::Int(1)),
        ] {
            assert!(compare(&one, &other).is_err());
        }
        assert_eq!(compare(&plain(1), &Value::None), Ok(Ordering::Greater));
    }
}
