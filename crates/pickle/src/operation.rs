//! Splits a pickle into operations: an opcode with its argument, borrowed from the input.
//!
//! Knows the byte layout of every opcode but not its effect, so that the decoder and the reference
//! scanner can share it.

use crate::{PickleError, opcode};

/// One step of the pickle machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Operation<'a> {
    Mark,
    Stop,
    Pop,
    PopMark,
    Duplicate,
    None,
    Bool(bool),
    Int(i64),
    /// Little-endian two's complement of any length.
    Long(&'a [u8]),
    Decimal(&'a [u8]),
    Float(f64),
    FloatLine(&'a [u8]),
    Bytes(&'a [u8]),
    /// A Python 2 `repr`, quotes included.
    QuotedBytes(&'a [u8]),
    /// UTF-8, not validated.
    Text(&'a [u8]),
    EscapedText(&'a [u8]),
    EmptyList,
    EmptyTuple,
    EmptyDict,
    EmptySet,
    ListFromMark,
    TupleFromMark,
    DictFromMark,
    FrozenSetFromMark,
    /// A tuple of the topmost 1, 2 or 3 items.
    Tuple(usize),
    Append,
    Appends,
    SetItem,
    SetItems,
    AddItems,
    Put(u32),
    Memoize,
    Fetch(u32),
    Global {
        module: &'a [u8],
        name: &'a [u8],
    },
    StackGlobal,
    Extension,
    /// An instance of a named class, with the arguments from the mark on.
    Instance {
        module: &'a [u8],
        name: &'a [u8],
    },
    /// An instance of the class above the mark, with the arguments after it.
    InstanceFromMark,
    Reduce,
    New,
    NewWithKeywords,
    Build,
    PersistentLine(&'a [u8]),
    Persistent,
    /// PROTO and FRAME have no effect.
    Nothing,
}

/// Reads operations one by one.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
    operation_start: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, position: 0, operation_start: 0 }
    }

    /// Goes to a position, where an operation begins.
    pub(crate) fn skip_to(&mut self, position: usize) {
        self.position = position;
    }

    /// Number of bytes consumed so far.
    pub(crate) fn position(&self) -> usize {
        self.position
    }

    /// Offset of the last operation.
    pub(crate) fn offset(&self) -> usize {
        self.operation_start
    }

    pub(crate) fn malformed(&self, what: &'static str) -> PickleError {
        PickleError::Malformed { what, offset: self.operation_start }
    }

    /// The error for the last operation, if the caller does not support it.
    pub(crate) fn unsupported(&self) -> PickleError {
        let opcode = self.bytes.get(self.operation_start).copied().unwrap_or_default();
        PickleError::UnsupportedOpcode { opcode, offset: self.operation_start }
    }

    /// Whether the last operation was a `str` of Python 2, which is bytes or text.
    pub(crate) fn read_python2_text(&self) -> bool {
        let code = self.bytes.get(self.operation_start);
        matches!(code, Some(&(opcode::SHORT_BINSTRING | opcode::BINSTRING | opcode::STRING)))
    }

    // Inlined, like its callers' steps, to keep operations in registers: moving one through memory
    // takes longer than executing it.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> Result<Operation<'a>, PickleError> {
        self.operation_start = self.position;
        let [code] = self.array()?;
        // Three functions instead of one, for readability; the first one has the frequent opcodes.
        Ok(match code {
            opcode::MARK => Operation::Mark,
            opcode::BINPUT => Operation::Put(self.u8()?.into()),
            opcode::LONG_BINPUT => Operation::Put(self.u32()?),
            opcode::BINGET => Operation::Fetch(self.u8()?.into()),
            opcode::LONG_BINGET => Operation::Fetch(self.u32()?),
            opcode::BINUNICODE => Operation::Text(self.counted_u32()?),
            opcode::SHORT_BINBYTES | opcode::SHORT_BINSTRING => {
                Operation::Bytes(self.counted_u8()?)
            }
            opcode::BINBYTES | opcode::BINSTRING => Operation::Bytes(self.counted_u32()?),
            opcode::BININT1 => Operation::Int(self.u8()?.into()),
            opcode::BININT2 => Operation::Int(u16::from_le_bytes(self.array()?).into()),
            opcode::BININT => Operation::Int(i32::from_le_bytes(self.array()?).into()),
            opcode::LONG1 => Operation::Long(self.counted_u8()?),
            opcode::LONG4 => Operation::Long(self.counted_u32()?),
            opcode::BINFLOAT => Operation::Float(f64::from_be_bytes(self.array()?)),
            opcode::GLOBAL => Operation::Global { module: self.line()?, name: self.line()? },
            opcode::PROTO => self.protocol()?,
            _ => match bare_operation(code) {
                Some(operation) => operation,
                None => self.rare_operation(code)?,
            },
        })
    }

    /// The text lines of protocol 0 and the long forms of protocol 4.
    fn rare_operation(&mut self, code: u8) -> Result<Operation<'a>, PickleError> {
        Ok(match code {
            opcode::INT => match self.line()? {
                b"00" => Operation::Bool(false),
                b"01" => Operation::Bool(true),
                digits => Operation::Decimal(digits),
            },
            opcode::LONG => {
                let line = self.line()?;
                Operation::Decimal(line.strip_suffix(b"L").unwrap_or(line))
            }
            opcode::FLOAT => Operation::FloatLine(self.line()?),
            opcode::STRING => Operation::QuotedBytes(self.line()?),
            opcode::UNICODE => Operation::EscapedText(self.line()?),
            opcode::PUT => Operation::Put(self.number_line()?),
            opcode::GET => Operation::Fetch(self.number_line()?),
            opcode::INST => Operation::Instance { module: self.line()?, name: self.line()? },
            opcode::PERSID => Operation::PersistentLine(self.line()?),
            opcode::SHORT_BINUNICODE => Operation::Text(self.counted_u8()?),
            opcode::BINUNICODE8 => Operation::Text(self.counted_u64()?),
            opcode::BINBYTES8 => Operation::Bytes(self.counted_u64()?),
            opcode::EXT1 => self.skip(1, Operation::Extension)?,
            opcode::EXT2 => self.skip(2, Operation::Extension)?,
            opcode::EXT4 => self.skip(4, Operation::Extension)?,
            opcode::FRAME => self.skip(8, Operation::Nothing)?,
            _ => return Err(self.unsupported()),
        })
    }

    fn protocol(&mut self) -> Result<Operation<'a>, PickleError> {
        match self.u8()? {
            0..=4 => Ok(Operation::Nothing),
            protocol => Err(PickleError::UnsupportedProtocol { protocol }),
        }
    }

    fn skip(&mut self, n: usize, operation: Operation<'a>) -> Result<Operation<'a>, PickleError> {
        self.take(n).map(|_| operation)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], PickleError> {
        let taken = self.position.checked_add(length).and_then(|end| {
            let taken = self.bytes.get(self.position..end)?;
            self.position = end;
            Some(taken)
        });
        taken.ok_or(PickleError::Truncated { offset: self.operation_start })
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], PickleError> {
        let rest = self.bytes.get(self.position..).unwrap_or_default();
        match rest.first_chunk::<N>() {
            Some(chunk) => {
                self.position += N;
                Ok(*chunk)
            }
            None => Err(PickleError::Truncated { offset: self.operation_start }),
        }
    }

    fn u8(&mut self) -> Result<u8, PickleError> {
        self.array().map(|[byte]| byte)
    }

    fn u32(&mut self) -> Result<u32, PickleError> {
        self.array().map(u32::from_le_bytes)
    }

    fn counted_u8(&mut self) -> Result<&'a [u8], PickleError> {
        let length = self.u8()?;
        self.take(length.into())
    }

    // BINSTRING and LONG4 have signed lengths; a negative one, read as unsigned, is too long as
    // well.
    fn counted_u32(&mut self) -> Result<&'a [u8], PickleError> {
        let length = self.u32()?;
        self.take(length as usize)
    }

    fn counted_u64(&mut self) -> Result<&'a [u8], PickleError> {
        let length = u64::from_le_bytes(self.array()?);
        self.take(usize::try_from(length).unwrap_or(usize::MAX))
    }

    /// Reads up to the next newline, which is consumed but not returned.
    fn line(&mut self) -> Result<&'a [u8], PickleError> {
        let rest = self.bytes.get(self.position..).unwrap_or_default();
        let length = rest.iter().position(|&byte| byte == b'\n');
        let length = length.ok_or(PickleError::Truncated { offset: self.operation_start })?;
        let line = self.take(length)?;
        self.position += 1;
        Ok(line)
    }

    fn number_line(&mut self) -> Result<u32, PickleError> {
        let line = self.line()?;
        let number = std::str::from_utf8(line).ok().and_then(|text| text.trim().parse().ok());
        number.ok_or_else(|| self.malformed("a memo number is not a decimal number"))
    }
}

/// Operations without an argument.
#[inline(always)]
fn bare_operation<'a>(code: u8) -> Option<Operation<'a>> {
    Some(match code {
        opcode::TUPLE => Operation::TupleFromMark,
        opcode::TUPLE1 => Operation::Tuple(1),
        opcode::TUPLE2 => Operation::Tuple(2),
        opcode::TUPLE3 => Operation::Tuple(3),
        opcode::NONE => Operation::None,
        opcode::NEWTRUE => Operation::Bool(true),
        opcode::NEWFALSE => Operation::Bool(false),
        opcode::STOP => Operation::Stop,
        opcode::EMPTY_TUPLE => Operation::EmptyTuple,
        opcode::EMPTY_LIST => Operation::EmptyList,
        opcode::EMPTY_DICT => Operation::EmptyDict,
        opcode::APPEND => Operation::Append,
        opcode::APPENDS => Operation::Appends,
        opcode::SETITEM => Operation::SetItem,
        opcode::SETITEMS => Operation::SetItems,
        opcode::REDUCE => Operation::Reduce,
        opcode::NEWOBJ => Operation::New,
        opcode::BUILD => Operation::Build,
        opcode::BINPERSID => Operation::Persistent,
        opcode::MEMOIZE => Operation::Memoize,
        opcode::STACK_GLOBAL => Operation::StackGlobal,
        opcode::POP => Operation::Pop,
        opcode::POP_MARK => Operation::PopMark,
        opcode::DUP => Operation::Duplicate,
        opcode::LIST => Operation::ListFromMark,
        opcode::DICT => Operation::DictFromMark,
        opcode::OBJ => Operation::InstanceFromMark,
        opcode::EMPTY_SET => Operation::EmptySet,
        opcode::ADDITEMS => Operation::AddItems,
        opcode::FROZENSET => Operation::FrozenSetFromMark,
        opcode::NEWOBJ_EX => Operation::NewWithKeywords,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_declared_lengths_are_truncation() {
        for head in [
            &b"B\xff\xff\xff\xff"[..],
            b"X\xff\xff\xff\xff",
            b"T\xff\xff\xff\xff",
            b"\x8b\xff\xff\xff\xff",
            b"\x8d\xff\xff\xff\xff\xff\xff\xff\xff",
            b"\x8e\xff\xff\xff\xff\xff\xff\xff\xff",
            b"C\xff",
        ] {
            let mut reader = Reader::new(head);
            assert_eq!(reader.next(), Err(PickleError::Truncated { offset: 0 }), "{head:?}");
        }
    }

    #[test]
    fn every_prefix_of_an_operation_is_truncation() {
        for whole in [&b"cmodule\nname\n"[..], b"imodule\nname\n", b"p12\n", b"J\0\0\0\0"] {
            assert!(Reader::new(whole).next().is_ok());
            for length in 0..whole.len() {
                let result = Reader::new(&whole[..length]).next();
                assert_eq!(result, Err(PickleError::Truncated { offset: 0 }), "{length}");
            }
        }
    }
}
