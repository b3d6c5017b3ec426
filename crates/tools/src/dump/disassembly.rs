//! The view `zpickledis` of a dump: pickles as their operations, in the layout of Python's
//! `pickletools`.
//!
//! Pickles that do not hold together are listed as far as they can be read; a line then says why,
//! and the rest is quoted.

use num_bigint::BigInt;
use zodium_pickle::{Argument, Disassembler, Instruction, Value};

use crate::text::{bytes_repr, float_repr, quote, str_repr, utf8_repr};

/// Pickles in a record: its class, and its state.
const OF_RECORD: usize = 2;
/// Columns of an opcode's name, if something follows it.
const NAME_COLUMNS: usize = 10;
/// Bytes of the longest integer in decimal digits: 4,300 of them, as in Python. The conversion is
/// quadratic.
const INTEGER_BYTES_MAX: usize = 1_785;

/// Appends the operations of a transaction's extension, which is not empty.
pub(super) fn push_extension(text: &mut Vec<u8>, extension: &[u8]) {
    push_pickles(text, extension, 1);
}

/// Appends the operations of a record.
pub(super) fn push_record(text: &mut Vec<u8>, data: &[u8]) {
    push_pickles(text, data, OF_RECORD);
}

fn push_pickles(text: &mut Vec<u8>, bytes: &[u8], count: usize) {
    let mut disassembler = Disassembler::new(bytes);
    for _ in 0..count {
        let mut protocol = None;
        let listed = disassembler.pickle(&mut |one| {
            protocol = protocol.max(Some(one.protocol));
            push_instruction(text, one);
        });
        match (listed, protocol) {
            (Ok(()), Some(protocol)) => {
                let line = format!("  highest protocol among opcodes = {protocol}\n");
                text.extend(line.bytes());
            }
            (Ok(()), None) => {}
            (Err(error), _) => {
                text.extend(format!("  + not disassembled: {error}\n").bytes());
                break;
            }
        }
    }
    let rest = disassembler.rest();
    if !rest.is_empty() {
        text.extend(b"  + extra data ");
        quote(text, rest);
        text.push(b'\n');
    }
}

fn push_instruction(text: &mut Vec<u8>, one: &Instruction<'_>) {
    let code = match one.code {
        code @ 0x21..=0x7e => char::from(code).to_string(),
        code => format!("\\x{code:02x}"),
    };
    let indent = "    ".repeat(one.depth);
    let mut line = format!("  {:5}: {code:4} {indent}{}", one.position, one.name);
    let argument = argument(&one.argument);
    let mark = one.mark.map(|position| format!("(MARK at {position})"));
    let memoized = one.memoized.map(|number| format!("(as {number})"));
    let more: Vec<_> = [argument, mark, memoized].into_iter().flatten().collect();
    if !more.is_empty() {
        let blanks = " ".repeat(NAME_COLUMNS.saturating_sub(one.name.len()));
        line += &format!("{blanks} {}", more.join(" "));
    }
    line.push('\n');
    text.extend(line.bytes());
}

/// An argument as Python's `repr` prints it.
fn argument(argument: &Argument<'_>) -> Option<String> {
    Some(match argument {
        Argument::None => return None,
        Argument::Value(value) => plain(value)?,
        Argument::Utf8(bytes) => utf8_repr(bytes),
        Argument::Latin1(bytes) => latin1(bytes),
        Argument::Line(bytes) => latin1(bytes),
        Argument::Names(module, name) => latin1(&[*module, *name].join(&b' ')),
    })
}

fn latin1(bytes: &[u8]) -> String {
    str_repr(&bytes.iter().map(|byte| char::from(*byte)).collect::<String>())
}

fn plain(value: &Value<'_>) -> Option<String> {
    Some(match value {
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Int(number) => number.to_string(),
        Value::BigInt(bytes) if bytes.len() <= INTEGER_BYTES_MAX => {
            BigInt::from_signed_bytes_le(bytes).to_string()
        }
        Value::BigInt(bytes) => format!("<an integer of {} bytes>", bytes.len()),
        Value::Float(number) => float_repr(*number),
        Value::Bytes(bytes) => bytes_repr(bytes),
        Value::Str(text) => str_repr(text),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(data: &[u8]) -> String {
        let mut text = Vec::new();
        push_record(&mut text, data);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn operations_are_laid_out_as_by_pickletools() {
        let data = b"\x80\x03cmodule\nClass\nq\x00.}q\x01(X\x01\x00\x00\x00kJ\xff\xff\xff\xffu.";
        let expected = "      0: \\x80 PROTO      3
      2: c    GLOBAL     'module Class'
     16: q    BINPUT     0
     18: .    STOP
  highest protocol among opcodes = 2
     19: }    EMPTY_DICT
     20: q    BINPUT     1
     22: (    MARK
     23: X        BINUNICODE 'k'
     29: J        BININT     -1
     34: u        SETITEMS   (MARK at 22)
     35: .    STOP
  highest protocol among opcodes = 1
";
        assert_eq!(listed(data), expected);
    }

    #[test]
    fn what_is_no_pickle_is_quoted_behind_the_reason() {
        let said = listed(b"K\x01.(K\x02");
        assert!(said.contains("  + not disassembled: the pickle is cut short"), "{said}");
        assert!(listed(b"").starts_with("  + not disassembled: "));
        assert!(listed(b"N.N.\x00x").ends_with("  + extra data \"\\x00x\"\n"));
        let long = [&b"\x8b\x00\x10\x00\x00"[..], &[0x7f; 4096], b".N."].concat();
        assert!(listed(&long).contains("LONG4      <an integer of 4096 bytes>"));
    }
}
