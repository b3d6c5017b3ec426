//! Lists the operations of a pickle, without a limit on what they make, and without executing them.
//!
//! Format: that of Python's `pickletools`, whose table of opcodes says how many items each one
//! takes from the stack, and how many it leaves. Items are not kept: of each the stack knows only
//! whether it is a mark, and the memo knows which numbers it has.

use std::borrow::Cow;
use std::collections::HashSet;

use crate::operation::{Operation, Reader};
use crate::text::{parse_decimal, parse_float, unescape_unicode, unquote};
use crate::{PickleError, Value, opcode};

/// An operation of a pickle.
#[derive(Clone, Debug, PartialEq)]
pub struct Instruction<'a> {
    /// Where it begins, from the start of the bytes.
    pub position: usize,
    /// Its opcode.
    pub code: u8,
    /// The opcode's name.
    pub name: &'static str,
    /// The protocol that introduced the opcode.
    pub protocol: u8,
    /// Its argument.
    pub argument: Argument<'a>,
    /// Marks that are open before it.
    pub depth: usize,
    /// Where the mark is that it closes.
    pub mark: Option<usize>,
    /// The memo's number that MEMOIZE takes.
    pub memoized: Option<usize>,
}

/// The argument of an operation.
#[derive(Clone, Debug, PartialEq)]
pub enum Argument<'a> {
    /// It has none.
    None,
    /// Numbers, booleans, bytes, and text that is valid.
    Value(Value<'a>),
    /// UTF-8 that may hold surrogates.
    Utf8(&'a [u8]),
    /// A `str` of Python 2.
    Latin1(Cow<'a, [u8]>),
    /// A line as it stands.
    Line(&'a [u8]),
    /// The names of a module, and of something in it.
    Names(&'a [u8], &'a [u8]),
}

/// How an opcode changes the stack.
struct Effect {
    name: &'static str,
    protocol: u8,
    /// Whether it takes everything down to the last mark.
    to_mark: bool,
    /// Items that it takes; below the mark, if it takes one.
    pops: usize,
    /// Items that it leaves.
    pushes: usize,
}

/// Reads the operations of pickles that follow each other and share a memo, as those of a record.
#[derive(Debug)]
pub struct Disassembler<'a> {
    bytes: &'a [u8],
    position: usize,
    memo: HashSet<usize>,
}

/// The stack of one pickle: which items are marks.
#[derive(Default)]
struct Stack {
    items: Vec<bool>,
    /// The positions of the marks.
    marks: Vec<usize>,
}

impl<'a> Disassembler<'a> {
    /// Begins at the first byte, with an empty memo.
    pub fn new(bytes: &'a [u8]) -> Disassembler<'a> {
        Disassembler { bytes, position: 0, memo: HashSet::new() }
    }

    /// The bytes that were not read.
    pub fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.position..).unwrap_or_default()
    }

    /// Shows `visit` each operation of the next pickle, up to its STOP. After an error the position
    /// is that of the operation that does not fit; `visit` has seen it if it could be read.
    ///
    /// # Errors
    /// Bytes that are no operation, and operations that do not fit together.
    pub fn pickle(&mut self, visit: &mut dyn FnMut(&Instruction<'a>)) -> Result<(), PickleError> {
        let mut reader = Reader::new(self.bytes);
        reader.skip_to(self.position);
        let mut stack = Stack::default();
        loop {
            self.position = reader.position();
            let operation = reader.next()?;
            let code = self.bytes[reader.offset()];
            let Some(effect) = effect(code) else { return Err(reader.unsupported()) };
            let Some(argument) = self.argument(code, operation) else {
                return Err(reader.malformed("its argument is not what the opcode demands"));
            };
            let mut instruction = Instruction {
                position: reader.offset(),
                code,
                name: effect.name,
                protocol: effect.protocol,
                argument,
                depth: stack.marks.len(),
                mark: None,
                memoized: (code == opcode::MEMOIZE).then_some(self.memo.len()),
            };
            let fits = stack.close_mark(code, &effect, &mut instruction);
            let fits = fits.and_then(|pops| self.remember(operation, &stack).map(|()| pops));
            visit(&instruction);
            let fits = fits.and_then(|pops| stack.apply(&effect, pops, code, reader.offset()));
            fits.map_err(|what| reader.malformed(what))?;
            if code == opcode::STOP {
                self.position = reader.position();
                let is_empty = stack.items.is_empty();
                let left = || reader.malformed("items are left on the stack");
                return if is_empty { Ok(()) } else { Err(left()) };
            }
        }
    }

    /// Notes a number of the memo, or finds it there.
    fn remember(&mut self, operation: Operation<'_>, stack: &Stack) -> Result<(), &'static str> {
        let number = match operation {
            Operation::Put(number) => number as usize,
            Operation::Memoize => self.memo.len(),
            Operation::Fetch(number) if self.memo.contains(&(number as usize)) => return Ok(()),
            Operation::Fetch(_) => return Err("nothing was stored under this number of the memo"),
            _ => return Ok(()),
        };
        match stack.items.last() {
            _ if self.memo.contains(&number) => Err("this number of the memo is taken"),
            None => Err("there is nothing to store in the memo"),
            Some(true) => Err("a mark cannot be stored in the memo"),
            Some(false) => {
                self.memo.insert(number);
                Ok(())
            }
        }
    }

    fn argument(&self, code: u8, operation: Operation<'a>) -> Option<Argument<'a>> {
        let integer = |number: i64| Some(Argument::Value(Value::Int(number.into())));
        match operation {
            Operation::Int(number) => integer(number),
            Operation::Put(number) | Operation::Fetch(number) => integer(number.into()),
            Operation::Bool(value) if code == opcode::INT => {
                Some(Argument::Value(Value::Bool(value)))
            }
            Operation::Long(bytes) => Some(Argument::Value(Value::from_twos_complement(bytes))),
            Operation::Decimal(digits) => parse_decimal(digits).map(Argument::Value),
            Operation::Float(number) => Some(Argument::Value(Value::Float(number))),
            Operation::FloatLine(line) => {
                parse_float(line).map(|number| Argument::Value(Value::Float(number)))
            }
            Operation::Bytes(bytes) => Some(match code {
                opcode::BINSTRING | opcode::SHORT_BINSTRING => Argument::Latin1(bytes.into()),
                _ => Argument::Value(Value::Bytes(bytes.into())),
            }),
            Operation::QuotedBytes(literal) => unquote(literal).map(Argument::Latin1),
            Operation::Text(bytes) => Some(Argument::Utf8(bytes)),
            Operation::EscapedText(line) => {
                unescape_unicode(line).map(|text| Argument::Value(Value::Str(text)))
            }
            Operation::Global { module, name } | Operation::Instance { module, name } => {
                Some(Argument::Names(module, name))
            }
            Operation::PersistentLine(line) => Some(Argument::Line(line)),
            _ => self.number_of(code),
        }
    }

    /// The argument of an operation that the machine passes over.
    fn number_of(&self, code: u8) -> Option<Argument<'a>> {
        let bytes = match code {
            opcode::PROTO | opcode::EXT1 => 1,
            opcode::EXT2 => 2,
            opcode::EXT4 => 4,
            opcode::FRAME => 8,
            _ => return Some(Argument::None),
        };
        let bytes = self.bytes.get(self.position + 1..)?.get(..bytes)?;
        let number = bytes.iter().rev().fold(0, |number, byte| number << 8 | i128::from(*byte));
        let is_signed = code == opcode::EXT4;
        let number = if is_signed { i128::from(number as u32 as i32) } else { number };
        Some(Argument::Value(Value::Int(number)))
    }
}

impl Stack {
    /// Takes what an operation closes, down to its mark; the number of items that it takes below.
    fn close_mark(
        &mut self,
        code: u8,
        effect: &Effect,
        instruction: &mut Instruction<'_>,
    ) -> Result<usize, &'static str> {
        let pops_mark = code == opcode::POP && self.items.last() == Some(&true);
        if !effect.to_mark && !pops_mark {
            return Ok(effect.pops);
        }
        instruction.mark = Some(self.marks.pop().ok_or("there is no mark on the stack")?);
        while self.items.pop() == Some(false) {}
        Ok(if pops_mark { 0 } else { effect.pops })
    }

    fn apply(
        &mut self,
        effect: &Effect,
        pops: usize,
        code: u8,
        position: usize,
    ) -> Result<(), &'static str> {
        let kept = self.items.len().checked_sub(pops);
        self.items.truncate(kept.ok_or("it takes more items than the stack has")?);
        if code == opcode::MARK {
            self.marks.push(position);
        }
        self.items.extend(std::iter::repeat_n(code == opcode::MARK, effect.pushes));
        Ok(())
    }
}

fn effect(code: u8) -> Option<Effect> {
    let plain = |name, protocol, pops, pushes| {
        Some(Effect { name, protocol, to_mark: false, pops, pushes })
    };
    let marked =
        |name, protocol, pops, pushes| Some(Effect { name, protocol, to_mark: true, pops, pushes });
    match code {
        opcode::MARK => plain("MARK", 0, 0, 1),
        opcode::STOP => plain("STOP", 0, 1, 0),
        opcode::POP => plain("POP", 0, 1, 0),
        opcode::POP_MARK => marked("POP_MARK", 1, 0, 0),
        opcode::DUP => plain("DUP", 0, 1, 2),
        opcode::APPEND => plain("APPEND", 0, 2, 1),
        opcode::APPENDS => marked("APPENDS", 1, 1, 1),
        opcode::LIST => marked("LIST", 0, 0, 1),
        opcode::TUPLE => marked("TUPLE", 0, 0, 1),
        opcode::TUPLE1 => plain("TUPLE1", 2, 1, 1),
        opcode::TUPLE2 => plain("TUPLE2", 2, 2, 1),
        opcode::TUPLE3 => plain("TUPLE3", 2, 3, 1),
        opcode::DICT => marked("DICT", 0, 0, 1),
        opcode::SETITEM => plain("SETITEM", 0, 3, 1),
        opcode::SETITEMS => marked("SETITEMS", 1, 1, 1),
        opcode::ADDITEMS => marked("ADDITEMS", 4, 1, 1),
        opcode::FROZENSET => marked("FROZENSET", 4, 0, 1),
        opcode::PUT => plain("PUT", 0, 0, 0),
        opcode::BINPUT => plain("BINPUT", 1, 0, 0),
        opcode::LONG_BINPUT => plain("LONG_BINPUT", 1, 0, 0),
        opcode::MEMOIZE => plain("MEMOIZE", 4, 1, 1),
        opcode::STACK_GLOBAL => plain("STACK_GLOBAL", 4, 2, 1),
        opcode::REDUCE => plain("REDUCE", 0, 2, 1),
        opcode::BUILD => plain("BUILD", 0, 2, 1),
        opcode::INST => marked("INST", 0, 0, 1),
        opcode::OBJ => marked("OBJ", 1, 0, 1),
        opcode::NEWOBJ => plain("NEWOBJ", 2, 2, 1),
        opcode::NEWOBJ_EX => plain("NEWOBJ_EX", 4, 3, 1),
        opcode::PROTO => plain("PROTO", 2, 0, 0),
        opcode::FRAME => plain("FRAME", 4, 0, 0),
        opcode::BINPERSID => plain("BINPERSID", 1, 1, 1),
        _ => pushed(code).and_then(|(name, protocol)| plain(name, protocol, 0, 1)),
    }
}

/// Opcodes that push one item and take none.
fn pushed(code: u8) -> Option<(&'static str, u8)> {
    Some(match code {
        opcode::INT => ("INT", 0),
        opcode::BININT => ("BININT", 1),
        opcode::BININT1 => ("BININT1", 1),
        opcode::BININT2 => ("BININT2", 1),
        opcode::LONG => ("LONG", 0),
        opcode::LONG1 => ("LONG1", 2),
        opcode::LONG4 => ("LONG4", 2),
        opcode::STRING => ("STRING", 0),
        opcode::BINSTRING => ("BINSTRING", 1),
        opcode::SHORT_BINSTRING => ("SHORT_BINSTRING", 1),
        opcode::BINBYTES => ("BINBYTES", 3),
        opcode::SHORT_BINBYTES => ("SHORT_BINBYTES", 3),
        opcode::BINBYTES8 => ("BINBYTES8", 4),
        opcode::NONE => ("NONE", 0),
        opcode::NEWTRUE => ("NEWTRUE", 2),
        opcode::NEWFALSE => ("NEWFALSE", 2),
        opcode::UNICODE => ("UNICODE", 0),
        opcode::SHORT_BINUNICODE => ("SHORT_BINUNICODE", 4),
        opcode::BINUNICODE => ("BINUNICODE", 1),
        opcode::BINUNICODE8 => ("BINUNICODE8", 4),
        opcode::FLOAT => ("FLOAT", 0),
        opcode::BINFLOAT => ("BINFLOAT", 1),
        opcode::EMPTY_LIST => ("EMPTY_LIST", 1),
        opcode::EMPTY_TUPLE => ("EMPTY_TUPLE", 1),
        opcode::EMPTY_DICT => ("EMPTY_DICT", 1),
        opcode::EMPTY_SET => ("EMPTY_SET", 4),
        opcode::GET => ("GET", 0),
        opcode::BINGET => ("BINGET", 1),
        opcode::LONG_BINGET => ("LONG_BINGET", 1),
        opcode::EXT1 => ("EXT1", 2),
        opcode::EXT2 => ("EXT2", 2),
        opcode::EXT4 => ("EXT4", 2),
        opcode::GLOBAL => ("GLOBAL", 0),
        opcode::PERSID => ("PERSID", 0),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The operations of the first pickle as words, and what is wrong with it.
    fn listed(bytes: &[u8]) -> (Vec<String>, Result<(), PickleError>) {
        let mut lines = Vec::new();
        let mut disassembler = Disassembler::new(bytes);
        let outcome = disassembler.pickle(&mut |one| {
            let mark = one.mark.map_or(String::new(), |mark| format!(" <{mark}"));
            lines.push(format!("{}{}{mark}", " ".repeat(one.depth), one.name));
        });
        (lines, outcome)
    }

    #[test]
    fn marks_nest() {
        let (lines, outcome) = listed(b"((K\x01tl.");
        let expected = ["MARK", " MARK", "  BININT1", "  TUPLE <1", " LIST <0", "STOP"];
        assert_eq!((lines, outcome), (expected.map(str::to_owned).to_vec(), Ok(())));
    }

    #[test]
    fn what_does_not_fit_is_named_after_its_operation() {
        for (bytes, seen, what) in [
            (&b"K\x01h\x00."[..], 2, "nothing was stored"),
            (b"K\x01q\x00q\x00.", 3, "taken"),
            (b"q\x00.", 1, "nothing to store"),
            (b"(q\x00.", 2, "a mark cannot"),
            (b"t.", 1, "no mark"),
            (b"K\x01R.", 2, "more items"),
            (b"K\x01K\x02.", 3, "left on the stack"),
        ] {
            let (lines, outcome) = listed(bytes);
            let said = outcome.map_err(|error| error.to_string());
            assert!(said.as_ref().is_err_and(|said| said.contains(what)), "{bytes:?}: {said:?}");
            assert_eq!(lines.len(), seen, "{bytes:?}");
        }
        assert!(listed(b"").1.is_err() && listed(b"\x97.").1.is_err());
    }

    #[test]
    fn two_pickles_share_the_memo_and_the_positions() {
        let mut disassembler = Disassembler::new(b"K\x01q\x05.h\x05.rest");
        let mut positions = Vec::new();
        for _ in 0..2 {
            disassembler.pickle(&mut |one| positions.push(one.position)).unwrap();
        }
        assert_eq!((positions, disassembler.rest()), (vec![0, 2, 4, 5, 7], &b"rest"[..]));
    }
}
