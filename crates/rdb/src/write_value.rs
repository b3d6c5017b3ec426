//! Writing values, in encodings that every version reads.

use zodium_keyspace::ValueRef;

use crate::output::{length, string};
use crate::{kind, write_stream};

/// Appends a value: the number of its kind, then what it holds.
pub fn write_value(out: &mut Vec<u8>, value: ValueRef<'_>) {
    match value {
        ValueRef::String(text) => {
            out.push(kind::STRING);
            string(out, &text);
        }
        ValueRef::List(list) => {
            out.push(kind::LIST);
            length(out, list.0.len());
            list.0.iter().for_each(|element| string(out, element));
        }
        ValueRef::Set(set) => {
            out.push(kind::SET);
            length(out, set.len());
            set.iter().for_each(|member| string(out, member));
        }
        ValueRef::SortedSet(set) => {
            out.push(kind::SORTED_SET);
            length(out, set.len());
            for (member, score) in set.upwards(0) {
                string(out, member);
                out.extend_from_slice(&score.to_le_bytes());
            }
        }
        ValueRef::Hash(hash) => {
            out.push(kind::HASH);
            length(out, hash.len());
            for (field, value) in hash.iter() {
                string(out, field);
                string(out, value);
            }
        }
        ValueRef::Stream(stream) => {
            out.push(kind::STREAM_3);
            write_stream::write(out, stream);
        }
    }
}
