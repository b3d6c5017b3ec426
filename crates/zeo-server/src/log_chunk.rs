//! Chunks of the log: Zodium's own methods, for clients that read ahead.

use std::ops::ControlFlow;
use std::rc::Rc;

use zodium_pickle::Value;
use zodium_storage::{LogItem, TransactionCursor};
use zodium_types::Oid;
use zodium_zeo::codec::{ChunkItem, CodecError, put_chunk_item};

use crate::call::Arguments;
use crate::exception::Exception;
use crate::peer::Peer;
use crate::replies::{Reply, ReplyTo};

/// Most bytes that a client can request for an answer; its last item may go beyond.
const CHUNK_BYTES_MAX: i64 = 1 << 20;

/// The number of bytes that a client requests, within the limit.
pub(super) fn chunk_bytes(arguments: &mut Arguments<'_>) -> Result<usize, Exception> {
    let bytes = arguments.integer()?.clamp(1, CHUNK_BYTES_MAX);
    Ok(usize::try_from(bytes).unwrap_or(1))
}

/// Reads the next chunk of the log. It ends before a record that cannot be read; the next request
/// gets the error.
pub(super) fn read_log_chunk(
    place: &mut dyn TransactionCursor,
    bytes_max: usize,
    with_records: bool,
) -> Result<Value<'static>, Exception> {
    let mut out = Vec::with_capacity(bytes_max);
    let mut refused = None;
    let read = place.read(with_records, &mut |item| {
        if let Err(error) = put_chunk_item(&mut out, &item_of(item)) {
            refused = Some(error);
            return ControlFlow::Break(());
        }
        if out.len() < bytes_max { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    if let Some(error) = refused {
        return Err(Exception::value_error(error.to_string()));
    }
    match read {
        Ok(false) => {}
        Ok(true) => put(&mut out, &ChunkItem::End)?,
        Err(error) if out.is_empty() => return Err(error.into()),
        Err(_) => {}
    }
    Ok(Value::Bytes(out.into()))
}

fn item_of(item: LogItem<'_>) -> ChunkItem<'_> {
    match item {
        LogItem::Transaction { tid, status, user, description, extension } => {
            let status = status.to_byte();
            ChunkItem::Transaction { tid, status, user, description, extension }
        }
        LogItem::Record { oid, data, data_tid } => ChunkItem::Record { oid, data, data_tid },
        LogItem::Skipped => ChunkItem::Skipped,
    }
}

fn put(out: &mut Vec<u8>, item: &ChunkItem<'_>) -> Result<(), Exception> {
    let refused = |error: CodecError| Exception::value_error(error.to_string());
    put_chunk_item(out, item).map_err(refused)
}

/// Answers with current revisions in the order of oids, which `record_iternext` gives one by
/// one.
pub(crate) fn read_objects(
    peer: &Rc<Peer>,
    to: &ReplyTo,
    arguments: &mut Arguments<'_>,
) -> Result<Reply, Exception> {
    let value = arguments.value();
    let from = match &value {
        Value::None => Oid(0),
        value => value.as_oid().ok_or_else(|| {
            Exception::value_error("zodium_objects_read(): expected an oid of 8 bytes or None")
        })?,
    };
    let bytes_max = chunk_bytes(arguments)?;
    Ok(peer.ask(to, move |storage| {
        let mut out = Vec::new();
        let mut from = from;
        while out.len() < bytes_max {
            let step = match storage.reader().next_object(from) {
                Ok(step) => step,
                // The request that begins with this object gets the error.
                Err(_) if !out.is_empty() => break,
                Err(error) => return Err(error.into()),
            };
            let Some(step) = step else {
                if out.is_empty() {
                    return Err(Exception::value_error("no key satisfies the conditions"));
                }
                // A pack has removed the objects that followed.
                put(&mut out, &ChunkItem::End)?;
                return Ok(Value::Bytes(out.into()));
            };
            let Some(data) = &step.data else {
                if out.is_empty() {
                    return Err(Exception::missing_key(step.oid));
                }
                break;
            };
            let (oid, serial) = (step.oid, step.serial);
            put(&mut out, &ChunkItem::Object { oid, serial, data })?;
            match step.following {
                Some(following) => from = following,
                None => {
                    put(&mut out, &ChunkItem::End)?;
                    return Ok(Value::Bytes(out.into()));
                }
            }
        }
        put(&mut out, &ChunkItem::Following(from))?;
        Ok(Value::Bytes(out.into()))
    }))
}

#[cfg(test)]
mod tests {
    use zodium_storage::{RecordCursor, StorageError, Transaction};
    use zodium_types::Tid;
    use zodium_zeo::codec::next_chunk_item;

    use super::*;

    /// Gives the oids of records, and fails at `None`.
    struct Log(Vec<Option<u64>>);

    impl TransactionCursor for Log {
        fn step(&mut self) -> Result<Option<Transaction>, StorageError> {
            unreachable!("a chunk is read at once")
        }

        fn records(&self) -> Option<Box<dyn RecordCursor>> {
            unreachable!("a chunk is read at once")
        }

        fn read(
            &mut self,
            _: bool,
            visit: &mut dyn FnMut(LogItem<'_>) -> ControlFlow<()>,
        ) -> Result<bool, StorageError> {
            while let Some(record) = self.0.first() {
                let Some(oid) = *record else {
                    return Err(StorageError::Corrupt("a test".into()));
                };
                self.0.remove(0);
                let data = Some(&b"0123456789"[..]);
                let item = LogItem::Record { oid: Oid(oid), data, data_tid: Some(Tid(1)) };
                if visit(item).is_break() {
                    return Ok(false);
                }
            }
            Ok(true)
        }
    }

    /// The oids of a chunk, and whether the log ends there.
    fn chunk(log: &mut Log, bytes_max: usize) -> Result<(Vec<u64>, bool), Exception> {
        let chunk = read_log_chunk(log, bytes_max, true)?;
        let (mut rest, mut oids) = (chunk.as_bytes().unwrap(), Vec::new());
        while let Some(item) = next_chunk_item(&mut rest).unwrap() {
            match item {
                ChunkItem::Record { oid, .. } => oids.push(oid.0),
                ChunkItem::End => return Ok((oids, true)),
                other => panic!("{other:?}"),
            }
        }
        Ok((oids, false))
    }

    #[test]
    fn a_chunk_ends_with_the_item_that_fills_it() {
        // A record has 32 bytes here.
        for (bytes_max, expected) in [(1, 1), (32, 1), (33, 2), (64, 2), (65, 3)] {
            let mut log = Log((0..5).map(Some).collect());
            let (oids, is_end) = chunk(&mut log, bytes_max).unwrap();
            assert_eq!((oids.len(), is_end), (expected, false), "{bytes_max} bytes");
        }
        assert_eq!(chunk(&mut Log(vec![Some(1)]), 33).unwrap(), (vec![1], true));
    }

    #[test]
    fn records_before_damage_are_given_and_then_the_error() {
        let mut log = Log(vec![Some(1), Some(2), None, Some(3)]);
        assert_eq!(chunk(&mut log, 1000).unwrap(), (vec![1, 2], false));
        for _ in 0..2 {
            let error = chunk(&mut log, 1000).unwrap_err();
            assert_eq!(error.name, "ZODB.FileStorage.FileStorage.CorruptedDataError");
        }
    }
}
