//! Dumps of databases, as `zodium load` and `zodium commit` read them.

use zodium_storage::LogItem;
use zodium_tools::dump::{DumpBody, DumpOptions, DumpReader, DumpTransaction, DumpWriter};
use zodium_tools::text::unquote;
use zodium_types::TransactionMetadata;

use super::{Target, linear};

pub(super) const DUMPS: Target = Target {
    name: "dumps",
    seeds: || {
        let whole: &[u8] = b"txn 03f5945817777777 \" \"\nuser \"j\\\"\\x00\"\ndescription \"\"\n\
            extension \"\"\nobj 0000000000000001 5 sha1:79f584d138a693dcf2d31aeb9abb8269873ae5c8\n\
            AA\nBB\nobj 0000000000000002 delete\nobj 0000000000000003 from 0000000000000007\n\n";
        let huge: &[u8] =
            b"txn 03f5945817777777 \" \"\nuser \"\"\ndescription \"\"\nextension \"\"\n\
            obj 0000000000000001 18446744073709551615 null:00\nx\n\n";
        let other: &[u8] = b"txn 03f5945817777778 \"p\"\nuser \"\"\ndescription \"\"\n\
            extension \"\"\nobj 0000000000000001 3 null:00\nabc\n\n";
        vec![whole.to_vec(), huge.to_vec(), other.to_vec(), [whole, other].concat()]
    },
    check,
    // Some memory is reserved for data that are announced.
    memory_bytes_max: |length| (17 << 20) + 4 * linear(length),
};

/// What is read is written and read again.
fn check(input: &[u8]) {
    let _ = unquote(input);
    let mut reader = DumpReader::new(input);
    let mut read = Vec::new();
    while let Ok(Some(transaction)) = reader.transaction() {
        read.push(transaction);
    }
    if read.iter().flat_map(|one| &one.objects).any(|one| one.body == DumpBody::HashOnly) {
        return;
    }
    let options = DumpOptions { log_order: true, ..DumpOptions::default() };
    let mut writer = DumpWriter::new(Vec::new(), options);
    for DumpTransaction { tid, status, metadata, objects } in &read {
        let TransactionMetadata { user, description, extension } = metadata;
        let (tid, status) = (*tid, *status);
        let head = LogItem::Transaction { tid, status, user, description, extension };
        assert!(writer.write(head).is_ok());
        for object in objects {
            let (data, data_tid) = match &object.body {
                DumpBody::Delete | DumpBody::HashOnly => (None, None),
                DumpBody::CopyOf(tid) => (Some(&b""[..]), Some(*tid)),
                DumpBody::Data(data) => (Some(&data[..]), None),
            };
            assert!(writer.write(LogItem::Record { oid: object.oid, data, data_tid }).is_ok());
        }
    }
    let Ok(written) = writer.finish() else { return };
    let mut again = DumpReader::new(&written[..]);
    for expected in read {
        let found = again.transaction();
        assert_eq!(found.ok().flatten(), Some(expected));
    }
}
