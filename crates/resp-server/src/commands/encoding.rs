//! What the stock server would call the representation of a value: `OBJECT ENCODING`.

use zodium_keyspace::ValueRef;
use zodium_resp::parse_integer;

use crate::server::Server;

/// Longest string that the stock server keeps with its key.
const EMBEDDED_BYTES_MAX: usize = 44;

/// The name for a value of this kind and size, by the limits that are set.
pub(super) fn of(server: &Server, value: ValueRef<'_>) -> &'static str {
    let limit = |name: &str| usize::try_from(server.settings.number(name)).unwrap_or(usize::MAX);
    match value {
        ValueRef::String(text) if parse_integer(&text).is_some() => "int",
        ValueRef::String(text) if text.len() <= EMBEDDED_BYTES_MAX => "embstr",
        ValueRef::String(_) => "raw",
        ValueRef::List(list) => {
            let size = server.settings.number("list-max-listpack-size");
            let bytes: usize = list.iter().map(|element| element.len() + 2).sum();
            let is_small = match usize::try_from(size) {
                Ok(elements) => list.len() <= elements.max(1),
                // -1 to -5 stand for 4 to 64 KiB.
                Err(_) => bytes <= 4096 << size.unsigned_abs().saturating_sub(1).min(4),
            };
            if is_small { "listpack" } else { "quicklist" }
        }
        ValueRef::Hash(hash) => {
            let bytes = limit("hash-max-listpack-value");
            let fits = hash.len() <= limit("hash-max-listpack-entries")
                && hash.iter().all(|(field, value)| field.len() <= bytes && value.len() <= bytes);
            if fits { "listpack" } else { "hashtable" }
        }
        ValueRef::Set(set) => {
            let bytes = limit("set-max-listpack-value");
            let are_numbers = set.len() <= limit("set-max-intset-entries")
                && set.iter().all(|member| parse_integer(member).is_some());
            let fits = set.len() <= limit("set-max-listpack-entries")
                && set.iter().all(|member| member.len() <= bytes);
            match (are_numbers, fits) {
                (true, _) => "intset",
                (false, true) => "listpack",
                (false, false) => "hashtable",
            }
        }
        ValueRef::SortedSet(set) => {
            let bytes = limit("zset-max-listpack-value");
            let fits = set.len() <= limit("zset-max-listpack-entries")
                && set.upwards(0).all(|(member, _)| member.len() <= bytes);
            if fits { "listpack" } else { "skiplist" }
        }
        ValueRef::Stream(_) => "stream",
    }
}

/// Whether the stock server would keep the elements of a collection in one piece of memory.
pub(super) fn is_in_one_piece(server: &Server, value: ValueRef<'_>) -> bool {
    matches!(of(server, value), "listpack" | "intset")
}
