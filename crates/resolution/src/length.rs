//! Resolves `BTrees.Length`: both transactions' increments are added.

use zodium_pickle::Value;

use crate::Reason;

/// A number, added as Python adds it.
#[derive(Clone, Copy)]
enum Number {
    Int(i128),
    Float(f64),
}

/// `committed + new - old`.
pub(crate) fn resolve(
    old: &Value<'_>,
    committed: &Value<'_>,
    new: &Value<'_>,
) -> Result<Value<'static>, Reason> {
    let sum = number(committed)?.plus(number(new)?)?;
    Ok(match sum.plus(number(old)?.negated()?)? {
        Number::Int(number) => Value::Int(number),
        Number::Float(number) => Value::Float(number),
    })
}

fn number(value: &Value<'_>) -> Result<Number, Reason> {
    match value {
        Value::Float(number) => Ok(Number::Float(*number)),
        Value::BigInt(_) => Err(TOO_LARGE),
        // Of a class, as a Decimal is.
        Value::Object(_) => Err(Reason::Uncertain("a length of another class")),
        value => value.as_int().map(Number::Int).ok_or(Reason::Malformed("a length is a number")),
    }
}

const TOO_LARGE: Reason = Reason::Uncertain("a length beyond 128 bits");

impl Number {
    fn plus(self, other: Number) -> Result<Number, Reason> {
        Ok(match (self, other) {
            (Number::Int(one), Number::Int(other)) => {
                Number::Int(one.checked_add(other).ok_or(TOO_LARGE)?)
            }
            (one, other) => Number::Float(one.as_float() + other.as_float()),
        })
    }

    fn negated(self) -> Result<Number, Reason> {
        Ok(match self {
            Number::Int(number) => Number::Int(number.checked_neg().ok_or(TOO_LARGE)?),
            Number::Float(number) => Number::Float(-number),
        })
    }

    fn as_float(self) -> f64 {
        match self {
            Number::Int(number) => number as f64,
            Number::Float(number) => number,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_changes_are_added() {
        let resolve = |old, committed, new| resolve(&old, &committed, &new);
        assert_eq!(resolve(5.into(), 7.into(), 4.into()), Ok(6.into()));
        assert_eq!(resolve(false.into(), true.into(), true.into()), Ok(2.into()));
        assert_eq!(resolve(1.into(), 1.5.into(), 2.into()), Ok(2.5.into()));
        for odd in [Value::None, "1".into(), Value::Int(i128::MIN)] {
            assert!(resolve(odd, 1.into(), 1.into()).is_err());
        }
        assert!(resolve(0.into(), Value::Int(i128::MAX), 1.into()).is_err());
    }
}
