//! Reading streams of all versions of the format.

use std::collections::BTreeMap;
use std::io::Read;

use zodium_keyspace::{Consumer, Fields, Group, Pending, Stream, StreamId, Word};

use crate::listpack::{self, Element};
use crate::{Input, RdbError};

const DAMAGED: RdbError = RdbError::Damaged("a stream");
const REPEATED: RdbError = RdbError::Damaged("a stream, whose entries repeat long names of fields");

/// A listpack has the names of fields once for all of its entries, of which there are about a
/// hundred. Each entry gets a copy of them, of so many bytes for each byte of the listpack ...
const NAMES_GROWTH_MAX: usize = 128;
/// ... and so many besides for the stream. A few bytes must not become gigabytes.
const NAMES_BYTES_LEAST: usize = 1 << 20;

/// Entries that were deleted stay in their listpack with this flag.
const DELETED: i64 = 1;
/// The fields are those of the listpack's first entry.
const SAME_FIELDS: i64 = 2;

/// Reads a stream. `version` is 1 to 3, by the number of the kind.
pub(crate) fn read<R: Read>(input: &mut Input<R>, version: u8) -> Result<Stream, RdbError> {
    let (mut stream, mut names) = (Stream::default(), NAMES_BYTES_LEAST);
    for _ in 0..input.length()? {
        let first = id_of(&input.string()?)?;
        let pack = input.string()?;
        names = names.saturating_add(pack.len().saturating_mul(NAMES_GROWTH_MAX));
        read_node(&mut stream, first, &listpack::read(&pack)?, &mut names)?;
    }
    let count = input.length()?;
    if count != stream.len() as u64 {
        return Err(DAMAGED);
    }
    let last = id(input)?;
    if last < stream.last {
        return Err(DAMAGED);
    }
    stream.last = last;
    stream.added = count;
    if version >= 2 {
        let _first = id(input)?;
        stream.deleted_max = id(input)?;
        stream.added = input.length()?;
    }
    for _ in 0..input.length()? {
        let name = input.string()?.into_boxed_slice();
        let mut group = read_group(input, version)?;
        if version < 2 {
            group.read = stream.added_up_to(group.last);
        }
        if stream.groups.insert(name, group).is_some() {
            return Err(DAMAGED);
        }
    }
    Ok(stream)
}

/// Adds the entries of a listpack. Entries may repeat names of fields, of so many bytes.
fn read_node(
    stream: &mut Stream,
    first: StreamId,
    elements: &[Element],
    names: &mut usize,
) -> Result<(), RdbError> {
    let mut elements = elements.iter();
    let mut next = || elements.next().ok_or(DAMAGED);
    let total = number(next()?)?.checked_add(number(next()?)?).ok_or(DAMAGED)?;
    let master_count = size(next()?)?;
    let mut master: Vec<Word> = Vec::new();
    for _ in 0..master_count {
        master.push(word(next()?));
    }
    next()?;
    let master_bytes = master.iter().map(|name| name.len()).sum();
    for _ in 0..total {
        let flags = number(next()?)?;
        let ms = first.ms.wrapping_add_signed(number(next()?)?);
        let id = StreamId { ms, number: first.number.wrapping_add_signed(number(next()?)?) };
        let mut fields: Vec<Word> = Vec::new();
        if flags & SAME_FIELDS != 0 {
            *names = names.checked_sub(master_bytes).ok_or(REPEATED)?;
            for field in &master {
                fields.push(field.clone());
                fields.push(word(next()?));
            }
        } else {
            for _ in 0..size(next()?)? {
                fields.push(word(next()?));
                fields.push(word(next()?));
            }
        }
        next()?;
        if flags & DELETED == 0 {
            add(stream, id, fields.into())?;
        }
    }
    match elements.next() {
        None => Ok(()),
        Some(_) => Err(DAMAGED),
    }
}

fn add(stream: &mut Stream, id: StreamId, fields: Fields) -> Result<(), RdbError> {
    if !stream.is_empty() && id <= stream.last {
        return Err(DAMAGED);
    }
    stream.add(id, fields);
    Ok(())
}

fn number(element: &Element) -> Result<i64, RdbError> {
    element.integer().ok_or(DAMAGED)
}

fn size(element: &Element) -> Result<usize, RdbError> {
    usize::try_from(number(element)?).map_err(|_| DAMAGED)
}

fn word(element: &Element) -> Word {
    element.to_bytes().into_boxed_slice()
}

fn read_group<R: Read>(input: &mut Input<R>, version: u8) -> Result<Group, RdbError> {
    let mut group = Group { last: id(input)?, ..Group::default() };
    if version >= 2 {
        group.read = Some(input.length()?).filter(|read| *read != u64::MAX);
    }
    let mut without_owner = BTreeMap::new();
    for _ in 0..input.length()? {
        let id = id_of(&input.fixed::<16>()?)?;
        let delivered_at = input.u64_le()?;
        let count = input.length()?;
        without_owner.insert(id, (delivered_at, count));
    }
    for _ in 0..input.length()? {
        let name = input.string()?.into_boxed_slice();
        let seen_at = input.u64_le()?;
        let active_at = match version {
            3 => Some(input.u64_le()?).filter(|at| *at != u64::MAX),
            _ => Some(seen_at),
        };
        for _ in 0..input.length()? {
            let id = id_of(&input.fixed::<16>()?)?;
            // Each one belongs to one consumer.
            let (delivered_at, count) = without_owner.remove(&id).ok_or(DAMAGED)?;
            group.pending.put(id, Pending { consumer: name.clone(), delivered_at, count });
        }
        group.consumers.insert(name, Consumer { seen_at, active_at });
    }
    if without_owner.is_empty() { Ok(group) } else { Err(DAMAGED) }
}

fn id<R: Read>(input: &mut Input<R>) -> Result<StreamId, RdbError> {
    Ok(StreamId { ms: input.length()?, number: input.length()? })
}

fn id_of(bytes: &[u8]) -> Result<StreamId, RdbError> {
    let (ms, number) = bytes.split_first_chunk::<8>().ok_or(DAMAGED)?;
    let number: [u8; 8] = number.try_into().map_err(|_| DAMAGED)?;
    Ok(StreamId { ms: u64::from_be_bytes(*ms), number: u64::from_be_bytes(number) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listpack::ListpackWriter;
    use crate::output::{length, string};
    use crate::write_stream;

    /// A stream of one listpack, whose entries all have the fields of the first.
    fn with_names(name: &[u8], entries: i64) -> Vec<u8> {
        let mut pack = ListpackWriter::new();
        [entries, 0, 1].into_iter().for_each(|number| pack.integer(number));
        pack.bytes(name);
        pack.integer(0);
        for number in 1..=entries {
            [SAME_FIELDS, 0, number, 0, 4].into_iter().for_each(|number| pack.integer(number));
        }
        let mut out = Vec::new();
        length(&mut out, 1);
        string(&mut out, &[0; 16]);
        string(&mut out, &pack.finish());
        let count = usize::try_from(entries).unwrap();
        // The count, the last id, the first one, that of the last deleted, all added, and groups.
        [count, 0, count, 0, 0, 0, 0, count, 0].into_iter().for_each(|n| length(&mut out, n));
        out
    }

    fn read_whole(bytes: &[u8]) -> Result<Stream, RdbError> {
        read(&mut Input::new(bytes), 3)
    }

    #[test]
    fn entries_that_repeat_long_names_again_and_again_are_refused() {
        let name = [b'n'; 4000];
        let stream = read_whole(&with_names(&name, 100)).unwrap();
        assert_eq!((stream.len(), stream.first().unwrap().1[0].len()), (100, 4000));
        let long = [b'n'; 60_000];
        assert!(read_whole(&with_names(&long, 100)).is_ok());
        let refused = read_whole(&with_names(&long, 2000));
        assert!(refused.unwrap_err().to_string().contains("repeat long names"));
    }

    #[test]
    fn an_entry_that_was_delivered_belongs_to_one_consumer() {
        let mut stream = Stream::default();
        let ids = [1, 2].map(|ms| StreamId { ms, number: 0 });
        let mut group = Group { last: ids[1], ..Group::default() };
        group.consumers.insert((*b"c").into(), Consumer::default());
        for id in ids {
            stream.add(id, Box::default());
            let pending = Pending { consumer: (*b"c").into(), delivered_at: 0, count: 1 };
            group.pending.put(id, pending);
        }
        stream.groups.insert((*b"g").into(), group);
        let mut out = Vec::new();
        write_stream::write(&mut out, &stream);
        assert!(read_whole(&out).is_ok());
        let last = out.len() - 16;
        out.copy_within(last - 16..last, last);
        assert!(read_whole(&out).is_err());
    }
}
