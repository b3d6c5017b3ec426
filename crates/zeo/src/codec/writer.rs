//! Writes the parts of a message in either encoding.
//!
//! A message is a sequence of four: id, flag, name, arguments. The writer knows the format of each
//! part, but not which parts belong together.

use bytes::{BufMut, BytesMut};
use zodium_pickle::{Value, encode_body, encode_bytes_header, encode_str, opcode};
use zodium_types::{Oid, Tid};

use super::frame::write_frame;
use super::msgpack::{self, length_of};
use super::{CodecError, Encoding, MessageId};

/// The header of an oid or tid.
const EIGHT_BYTES_PICKLE: [u8; 2] = [opcode::SHORT_BINBYTES, 8];
const EIGHT_BYTES_MSGPACK: [u8; 2] = [0xc4, 8];

/// The second part of a message.
#[derive(Clone, Copy, Debug)]
pub(super) enum Flag {
    /// `False`: a call with a reply.
    Request,
    /// `True`: a call without one.
    Oneway,
    /// 0: the result of a request.
    Result,
    /// 2: the exception of a request.
    Error,
}

/// Appends parts of one message.
pub(super) struct Writer<'o> {
    encoding: Encoding,
    out: &'o mut BytesMut,
}

/// Appends a frame with a message whose last part `arguments` writes.
pub(super) fn write_message(
    encoding: Encoding,
    out: &mut BytesMut,
    id: &MessageId,
    flag: Flag,
    name: &str,
    arguments: impl FnOnce(&mut Writer<'_>) -> Result<(), CodecError>,
) -> Result<(), CodecError> {
    write_frame(out, |out| {
        let mut writer = Writer { encoding, out };
        writer.open();
        id.write(&mut writer)?;
        writer.flag(flag);
        writer.text(name)?;
        arguments(&mut writer)?;
        writer.close();
        Ok(())
    })
}

impl<'o> Writer<'o> {
    pub(super) fn new(encoding: Encoding, out: &'o mut BytesMut) -> Writer<'o> {
        Writer { encoding, out }
    }

    /// Begins a message.
    pub(super) fn open(&mut self) {
        match self.encoding {
            Encoding::Pickle => self.raw(&[opcode::PROTO, 3, opcode::MARK]),
            Encoding::Msgpack => self.raw(&[0x94]),
        }
    }

    /// Ends a message.
    pub(super) fn close(&mut self) {
        match self.encoding {
            Encoding::Pickle => self.raw(&[opcode::TUPLE, opcode::STOP]),
            Encoding::Msgpack => {}
        }
    }

    pub(super) fn flag(&mut self, flag: Flag) {
        let (pickle, msgpack): (&[u8], u8) = match flag {
            Flag::Request => (&[opcode::NEWFALSE], 0xc2),
            Flag::Oneway => (&[opcode::NEWTRUE], 0xc3),
            Flag::Result => (&[opcode::BININT1, 0], 0),
            Flag::Error => (&[opcode::BININT1, 2], 2),
        };
        match self.encoding {
            Encoding::Pickle => self.raw(pickle),
            Encoding::Msgpack => self.raw(&[msgpack]),
        }
    }

    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.out.put_slice(bytes);
    }

    pub(super) fn none(&mut self) {
        match self.encoding {
            Encoding::Pickle => self.raw(&[opcode::NONE]),
            Encoding::Msgpack => self.raw(&[0xc0]),
        }
    }

    pub(super) fn int(&mut self, number: i128) -> Result<(), CodecError> {
        match self.encoding {
            Encoding::Pickle => {
                zodium_pickle::encode_int(number, self.out);
                Ok(())
            }
            Encoding::Msgpack => msgpack::encode_int(number, self.out),
        }
    }

    pub(super) fn text(&mut self, text: &str) -> Result<(), CodecError> {
        match self.encoding {
            Encoding::Pickle => {
                encode_str(text, self.out);
                Ok(())
            }
            Encoding::Msgpack => msgpack::encode_str(text, self.out),
        }
    }

    pub(super) fn value(&mut self, value: &Value<'_>) -> Result<(), CodecError> {
        match self.encoding {
            Encoding::Pickle => {
                encode_body(value, self.out);
                Ok(())
            }
            Encoding::Msgpack => msgpack::encode(value, self.out),
        }
    }

    /// The header of a bytes value.
    pub(super) fn bytes_header(&mut self, length: usize) -> Result<(), CodecError> {
        match self.encoding {
            Encoding::Pickle => encode_bytes_header(length, self.out),
            Encoding::Msgpack => msgpack::encode_bytes_header(length_of(length)?, self.out),
        }
        Ok(())
    }

    pub(super) fn oid(&mut self, oid: Oid) {
        self.eight_bytes(oid.to_bytes());
    }

    pub(super) fn tid(&mut self, tid: Tid) {
        self.eight_bytes(tid.to_bytes());
    }

    /// The tuple of an oid and a tid.
    pub(super) fn ids(&mut self, oid: Oid, tid: Tid) {
        self.open_tuple(2);
        self.oid(oid);
        self.tid(tid);
        self.close_tuple(2);
    }

    /// Begins a tuple of 1 to 3 items.
    pub(super) fn open_tuple(&mut self, length: u8) {
        match self.encoding {
            Encoding::Pickle => {}
            Encoding::Msgpack => self.raw(&[0x90 | length]),
        }
    }

    /// Ends a tuple of 1 to 3 items.
    pub(super) fn close_tuple(&mut self, length: u8) {
        match self.encoding {
            Encoding::Pickle => self.raw(&[opcode::TUPLE1 + length - 1]),
            Encoding::Msgpack => {}
        }
    }

    /// A list of oids.
    pub(super) fn oids(&mut self, oids: &[Oid]) -> Result<(), CodecError> {
        match self.encoding {
            Encoding::Pickle => self.oids_pickle(oids),
            Encoding::Msgpack => {
                msgpack::encode_array_header(length_of(oids.len())?, self.out);
                oids.iter().for_each(|oid| self.oid(*oid));
            }
        }
        Ok(())
    }

    // As in CPython's pickler: one item by itself, more in batches.
    fn oids_pickle(&mut self, oids: &[Oid]) {
        self.raw(&[opcode::EMPTY_LIST]);
        if let [oid] = oids {
            self.oid(*oid);
            self.raw(&[opcode::APPEND]);
            return;
        }
        for batch in oids.chunks(zodium_pickle::BATCH_LENGTH) {
            self.raw(&[opcode::MARK]);
            batch.iter().for_each(|oid| self.oid(*oid));
            self.raw(&[opcode::APPENDS]);
        }
    }

    fn eight_bytes(&mut self, bytes: [u8; 8]) {
        self.raw(match self.encoding {
            Encoding::Pickle => &EIGHT_BYTES_PICKLE,
            Encoding::Msgpack => &EIGHT_BYTES_MSGPACK,
        });
        self.raw(&bytes);
    }
}
