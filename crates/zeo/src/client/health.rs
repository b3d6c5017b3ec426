//! `ruok`: asks a server for the status of its storages.

use std::time::Duration;

use bytes::BytesMut;
use serde_json::{Map, Value};

use super::frames::Frames;
use super::{ClientError, Stream};
use crate::codec::Encoding;
use crate::codec::frame::encode_frame;

/// Asks for the status of each storage by name, as monitors do. Each of the two answers is awaited
/// for at most `limit`.
pub fn health<S: Stream>(stream: S, limit: Duration) -> Result<Map<String, Value>, ClientError> {
    let mut frames = Frames::new(stream);
    Encoding::from_announcement(&frames.receive_announcement(limit)?)?;
    let mut question = BytesMut::new();
    encode_frame(&mut question, b"ruok")?;
    frames.send(&question, limit)?;
    match serde_json::from_slice(&frames.receive(limit)?) {
        Ok(Value::Object(storages)) => Ok(storages),
        Ok(_) => Err(ClientError::Status { what: "it is not a JSON object".to_owned() }),
        Err(error) => Err(ClientError::Status { what: error.to_string() }),
    }
}
