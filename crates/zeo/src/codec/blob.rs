//! The messages that carry a blob to a client, whose chunks are sent without a copy.
//!
//! Start and stop only name the blob; a chunk has its bytes between a head and a tail.

use bytes::BytesMut;
use zodium_types::{Oid, Tid};

use super::frame::write_frame_start;
use super::writer::{Flag, Writer, write_message};
use super::{CodecError, Encoding, MessageId};

/// The messages before and after the chunks of a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlobNotice {
    /// The chunks of this blob follow.
    Start,
    /// All chunks have been sent.
    Stop,
}

/// Appends the frame before or after the chunks of a blob, which transaction `serial` wrote.
pub fn encode_blob_notice(
    encoding: Encoding,
    out: &mut BytesMut,
    notice: BlobNotice,
    oid: Oid,
    serial: Tid,
) -> Result<(), CodecError> {
    let name = match notice {
        BlobNotice::Start => "receiveBlobStart",
        BlobNotice::Stop => "receiveBlobStop",
    };
    write_message(encoding, out, &MessageId::Number(0), Flag::Oneway, name, |out| {
        out.ids(oid, serial);
        Ok(())
    })
}

/// Appends the part of a chunk's frame before its bytes. Exactly `length` bytes must follow, and
/// then the tail.
pub fn blob_chunk_head(
    encoding: Encoding,
    out: &mut BytesMut,
    oid: Oid,
    serial: Tid,
    length: usize,
) -> Result<(), CodecError> {
    let tail = match encoding {
        Encoding::Pickle => 3,
        Encoding::Msgpack => 0,
    };
    write_frame_start(out, length + tail, |out| {
        let mut writer = Writer::new(encoding, out);
        writer.open();
        MessageId::Number(0).write(&mut writer)?;
        writer.flag(Flag::Oneway);
        writer.text("receiveBlobChunk")?;
        writer.open_tuple(3);
        writer.oid(oid);
        writer.tid(serial);
        writer.bytes_header(length)
    })
}

/// Appends the part of a chunk's frame after its bytes.
pub fn blob_chunk_tail(encoding: Encoding, out: &mut BytesMut) {
    let mut writer = Writer::new(encoding, out);
    writer.close_tuple(3);
    writer.close();
}

#[cfg(test)]
mod tests {
    use zodium_pickle::Value;

    use super::super::encode_oneway;
    use super::*;

    const OID: Oid = Oid(0x0102_0304_0506_0708);
    const SERIAL: Tid = Tid(0x040d_2966_6566_0688);

    #[test]
    fn notices_are_the_messages_that_values_would_make() {
        for encoding in [Encoding::Pickle, Encoding::Msgpack] {
            for (notice, name) in
                [(BlobNotice::Start, "receiveBlobStart"), (BlobNotice::Stop, "receiveBlobStop")]
            {
                let arguments = Value::tuple([OID.into(), SERIAL.into()]);
                let mut expected = BytesMut::new();
                encode_oneway(encoding, &mut expected, name, &arguments).unwrap();
                let mut out = BytesMut::new();
                encode_blob_notice(encoding, &mut out, notice, OID, SERIAL).unwrap();
                assert_eq!(out, expected);
            }
        }
    }

    #[test]
    fn a_chunk_around_its_bytes_is_the_message_that_values_would_make() {
        for encoding in [Encoding::Pickle, Encoding::Msgpack] {
            for length in [0, 1, 255, 256, 59_000, 65_536, 300_000] {
                let chunk = vec![7; length];
                let arguments = Value::tuple([OID.into(), SERIAL.into(), chunk.clone().into()]);
                let mut expected = BytesMut::new();
                encode_oneway(encoding, &mut expected, "receiveBlobChunk", &arguments).unwrap();
                let mut out = BytesMut::new();
                blob_chunk_head(encoding, &mut out, OID, SERIAL, length).unwrap();
                out.extend_from_slice(&chunk);
                blob_chunk_tail(encoding, &mut out);
                assert_eq!(out, expected, "{encoding:?} {length}");
            }
        }
    }
}
