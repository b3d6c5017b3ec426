//! The fast path for small pickles of plain data without a memo, as ZEO peers send them.
//!
//! It builds values directly on the stack. Anything unexpected, and every error, is left to the
//! full machine, which is always right and several times slower.

use std::borrow::Cow;

use crate::operation::{Operation, Reader};
use crate::{Limits, Value};

/// The number of operations that nest values is bounded, which bounds the nesting.
const FILLS_MAX: usize = 50;

/// Decodes the pickle at the start of `bytes`; `None` only means that the full machine must do it.
pub(crate) fn decode_plain<'a>(bytes: &'a [u8], limits: &Limits) -> Option<(Value<'a>, usize)> {
    let mut reader = Reader::new(bytes);
    let mut stack = Stack { values: Vec::with_capacity(8), marks: Vec::with_capacity(4) };
    let mut pushes_left = limits.nodes;
    let mut fills_left = limits.nesting.min(FILLS_MAX);
    loop {
        let operation = reader.next().ok()?;
        if let Some(leaf) = leaf(operation) {
            pushes_left = pushes_left.checked_sub(1)?;
            stack.values.push(leaf);
            continue;
        }
        match operation {
            Operation::Nothing => {}
            Operation::Mark => {
                stack.marks.push(stack.values.len());
                if stack.marks.len() > FILLS_MAX {
                    return None;
                }
            }
            Operation::Stop => return Some((stack.into_only_value()?, reader.position())),
            _ => {
                fills_left = fills_left.checked_sub(1)?;
                if stack.fill(operation)? {
                    pushes_left = pushes_left.checked_sub(1)?;
                }
            }
        }
    }
}

fn leaf(operation: Operation<'_>) -> Option<Value<'_>> {
    Some(match operation {
        Operation::Bytes(bytes) => Value::Bytes(Cow::Borrowed(bytes)),
        Operation::Text(bytes) => Value::Str(Cow::Borrowed(std::str::from_utf8(bytes).ok()?)),
        Operation::Int(number) => Value::Int(number.into()),
        Operation::Long(bytes) => Value::from_twos_complement(bytes),
        Operation::None => Value::None,
        Operation::Bool(truth) => Value::Bool(truth),
        Operation::Float(number) => Value::Float(number),
        Operation::EmptyTuple => Value::Tuple(Vec::new()),
        Operation::EmptyList => Value::List(Vec::new()),
        Operation::EmptyDict => Value::Dict(Vec::new()),
        _ => return None,
    })
}

struct Stack<'a> {
    values: Vec<Value<'a>>,
    /// Heights of the stack at each open mark. Items below the last mark cannot be popped.
    marks: Vec<usize>,
}

impl<'a> Stack<'a> {
    /// Moves values into a container; returns whether the container is a new one.
    fn fill(&mut self, operation: Operation<'a>) -> Option<bool> {
        match operation {
            Operation::Tuple(length) => {
                let items = self.take(length)?;
                self.values.push(Value::Tuple(items));
                return Some(true);
            }
            Operation::TupleFromMark => {
                let items = self.take_to_mark()?;
                self.values.push(Value::Tuple(items));
                return Some(true);
            }
            Operation::Append => {
                let items = self.take(1)?;
                self.list()?.extend(items);
            }
            Operation::Appends => {
                let items = self.take_to_mark()?;
                self.list()?.extend(items);
            }
            Operation::SetItem => {
                let entry = self.take(2)?;
                self.set(entry)?;
            }
            Operation::SetItems => {
                let entries = self.take_to_mark()?;
                self.set(entries)?;
            }
            _ => return None,
        }
        Some(false)
    }

    fn take(&mut self, count: usize) -> Option<Vec<Value<'a>>> {
        let start = self.values.len().checked_sub(count)?;
        (start >= self.floor()).then(|| self.values.split_off(start))
    }

    fn take_to_mark(&mut self) -> Option<Vec<Value<'a>>> {
        let start = self.marks.pop()?;
        Some(self.values.split_off(start))
    }

    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn list(&mut self) -> Option<&mut Vec<Value<'a>>> {
        match self.values.last_mut() {
            Some(Value::List(items)) => Some(items),
            _ => None,
        }
    }

    fn set(&mut self, entries: Vec<Value<'a>>) -> Option<()> {
        let Some(Value::Dict(dict)) = self.values.last_mut() else { return None };
        let mut entries = entries.into_iter();
        while let Some(key) = entries.next() {
            dict.push((key, entries.next()?));
        }
        Some(())
    }

    fn into_only_value(mut self) -> Option<Value<'a>> {
        if !self.marks.is_empty() || self.values.len() > 1 {
            return None;
        }
        self.values.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(pickle: &[u8]) -> Option<(Value<'_>, usize)> {
        decode_plain(pickle, &Limits::PLAIN)
    }

    #[test]
    fn a_message_takes_the_short_cut() {
        let message = b"\x80\x03(K\0\x88X\x06\0\0\0storea(C\x01a](N\x89e}C\x01bNs)\x8a\x01\x05tt.";
        assert!(plain(message).is_some_and(|(_, length)| length == message.len()));
    }

    #[test]
    fn what_is_below_a_mark_is_out_of_reach() {
        for pickle in
            [&b"N(\x85t."[..], b"](Nat.", b"}(Ns.", b"](a.", b"(]e.", b"(N.", b"NN.", b"."]
        {
            assert_eq!(plain(pickle), None, "{pickle:?}");
        }
    }

    #[test]
    fn limits_are_those_of_the_full_machine() {
        let nested = |depth| [b"N".to_vec(), b"\x85".repeat(depth), b".".to_vec()].concat();
        let limits = Limits { nesting: 7, ..Limits::PLAIN };
        assert!(decode_plain(&nested(7), &limits).is_some());
        assert!(decode_plain(&nested(8), &limits).is_none());
        let limits = Limits { nodes: 3, ..Limits::PLAIN };
        assert!(decode_plain(b"NN\x86.", &limits).is_some());
        assert!(decode_plain(b"NNN\x87.", &limits).is_none());
    }

    #[test]
    fn huge_nesting_is_given_up_early() {
        assert_eq!(plain(&[b"(".repeat(1 << 20), b"t".repeat(1 << 20)].concat()), None);
        assert_eq!(plain(&[b")".to_vec(), b"\x85".repeat(1 << 20)].concat()), None);
    }
}
