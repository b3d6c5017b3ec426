//! Chunks of the log and of objects, as a client reads them.

use zodium_types::{Oid, Tid};
use zodium_zeo::codec::{StretchItem, next_stretch_item, put_stretch_item};

use super::{Target, linear};

pub(super) const LOG_CHUNKS: Target =
    Target { name: "log_chunks", seeds: || vec![all_kinds()], check, memory_bytes_max: linear };

fn all_kinds() -> Vec<u8> {
    let transaction = StretchItem::Transaction {
        tid: Tid(7),
        status: b' ',
        user: b"user",
        description: b"",
        extension: b"}.",
    };
    let record = |data, data_tid| StretchItem::Record { oid: Oid(1), data, data_tid };
    let items = [
        transaction,
        record(Some(&b"data"[..]), None),
        record(Some(&b""[..]), Some(Tid(5))),
        record(None, Some(Tid(5))),
        record(None, None),
        StretchItem::Skipped,
        StretchItem::Object { oid: Oid(2), serial: Tid(3), data: b"object" },
        StretchItem::Following(Oid(4)),
        StretchItem::End,
    ];
    let mut out = Vec::new();
    items.iter().for_each(|item| assert_eq!(put_stretch_item(&mut out, item), Ok(())));
    out
}

/// A decoded item encodes to the same bytes; on an error nothing is taken.
fn check(input: &[u8]) {
    let (mut rest, mut again) = (input, Vec::new());
    loop {
        let before = rest;
        match next_stretch_item(&mut rest) {
            Ok(Some(item)) => assert_eq!(put_stretch_item(&mut again, &item), Ok(())),
            Ok(None) => break,
            Err(_) => {
                assert_eq!(rest, before);
                break;
            }
        }
    }
    assert_eq!(again, input[..input.len() - rest.len()]);
}
