//! Reading values in all encodings.

use std::io::Read;

use bytes::Bytes;
use zodium_keyspace::{Hash, Set, SortedSet, Value, Word};

use crate::listpack::{self, Element};
use crate::{Input, RdbError, intset, kind, read_stream, ziplist};

/// Reads a value of a kind, by its number. Collections are never empty, but for streams.
///
/// # Errors
/// The input ends, is damaged, or has a kind of value that is not known here.
pub fn read_value<R: Read>(kind: u8, input: &mut Input<R>) -> Result<Value, RdbError> {
    match read_any(kind, input)? {
        value if is_empty(&value) => Err(RdbError::Damaged("a collection without elements")),
        value => Ok(value),
    }
}

/// As [`read_value`], but any collection may be empty.
pub(crate) fn read_any<R: Read>(kind: u8, input: &mut Input<R>) -> Result<Value, RdbError> {
    Ok(match kind {
        kind::STRING => Value::String(Bytes::from(input.string()?)),
        kind::LIST => list(strings(input, 1)?),
        kind::SET => set(strings(input, 1)?)?,
        kind::SORTED_SET_TEXT => sorted_set(input, text_score)?,
        kind::SORTED_SET => sorted_set(input, |input| input.u64_le().map(f64::from_bits))?,
        kind::HASH => hash(strings(input, 2)?)?,
        kind::LIST_ZIPLIST => list(words(&ziplist::read(&input.string()?)?)),
        kind::SET_INTSET => {
            let members = intset::read(&input.string()?)?;
            set(members.iter().map(|member| member.to_string().into_bytes().into()).collect())?
        }
        kind::SORTED_SET_ZIPLIST => scored(words(&ziplist::read(&input.string()?)?))?,
        kind::HASH_ZIPLIST => hash(words(&ziplist::read(&input.string()?)?))?,
        kind::LIST_QUICKLIST_1 => {
            let mut elements = Vec::new();
            for _ in 0..input.length()? {
                elements.extend(words(&ziplist::read(&input.string()?)?));
            }
            list(elements)
        }
        kind::HASH_LISTPACK => hash(words(&listpack::read(&input.string()?)?))?,
        kind::SORTED_SET_LISTPACK => scored(words(&listpack::read(&input.string()?)?))?,
        kind::LIST_QUICKLIST_2 => list(quicklist(input)?),
        kind::SET_LISTPACK => set(words(&listpack::read(&input.string()?)?))?,
        kind::STREAM_1 => Value::Stream(Box::new(read_stream::read(input, 1)?)),
        kind::STREAM_2 => Value::Stream(Box::new(read_stream::read(input, 2)?)),
        kind::STREAM_3 => Value::Stream(Box::new(read_stream::read(input, 3)?)),
        other => return Err(unknown(other, input)),
    })
}

/// Why a kind of value is refused.
fn unknown<R: Read>(kind: u8, input: &mut Input<R>) -> RdbError {
    RdbError::Unsupported(match kind {
        kind::MODULE | kind::MODULE_2 => match input.length() {
            Ok(module) => format!(
                "a value of the module {}: this server has no modules. Delete the key, or unload \
                 the module, and save again",
                module_name(module)
            ),
            Err(error) => return error,
        },
        kind::HASH_ZIPMAP => "a hash in the format of Redis before 2.6: load it with a newer \
                              server, and save it again"
            .to_owned(),
        kind::EXPIRING_HASH_FIRST..=kind::EXPIRING_HASH_LAST => {
            "a hash whose fields expire, which this server does not know".to_owned()
        }
        other => format!("a value of the kind {other}, which this program does not know"),
    })
}

/// The name of a module: nine letters of six bits, and a version.
pub(crate) fn module_name(id: u64) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let letter = |place: u32| char::from(LETTERS[(id >> (10 + 6 * (8 - place)) & 63) as usize]);
    (0..9).map(letter).collect()
}

/// Whether it is a collection that cannot be empty, but is.
pub(crate) fn is_empty(value: &Value) -> bool {
    match value {
        Value::List(list) => list.is_empty(),
        Value::Set(set) => set.is_empty(),
        Value::SortedSet(set) => set.is_empty(),
        Value::Hash(hash) => hash.is_empty(),
        Value::String(_) | Value::Stream(_) => false,
    }
}

/// A number of strings, times `each`.
fn strings<R: Read>(input: &mut Input<R>, each: u64) -> Result<Vec<Word>, RdbError> {
    let count = input.length()?.checked_mul(each).ok_or(RdbError::Damaged("a number"))?;
    let mut words = Vec::new();
    for _ in 0..count {
        words.push(input.string()?.into());
    }
    Ok(words)
}

fn words(elements: &[Element]) -> Vec<Word> {
    elements.iter().map(|element| element.to_bytes().into()).collect()
}

fn list(elements: Vec<Word>) -> Value {
    Value::List(elements.into_iter().collect())
}

fn set(members: Vec<Word>) -> Result<Value, RdbError> {
    let mut set = Set::default();
    match members.iter().all(|member| set.add(member)) {
        true => Ok(Value::Set(set)),
        false => Err(RdbError::Damaged("a set has a member twice")),
    }
}

fn hash(words: Vec<Word>) -> Result<Value, RdbError> {
    let mut hash = Hash::default();
    let pairs = words.chunks_exact(2);
    let is_even = pairs.remainder().is_empty();
    let is_sound = pairs.fold(is_even, |sound, pair| hash.set(&pair[0], &pair[1]) && sound);
    match is_sound {
        true => Ok(Value::Hash(hash)),
        false => Err(RdbError::Damaged("a hash has a field twice, or one without a value")),
    }
}

/// Members and scores in turns.
fn scored(words: Vec<Word>) -> Result<Value, RdbError> {
    const DAMAGED: RdbError = RdbError::Damaged("a sorted set");
    let mut set = SortedSet::default();
    let pairs = words.chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return Err(DAMAGED);
    }
    for pair in pairs {
        let score = score_of(&pair[1]).ok_or(DAMAGED)?;
        if set.set(&pair[0], score).is_some() {
            return Err(DAMAGED);
        }
    }
    Ok(Value::SortedSet(set))
}

fn score_of(text: &[u8]) -> Option<f64> {
    let score: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (!score.is_nan()).then_some(score)
}

fn sorted_set<R: Read>(
    input: &mut Input<R>,
    read_score: impl Fn(&mut Input<R>) -> Result<f64, RdbError>,
) -> Result<Value, RdbError> {
    let mut set = SortedSet::default();
    for _ in 0..input.length()? {
        let member = input.string()?;
        let score = read_score(input)?;
        if score.is_nan() || set.set(&member, score).is_some() {
            return Err(RdbError::Damaged("a sorted set"));
        }
    }
    Ok(Value::SortedSet(set))
}

/// A score as text, behind its length; the largest lengths have a meaning of their own.
fn text_score<R: Read>(input: &mut Input<R>) -> Result<f64, RdbError> {
    match input.byte()? {
        255 => Ok(f64::NEG_INFINITY),
        254 => Ok(f64::INFINITY),
        253 => Ok(f64::NAN),
        count => {
            let text = input.bytes(count.into())?;
            score_of(&text).ok_or(RdbError::Damaged("a score"))
        }
    }
}

/// The elements of a list in parts: large elements on their own, others in listpacks.
fn quicklist<R: Read>(input: &mut Input<R>) -> Result<Vec<Word>, RdbError> {
    let mut elements = Vec::new();
    for _ in 0..input.length()? {
        match input.length()? {
            1 => elements.push(input.string()?.into()),
            2 => elements.extend(words(&listpack::read(&input.string()?)?)),
            _ => return Err(RdbError::Damaged("a part of a list")),
        }
    }
    Ok(elements)
}
