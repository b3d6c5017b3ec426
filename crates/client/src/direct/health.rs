//! `ruok`: asks a server for the status of its storages.

use std::time::Duration;

use bytes::BytesMut;
use serde_json::{Map, Value};
use zodium_zeo::codec::Encoding;
use zodium_zeo::codec::frame::encode_frame;

use super::frames::Frames;
use super::{DirectError, Stream};

/// Asks for the status of each storage by name, as monitors do. Each of the two answers is awaited
/// for at most `limit`.
pub fn health(stream: Stream, limit: Duration) -> Result<Map<String, Value>, DirectError> {
    let mut frames = Frames::new(stream);
    Encoding::from_announcement(&frames.receive_announcement(limit)?)?;
    let mut question = BytesMut::new();
    encode_frame(&mut question, b"ruok")?;
    frames.send(&question, limit)?;
    match serde_json::from_slice(&frames.receive(limit)?) {
        Ok(Value::Object(storages)) => Ok(storages),
        Ok(_) => Err(DirectError::Status { what: "it is not a JSON object".to_owned() }),
        Err(error) => Err(DirectError::Status { what: error.to_string() }),
    }
}
