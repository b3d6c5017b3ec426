//! Chunks of the log and of objects, as a client reads them.

use zodium_types::{Oid, Tid};
use zodium_zeo::codec::{ChunkItem, next_chunk_item, put_chunk_item};

use super::{Target, linear};

pub(super) const LOG_CHUNKS: Target =
    Target { name: "log_chunks", seeds: || vec![all_kinds()], check, memory_bytes_max: linear };

fn all_kinds() -> Vec<u8> {
    let transaction = ChunkItem::Transaction {
        tid: Tid(7),
        status: b' ',
        user: b"user",
        description: b"",
        extension: b"}.",
    };
    let record = |data, data_tid| ChunkItem::Record { oid: Oid(1), data, data_tid };
    let items = [
        transaction,
        record(Some(&b"data"[..]), None),
        record(Some(&b""[..]), Some(Tid(5))),
        record(None, Some(Tid(5))),
        record(None, None),
        ChunkItem::Skipped,
        ChunkItem::Object { oid: Oid(2), serial: Tid(3), data: b"object" },
        ChunkItem::Following(Oid(4)),
        ChunkItem::End,
    ];
    let mut out = Vec::new();
    items.iter().for_each(|item| assert_eq!(put_chunk_item(&mut out, item), Ok(())));
    out
}

/// A decoded item encodes to the same bytes; on an error nothing is taken.
fn check(input: &[u8]) {
    let (mut rest, mut again) = (input, Vec::new());
    loop {
        let before = rest;
        match next_chunk_item(&mut rest) {
            Ok(Some(item)) => assert_eq!(put_chunk_item(&mut again, &item), Ok(())),
            Ok(None) => break,
            Err(_) => {
                assert_eq!(rest, before);
                break;
            }
        }
    }
    assert_eq!(again, input[..input.len() - rest.len()]);
}
