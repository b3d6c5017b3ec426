//! Writing streams: entries in listpacks, then groups with what they have not acknowledged.

use zodium_keyspace::{Group, Stream, StreamId};

use crate::listpack::ListpackWriter;
use crate::output::{length, long_length, string};

/// Most entries of a listpack.
const NODE_ENTRIES_MAX: usize = 100;

/// Appends a stream.
pub(crate) fn write(out: &mut Vec<u8>, stream: &Stream) {
    let entries: Vec<_> = stream.range(..).collect();
    let nodes = entries.chunks(NODE_ENTRIES_MAX);
    length(out, nodes.len());
    for node in nodes {
        let first = node.first().map_or(StreamId::default(), |(id, _)| *id);
        string(out, &id_bytes(first));
        let mut pack = ListpackWriter::new();
        // The entry that others refer to. It has no fields, so that none does.
        pack.integer(i64::try_from(node.len()).unwrap_or(i64::MAX));
        (0..3).for_each(|_| pack.integer(0));
        for (id, fields) in node {
            pack.integer(0);
            pack.integer(id.ms.wrapping_sub(first.ms).cast_signed());
            pack.integer(id.number.wrapping_sub(first.number).cast_signed());
            let pairs = fields.len() / 2;
            pack.integer(i64::try_from(pairs).unwrap_or(i64::MAX));
            fields.iter().for_each(|word| pack.bytes(word));
            // The number of elements of the entry before this one.
            pack.integer(i64::try_from(4 + 2 * pairs).unwrap_or(i64::MAX));
        }
        string(out, &pack.finish());
    }
    length(out, stream.len());
    id(out, stream.last);
    id(out, stream.first().map_or(StreamId::default(), |(id, _)| id));
    id(out, stream.deleted_max);
    long_length(out, stream.added);
    length(out, stream.groups.len());
    for (name, group) in &stream.groups {
        string(out, name);
        write_group(out, group);
    }
}

fn write_group(out: &mut Vec<u8>, group: &Group) {
    id(out, group.last);
    long_length(out, group.read.unwrap_or(u64::MAX));
    length(out, group.pending.len());
    for (pending_id, pending) in group.pending.range(..) {
        out.extend_from_slice(&id_bytes(pending_id));
        out.extend_from_slice(&pending.delivered_at.to_le_bytes());
        long_length(out, pending.count);
    }
    length(out, group.consumers.len());
    for (name, consumer) in &group.consumers {
        string(out, name);
        out.extend_from_slice(&consumer.seen_at.to_le_bytes());
        // -1: it was never active.
        out.extend_from_slice(&consumer.active_at.unwrap_or(u64::MAX).to_le_bytes());
        length(out, group.pending.count_of(name));
        let own = group.pending.range_of(name, ..);
        own.for_each(|(own_id, _)| out.extend_from_slice(&id_bytes(own_id)));
    }
}

fn id(out: &mut Vec<u8>, id: StreamId) {
    long_length(out, id.ms);
    long_length(out, id.number);
}

fn id_bytes(id: StreamId) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&id.ms.to_be_bytes());
    bytes[8..].copy_from_slice(&id.number.to_be_bytes());
    bytes
}
