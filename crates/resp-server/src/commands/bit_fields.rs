//! Integers of any width within strings: `BITFIELD`, `BITFIELD_RO`.

use zodium_keyspace::Text;
use zodium_resp::parse_integer;

use super::bits::{bit, offset, set_bit};
use super::strings::read;
use super::substrings::{change, check_memory};
use crate::call::{Call, Options, is};
use crate::events::Class;
use crate::fail::{Fail, NO_INTEGER, Outcome, SYNTAX};

const NO_TYPE: Fail = Fail::fixed(
    "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 \
     is.",
);

/// The width and sign of an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Width {
    bits: u32,
    is_signed: bool,
}

/// What becomes of a number that does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

#[derive(Clone, Copy, Debug)]
enum Action {
    Get,
    Set(i64),
    Add(i64),
}

/// One operation of a command.
#[derive(Clone, Copy, Debug)]
struct Step {
    action: Action,
    width: Width,
    offset: usize,
    overflow: Overflow,
}

impl Width {
    fn of(word: &[u8]) -> Result<Width, Fail> {
        let (sign, bits) = word.split_first().ok_or(NO_TYPE)?;
        let is_signed = match sign {
            b'i' => true,
            b'u' => false,
            _ => return Err(NO_TYPE),
        };
        let bits = parse_integer(bits).and_then(|bits| u32::try_from(bits).ok()).ok_or(NO_TYPE)?;
        let most = if is_signed { 64 } else { 63 };
        if !(1..=most).contains(&bits) { Err(NO_TYPE) } else { Ok(Width { bits, is_signed }) }
    }

    fn least(self) -> i128 {
        if self.is_signed { -(1 << (self.bits - 1)) } else { 0 }
    }

    fn most(self) -> i128 {
        if self.is_signed { (1 << (self.bits - 1)) - 1 } else { (1 << self.bits) - 1 }
    }

    /// The number in this width; `None` if it does not fit and must not be changed.
    fn fit(self, number: i128, overflow: Overflow) -> Option<i128> {
        if (self.least()..=self.most()).contains(&number) {
            return Some(number);
        }
        match overflow {
            Overflow::Fail => None,
            Overflow::Saturate => Some(number.clamp(self.least(), self.most())),
            Overflow::Wrap => {
                let wrapped = number & ((1 << self.bits) - 1);
                Some(if wrapped > self.most() { wrapped - (1 << self.bits) } else { wrapped })
            }
        }
    }

    /// As [`Width::fit`], for a number that is set: as in stock, a negative one is a large one in a
    /// width without a sign.
    fn fit_set(self, number: i128, overflow: Overflow) -> Option<i128> {
        match overflow {
            Overflow::Saturate if number < 0 && !self.is_signed => Some(self.most()),
            _ => self.fit(number, overflow),
        }
    }

    fn read(self, bytes: &[u8], offset: usize) -> i128 {
        let places = offset..offset + self.bits as usize;
        let number = places.fold(0, |all, place| all << 1 | i128::from(bit(bytes, place)));
        if self.is_signed && number > self.most() { number - (1 << self.bits) } else { number }
    }

    fn write(self, bytes: &mut Vec<u8>, offset: usize, number: i128) {
        let bits = self.bits as usize;
        bytes.resize(bytes.len().max((offset + bits).div_ceil(8)), 0);
        for place in 0..bits {
            set_bit(bytes, offset + place, number >> (bits - 1 - place) & 1 == 1);
        }
    }
}

/// The steps of a command.
fn steps(call: &Call, is_readonly: bool) -> Result<Vec<Step>, Fail> {
    let mut options = Options::from(call.arguments, 2);
    let (mut steps, mut overflow) = (Vec::new(), Overflow::Wrap);
    while let Some(word) = options.next() {
        if is(word, "overflow") && options.left() > 0 {
            let kinds =
                [("wrap", Overflow::Wrap), ("sat", Overflow::Saturate), ("fail", Overflow::Fail)];
            let kind = options.value()?;
            let found = kinds.into_iter().find(|(name, _)| is(kind, name));
            overflow = found.ok_or(Fail::fixed("ERR Invalid OVERFLOW type specified"))?.1;
            continue;
        }
        let values = match word {
            word if is(word, "get") => 2,
            word if is(word, "set") || is(word, "incrby") => 3,
            _ => return Err(SYNTAX),
        };
        if options.left() < values {
            return Err(SYNTAX);
        }
        let width = Width::of(options.value()?)?;
        let offset = field_offset(call, options.value()?, width)?;
        let action = match values {
            2 => Action::Get,
            _ if is_readonly => {
                return Err(Fail::fixed("ERR BITFIELD_RO only supports the GET subcommand"));
            }
            _ => {
                let number = parse_integer(options.value()?).ok_or(NO_INTEGER)?;
                if is(word, "set") { Action::Set(number) } else { Action::Add(number) }
            }
        };
        steps.push(Step { action, width, offset, overflow });
    }
    Ok(steps)
}

/// A place in bits; `#3` is that of the fourth number.
fn field_offset(call: &Call, word: &[u8], width: Width) -> Result<usize, Fail> {
    let Some(number) = word.strip_prefix(b"#") else { return offset(call, word) };
    let bits = i64::from(width.bits);
    let place = parse_integer(number).and_then(|number| number.checked_mul(bits)).unwrap_or(-1);
    offset(call, place.to_string().as_bytes())
}

pub(super) fn bitfield(call: &mut Call) -> Outcome {
    run(call, false)
}

pub(super) fn bitfield_ro(call: &mut Call) -> Outcome {
    run(call, true)
}

fn run(call: &mut Call, is_readonly: bool) -> Outcome {
    let key = call.word(1);
    let steps = steps(call, is_readonly)?;
    let old = read(call.hold, key)?.map(Text::bytes).unwrap_or_default();
    if steps.iter().all(|step| matches!(step.action, Action::Get)) {
        call.reply.array(steps.len());
        for step in &steps {
            call.reply.integer(step.width.read(old, step.offset) as i64);
        }
        return Ok(());
    }
    let last = steps.iter().map(|step| step.offset / 8).max().unwrap_or(0);
    check_memory(last + size_of::<u64>())?;
    // What was only refused leaves the string as long as a success would.
    let ends = steps.iter().filter(|step| !matches!(step.action, Action::Get));
    let end = ends.map(|step| (step.offset + step.width.bits as usize).div_ceil(8)).max();
    let length = old.len().max(end.unwrap_or(0));
    let (mut answers, mut has_changed, is_longer) = (Vec::new(), false, length > old.len());
    change(call, key, |bytes| {
        for step in &steps {
            let old = step.width.read(bytes, step.offset);
            let (new, answers_old) = match step.action {
                Action::Get => {
                    answers.push(Some(old));
                    continue;
                }
                Action::Set(number) => (i128::from(number), true),
                Action::Add(number) => (old + i128::from(number), false),
            };
            let new = match step.action {
                Action::Set(_) => step.width.fit_set(new, step.overflow),
                _ => step.width.fit(new, step.overflow),
            };
            if let Some(new) = new {
                step.width.write(bytes, step.offset, new);
                has_changed |= is_longer || new != old;
            }
            answers.push(new.map(|new| if answers_old { old } else { new }));
        }
        bytes.resize(length, 0);
    })?;
    if has_changed {
        call.changed(key, Class::String, "setbit");
    }
    call.reply.array(answers.len());
    for answer in answers {
        match answer {
            Some(number) => call.reply.integer(number as i64),
            None => call.reply.null(),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_written_at_any_place() {
        for (bits, is_signed) in [(1, false), (5, true), (8, false), (63, false), (64, true)] {
            let width = Width { bits, is_signed };
            for offset in [0, 3, 13] {
                for number in [width.least(), width.most(), 0] {
                    let mut bytes = vec![0xa5; 2];
                    width.write(&mut bytes, offset, number);
                    assert_eq!(width.read(&bytes, offset), number, "{width:?} at {offset}");
                }
            }
        }
    }

    #[test]
    fn numbers_wrap_around_or_stay_at_the_end() {
        let (byte, signed) = (Width::of(b"u8").unwrap(), Width::of(b"i8").unwrap());
        assert_eq!(byte.fit(257, Overflow::Wrap), Some(1));
        assert_eq!(byte.fit(-1, Overflow::Wrap), Some(255));
        assert_eq!(byte.fit(-1, Overflow::Saturate), Some(0));
        assert_eq!(byte.fit_set(-1, Overflow::Saturate), Some(255));
        assert_eq!(signed.fit_set(-129, Overflow::Saturate), Some(-128));
        assert_eq!(signed.fit(128, Overflow::Wrap), Some(-128));
        assert_eq!(signed.fit(128, Overflow::Saturate), Some(127));
        assert_eq!(signed.fit(128, Overflow::Fail), None);
        assert!(Width::of(b"u64").is_err() && Width::of(b"i64").is_ok());
    }
}
