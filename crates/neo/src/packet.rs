//! One message on the wire: `[id, code, [arguments...]]`.

use bytes::BytesMut;

use crate::error::{DecodeError, TooLong};
use crate::message::{Message, decode_arguments};
use crate::scanner::{Frame, MESSAGE_BYTES_MAX};
use crate::wire::{Reader, Writer};

/// A message with its id on a connection.
#[derive(Clone, Debug, PartialEq)]
pub struct Packet<'a> {
    /// The number of a request or notification among those that its sender has sent, from 0; of
    /// an answer, the id of its request.
    pub id: u32,
    /// The message.
    pub message: Message<'a>,
}

impl<'a> Packet<'a> {
    /// Decodes a whole message. Data and text are borrowed from the frame.
    pub fn decode(frame: Frame<'a>) -> Result<Packet<'a>, DecodeError> {
        let mut reader = Reader::new(frame.bytes());
        let part = |part| move |mismatch| DecodeError::not_a_message(part, mismatch);
        reader.fixed_array(3).map_err(part("it"))?;
        let id = reader.int("an id of 32 bits").map_err(part("the id"))?;
        let code = reader.int("a code of 16 bits").map_err(part("the code"))?;
        let message = decode_arguments(code, &mut reader)?;
        Ok(Packet { id, message })
    }
}

/// Appends a message. After an error `out` is as before.
pub fn encode<'a>(
    id: u32,
    message: impl Into<Message<'a>>,
    out: &mut BytesMut,
) -> Result<(), TooLong> {
    let message = message.into();
    let start = out.len();
    let mut writer = Writer::new(out);
    writer.array(3);
    writer.uint(id.into());
    writer.uint(message.code().into());
    message.encode_arguments(&mut writer);
    let length = out.len() - start;
    if length > MESSAGE_BYTES_MAX {
        out.truncate(start);
        return Err(TooLong { message: message.name(), length });
    }
    Ok(())
}
