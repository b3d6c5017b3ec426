//! Zodium's own methods, which answer with many records at once.

use bytes::{Buf, Bytes};
use zodium_pickle::Value;
use zodium_zeo::codec::{ChunkItem, next_chunk_item};

use crate::ClientError;

pub(crate) const READ_LOG: &str = "zodium_iterator_read";
pub(crate) const READ_OBJECTS: &str = "zodium_objects_read";

/// Whether the server with this info has these methods. A stock server must not be asked: it closes
/// the connection at an unknown method.
pub(crate) fn are_offered(info: &Value<'_>) -> bool {
    let entries = info.as_dict().unwrap_or_default();
    let methods = entries.iter().find(|(key, _)| key.as_str() == Some("zodium_methods"));
    let methods = methods.and_then(|(_, methods)| methods.as_sequence()).unwrap_or_default();
    [READ_LOG, READ_OBJECTS]
        .iter()
        .all(|name| methods.iter().any(|offered| offered.as_str() == Some(name)))
}

/// The bytes that such a method returned.
pub(crate) fn bytes_of(answer: Value<'static>, method: &'static str) -> Result<Bytes, ClientError> {
    match answer {
        // An empty answer would be requested again and again.
        Value::Bytes(bytes) if !bytes.is_empty() => Ok(Bytes::from(bytes.into_owned())),
        _ => Err(ClientError::Unexpected { method, expected: "a chunk of records" }),
    }
}

/// Takes the first item off a chunk and converts it; data are slices of the whole chunk.
pub(crate) fn take_item<T>(
    chunk: &mut Bytes,
    make: impl FnOnce(ChunkItem<'_>, &dyn Fn(&[u8]) -> Bytes) -> T,
) -> Result<Option<T>, ClientError> {
    let mut rest = &chunk[..];
    let Some(item) = next_chunk_item(&mut rest)? else { return Ok(None) };
    let made = make(item, &|part| chunk.slice_ref(part));
    let used = chunk.len() - rest.len();
    chunk.advance(used);
    Ok(Some(made))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_offers_chunks_only_if_it_names_both_methods() {
        let offered = |methods: &[&str]| {
            let methods = Value::list(methods.iter().map(|name| Value::from(*name)));
            are_offered(&Value::dict([("zodium_methods", methods)]))
        };
        assert!(offered(&["another", READ_OBJECTS, READ_LOG]));
        assert!(!offered(&[READ_LOG, "another"]));
        assert!(!offered(&["another", "one more"]));
        assert!(!are_offered(&Value::dict::<&str>([])));
    }

    #[test]
    fn an_empty_chunk_is_refused_instead_of_asked_for_again() {
        assert_eq!(bytes_of(b"chunk".into(), READ_LOG).unwrap(), &b"chunk"[..]);
        for wrong in [b"".into(), Value::None] {
            let refused = bytes_of(wrong, READ_LOG).unwrap_err();
            assert!(matches!(refused, ClientError::Unexpected { method: READ_LOG, .. }));
        }
    }
}
