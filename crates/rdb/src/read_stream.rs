//! Reading streams of all versions of the format.

use std::io::Read;

use zodium_keyspace::{Consumer, Fields, Group, Pending, Stream, StreamId, Word};

use crate::listpack::{self, Element};
use crate::{Input, RdbError};

const DAMAGED: RdbError = RdbError::Damaged("a stream");

/// Entries that were deleted stay in their listpack with this flag.
const DELETED: i64 = 1;
/// The fields are those of the listpack's first entry.
const SAME_FIELDS: i64 = 2;

/// Reads a stream. `version` is 1 to 3, by the number of the kind.
pub(crate) fn read<R: Read>(input: &mut Input<R>, version: u8) -> Result<Stream, RdbError> {
    let mut stream = Stream::default();
    for _ in 0..input.length()? {
        let first = id_of(&input.string()?)?;
        let pack = input.string()?;
        read_node(&mut stream, first, &listpack::read(&pack)?)?;
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

/// Adds the entries of a listpack.
fn read_node(stream: &mut Stream, first: StreamId, elements: &[Element]) -> Result<(), RdbError> {
    let mut elements = elements.iter();
    let mut next = || elements.next().ok_or(DAMAGED);
    let total = number(next()?)?.checked_add(number(next()?)?).ok_or(DAMAGED)?;
    let master_count = size(next()?)?;
    let mut master: Vec<Word> = Vec::new();
    for _ in 0..master_count {
        master.push(word(next()?));
    }
    next()?;
    for _ in 0..total {
        let flags = number(next()?)?;
        let ms = first.ms.wrapping_add_signed(number(next()?)?);
        let id = StreamId { ms, number: first.number.wrapping_add_signed(number(next()?)?) };
        let mut fields: Vec<Word> = Vec::new();
        if flags & SAME_FIELDS != 0 {
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
    for _ in 0..input.length()? {
        let id = id_of(&input.fixed::<16>()?)?;
        let delivered_at = input.u64_le()?;
        let count = input.length()?;
        group.pending.insert(id, Pending { consumer: Word::default(), delivered_at, count });
    }
    let mut owned = 0;
    for _ in 0..input.length()? {
        let name = input.string()?.into_boxed_slice();
        let seen_at = input.u64_le()?;
        let active_at = match version {
            3 => Some(input.u64_le()?).filter(|at| *at != u64::MAX),
            _ => Some(seen_at),
        };
        for _ in 0..input.length()? {
            let id = id_of(&input.fixed::<16>()?)?;
            group.pending.get_mut(&id).ok_or(DAMAGED)?.consumer.clone_from(&name);
            owned += 1;
        }
        group.consumers.insert(name, Consumer { seen_at, active_at });
    }
    // Each one belongs to a consumer.
    if owned == group.pending.len() { Ok(group) } else { Err(DAMAGED) }
}

fn id<R: Read>(input: &mut Input<R>) -> Result<StreamId, RdbError> {
    Ok(StreamId { ms: input.length()?, number: input.length()? })
}

fn id_of(bytes: &[u8]) -> Result<StreamId, RdbError> {
    let (ms, number) = bytes.split_first_chunk::<8>().ok_or(DAMAGED)?;
    let number: [u8; 8] = number.try_into().map_err(|_| DAMAGED)?;
    Ok(StreamId { ms: u64::from_be_bytes(*ms), number: u64::from_be_bytes(number) })
}
