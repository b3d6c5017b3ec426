//! The types of keys and values: what a bucket accepts, and how it stores it.

use zodium_pickle::Value;

use crate::Reason;

/// The type of a key or value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    /// `O`: anything.
    Object,
    /// `I`, `L` (signed), `U`, `Q` (not): integers in this range.
    Int { min: i128, max: i128 },
    /// `F`: floats of 32 bits.
    Float,
    /// `fs`: bytes of this length.
    Bytes(usize),
}

impl Column {
    pub(crate) fn from_letter(letter: u8) -> Option<Column> {
        Some(match letter {
            b'O' => Column::Object,
            b'I' => Column::Int { min: i32::MIN.into(), max: i32::MAX.into() },
            b'L' => Column::Int { min: i64::MIN.into(), max: i64::MAX.into() },
            b'U' => Column::Int { min: 0, max: u32::MAX.into() },
            b'Q' => Column::Int { min: 0, max: u64::MAX.into() },
            b'F' => Column::Float,
            _ => return None,
        })
    }

    /// Converts a value as a bucket stores it; fails where a bucket would refuse the value.
    pub(crate) fn take<'a>(self, value: Value<'a>) -> Result<Value<'a>, Reason> {
        match self {
            Column::Object => Ok(value),
            Column::Int { min, max } => match value.as_int() {
                Some(number) if (min..=max).contains(&number) => Ok(Value::Int(number)),
                _ => Err(Reason::Malformed("not an integer of the tree's range")),
            },
            Column::Float => take_float(&value),
            Column::Bytes(length) => match value.as_bytes() {
                Some(bytes) if bytes.len() == length => Ok(value),
                _ => Err(Reason::Malformed("not bytes of the tree's length")),
            },
        }
    }
}

/// Rounds a float to 32 bits. The C and Python versions disagree about NaN.
fn take_float<'a>(value: &Value<'a>) -> Result<Value<'a>, Reason> {
    let number = match value {
        Value::Float(number) => *number as f32,
        value => match value.as_int().map(i64::try_from) {
            Some(Ok(number)) => number as f32,
            _ => return Err(Reason::Malformed("not a float")),
        },
    };
    match number.is_nan() {
        true => Err(Reason::Uncertain("NaN")),
        false => Ok(Value::Float(number.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(letter: u8, value: Value<'_>) -> Option<Value<'_>> {
        Column::from_letter(letter).unwrap().take(value).ok()
    }

    #[test]
    fn integers_keep_to_their_range() {
        for (letter, min, max) in [
            (b'I', -(1 << 31), (1 << 31) - 1),
            (b'L', -(1 << 63), (1 << 63) - 1),
            (b'U', 0, (1 << 32) - 1),
            (b'Q', 0, (1_i128 << 64) - 1),
        ] {
            for fits in [min, max] {
                assert_eq!(take(letter, Value::Int(fits)), Some(Value::Int(fits)));
            }
            for unfit in [min - 1, max + 1] {
                assert_eq!(take(letter, Value::Int(unfit)), None);
            }
        }
        assert_eq!(take(b'I', true.into()), Some(1.into()));
        assert_eq!(take(b'I', 1.0.into()), None);
    }

    #[test]
    fn floats_are_rounded_and_bytes_measured() {
        assert_eq!(take(b'F', 0.1.into()), Some(Value::Float(f64::from(0.1_f32))));
        assert_eq!(take(b'F', 3.into()), Some(3.0.into()));
        assert_eq!(take(b'F', f64::NAN.into()), None);
        assert_eq!(Column::Bytes(2).take(b"ab".into()), Ok(b"ab".into()));
        assert!(Column::Bytes(2).take(b"abc".into()).is_err());
        assert!(Column::Bytes(2).take("ab".into()).is_err());
    }
}
