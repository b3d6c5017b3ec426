//! The wire format of ZEO 5: pure functions from bytes to values and back.
//!
//! Nothing here reads a socket or knows what a method does. [`frame`] splits the byte stream into
//! messages. [`decode_message`] and the `encode_` functions translate them in either
//! [`Encoding`]. [`load`] does the same for the call that matters most for speed, without building
//! values.
//!
//! Every `encode_` function appends one whole frame, with its length, to the caller's buffer. After
//! an error the buffer is unchanged.

mod blob;
mod encoding;
mod error;
pub mod frame;
mod invalidation;
pub mod load;
mod load_reply;
mod log_chunk;
mod message;
mod message_id;
pub mod msgpack;
#[cfg(test)]
mod properties;
mod template;
mod writer;

pub use blob::{BlobNotice, blob_chunk_head, blob_chunk_tail, encode_blob_notice};
pub use encoding::{Encoding, Greeting};
pub use error::CodecError;
pub use frame::FrameError;
pub use invalidation::encode_invalidation;
pub use load::{
    LoadBefore, decode_load_before, encode_load_before_request, encode_load_reply, load_reply_head,
    load_reply_tail,
};
pub use load_reply::{LoadReply, decode_load_reply};
pub use log_chunk::{ChunkItem, next_chunk_item, put_chunk_item};
pub use message::{
    Message, REPLY_LIMITS, REQUEST_LIMITS, RemoteError, Reply, ServerMessage, begun_transaction,
    decode_message, decode_server_message, encode_error, encode_heartbeat, encode_oneway,
    encode_reply, encode_request,
};
pub use message_id::MessageId;

/// A frame with this payload, given in hexadecimal digits.
#[cfg(test)]
fn test_frame(digits: &str) -> bytes::BytesMut {
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    let payload: Vec<u8> = digits.as_bytes().chunks(2).map(byte).collect();
    let mut out = bytes::BytesMut::new();
    frame::encode_frame(&mut out, &payload).unwrap();
    out
}
