//! What commands on streams have in common: ids, trimming, and answering entries.

use zodium_keyspace::{Fields, Stream, StreamId, Word};

use crate::call::{Call, Options, integer, is};
use crate::fail::{Fail, Outcome, SYNTAX};
use crate::reply::Reply;
use crate::settings::Settings;

const NO_ID: Fail = Fail::fixed("ERR Invalid stream ID specified as stream command argument");
/// Entries whose size stands for that of those behind them.
const SAMPLES: usize = 8;
/// Bytes that the stock server adds to an entry, and to each of its words.
const ENTRY_BYTES: usize = 10;
const WORD_BYTES: usize = 3;

fn unsigned(text: &[u8]) -> Option<u64> {
    let is_plain = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text).ok().filter(|_| is_plain)?.parse().ok()
}

/// An id: `5-3`, or `5` with another number instead of 3.
pub(super) fn id(word: &[u8], number: u64) -> Result<StreamId, Fail> {
    let (ms, rest) = match word.iter().position(|byte| *byte == b'-') {
        Some(place) => (&word[..place], Some(&word[place + 1..])),
        None => (word, None),
    };
    let ms = unsigned(ms).ok_or(NO_ID)?;
    let number = rest.map_or(Some(number), unsigned).ok_or(NO_ID)?;
    Ok(StreamId { ms, number })
}

/// An end of a range: `-`, `+`, an id, or `(` and an id that is not in it.
pub(super) fn bound(word: &[u8], is_start: bool) -> Result<StreamId, Fail> {
    match word {
        b"-" => return Ok(StreamId::default()),
        b"+" => return Ok(StreamId::MAX),
        _ => {}
    }
    let missing = if is_start { 0 } else { u64::MAX };
    let Some(open) = word.strip_prefix(b"(") else { return id(word, missing) };
    let id = id(open, missing)?;
    match is_start {
        true => id.next().ok_or(Fail::fixed("ERR invalid start ID for the interval")),
        false => id.previous().ok_or(Fail::fixed("ERR invalid end ID for the interval")),
    }
}

/// Answers an entry; `None` for one that was deleted.
pub(super) fn answer_entry(reply: &mut Reply, id: StreamId, fields: Option<&Fields>) {
    reply.array(2);
    reply.text(&id.to_string());
    match fields {
        Some(fields) => reply.words(fields),
        None => reply.null_array(),
    }
}

/// How a stream is cut at its beginning.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trim {
    pub(super) bound: Option<TrimBound>,
    pub(super) is_approximate: bool,
    limit: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum TrimBound {
    /// So many entries stay.
    Length(usize),
    /// Entries from this one on stay.
    Id(StreamId),
}

impl Trim {
    /// Reads one option, if the word is one of trimming.
    pub(super) fn take(&mut self, word: &[u8], options: &mut Options) -> Result<bool, Fail> {
        let (is_length, is_id) = (is(word, "maxlen"), is(word, "minid"));
        if is(word, "limit") && options.left() > 0 {
            let limit = integer(options.value()?)?;
            let error = Fail::fixed("ERR The LIMIT argument must be >= 0.");
            self.limit = Some(usize::try_from(limit).map_err(|_| error)?);
            return Ok(true);
        }
        if !is_length && !is_id || options.left() == 0 {
            return Ok(false);
        }
        if self.bound.is_some() {
            return Err(Fail::fixed(
                "ERR syntax error, MAXLEN and MINID options at the same time are not compatible",
            ));
        }
        let mut value = options.value()?;
        self.is_approximate = false;
        if matches!(value, b"~" | b"=") && options.left() > 0 {
            self.is_approximate = value == b"~";
            value = options.value()?;
        }
        self.bound = Some(match is_length {
            true => {
                let error = Fail::fixed("ERR The MAXLEN argument must be >= 0.");
                TrimBound::Length(usize::try_from(integer(value)?).map_err(|_| error)?)
            }
            false => TrimBound::Id(id(value, 0)?),
        });
        Ok(true)
    }

    /// Whether the options fit together.
    pub(super) fn check(&self, is_needed: bool) -> Outcome {
        if self.limit.is_some_and(|limit| limit > 0) && self.bound.is_none() {
            return Err(Fail::fixed(
                "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy",
            ));
        }
        if is_needed && self.bound.is_none() {
            return Err(Fail::fixed(
                "ERR syntax error, XTRIM must be called with a trimming strategy",
            ));
        }
        if self.limit.is_some() && !self.is_approximate {
            return Err(Fail::fixed(
                "ERR syntax error, LIMIT cannot be used without the special ~ option",
            ));
        }
        Ok(())
    }

    /// Removes entries; how many, and the entries themselves if they are many. With `~` the stock
    /// server removes whole nodes only, and here as many entries go at once as it has in a node.
    /// That depends on settings, so a log has what was left.
    pub(super) fn apply(
        &self,
        stream: &mut Stream,
        settings: &Settings,
    ) -> (usize, Option<Stream>) {
        let limit = self.limit(settings);
        let mut excess = match self.bound {
            None => 0,
            Some(TrimBound::Length(most)) => stream.len().saturating_sub(most).min(limit),
            Some(TrimBound::Id(first)) => stream.range(..first).take(limit).count(),
        };
        if self.is_approximate && excess > 0 && excess < stream.len() {
            excess -= excess % node_entries(stream, settings);
        }
        (excess, stream.remove_first(excess))
    }

    /// Most entries that are removed.
    fn limit(&self, settings: &Settings) -> usize {
        match self.limit {
            _ if !self.is_approximate => usize::MAX,
            Some(0) => usize::MAX,
            Some(limit) => limit,
            // By default the stock server looks at 100 nodes.
            None => match settings.node_entries_max() {
                0 => 10_000,
                most => most.saturating_mul(100).min(1_000_000),
            },
        }
    }
}

/// How many entries the stock server has in a node, by the size of the first ones.
fn node_entries(stream: &Stream, settings: &Settings) -> usize {
    let first = stream.first().map(|(_, fields)| fields);
    // A name that the first entry has at this place too is not stored again.
    let is_stored = |(place, word): &(usize, &Word)| {
        place % 2 == 1 || first.is_none_or(|first| first.get(*place) != Some(*word))
    };
    let entry = |fields: &Fields| {
        let words = fields.iter().enumerate().filter(is_stored);
        ENTRY_BYTES + words.map(|(_, word)| word.len() + WORD_BYTES).sum::<usize>()
    };
    let samples = stream.len().clamp(1, SAMPLES);
    let sum: usize = stream.range(..).take(samples).map(|(_, fields)| entry(fields)).sum();
    let within = |most: usize| if most == 0 { usize::MAX } else { most };
    let by_bytes = within(settings.node_bytes_max()) / (sum / samples).max(1);
    by_bytes.min(within(settings.node_entries_max())).max(1)
}

/// An error about a group that is not there.
pub(super) fn no_group(call: &Call, key: &[u8], group: &[u8], with: &str) -> Fail {
    let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
    let (key, group) = (text(key), text(group));
    debug_assert!(call.len() > 1, "a command on streams has a key");
    Fail::text(format!("NOGROUP No such key '{key}' or consumer group '{group}'{with}"))
}

/// The number behind `COUNT`.
pub(super) fn count(word: &[u8]) -> Result<usize, Fail> {
    Ok(usize::try_from(integer(word)?).unwrap_or(0))
}

/// Options that are only `COUNT`.
pub(super) fn only_count(call: &Call, place: usize) -> Result<Option<usize>, Fail> {
    let mut options = Options::from(call.arguments, place);
    let mut found = None;
    while let Some(word) = options.next() {
        match is(word, "count") && options.left() > 0 {
            true => found = Some(count(options.value()?)?),
            false => return Err(SYNTAX),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_and_nonsense_refused() {
        let of = |ms, number| StreamId { ms, number };
        assert_eq!(id(b"5-3", 0).unwrap(), of(5, 3));
        assert_eq!(id(b"5", 7).unwrap(), of(5, 7));
        assert_eq!(bound(b"(5-3", true).unwrap(), of(5, 4));
        assert_eq!(bound(b"(5-0", false).unwrap(), of(4, u64::MAX));
        assert_eq!(bound(b"+", false).unwrap(), StreamId::MAX);
        for bad in [&b"x"[..], b"", b"-5", b"5-", b"+5", b"5-3-1", b"18446744073709551616"] {
            assert!(id(bad, 0).is_err(), "{bad:?}");
        }
        assert!(bound(b"(18446744073709551615", false).is_ok());
        assert!(bound(b"(0-0", false).is_err());
    }
}
