//! Lists: pushing, popping, and changing elements.

use zodium_keyspace::{List, Word};
use zodium_resp::parse_integer;

use super::hashes::count_or_one;
use super::positions::{place, range};
use crate::call::{Call, Options, integer, is};
use crate::events::Class;
use crate::fail::{Fail, NO_INDEX, NO_KEY, Outcome, SYNTAX};

/// An end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Left,
    Right,
}

impl End {
    /// The end of a name.
    pub(super) fn of(word: &[u8]) -> Result<End, Fail> {
        match (is(word, "left"), is(word, "right")) {
            (true, _) => Ok(End::Left),
            (_, true) => Ok(End::Right),
            _ => Err(SYNTAX),
        }
    }

    pub(super) fn push(self, list: &mut List, element: &[u8]) {
        match self {
            End::Left => list.push_front(element),
            End::Right => list.push_back(element),
        }
    }

    pub(super) fn pop(self, list: &mut List) -> Option<Word> {
        match self {
            End::Left => list.pop_front(),
            End::Right => list.pop_back(),
        }
    }

    pub(super) fn push_event(self) -> &'static str {
        if self == End::Left { "lpush" } else { "rpush" }
    }

    pub(super) fn pop_event(self) -> &'static str {
        if self == End::Left { "lpop" } else { "rpop" }
    }
}

pub(super) fn lpush(call: &mut Call) -> Outcome {
    push(call, End::Left)
}

pub(super) fn rpush(call: &mut Call) -> Outcome {
    push(call, End::Right)
}

pub(super) fn lpushx(call: &mut Call) -> Outcome {
    push_if_there(call, End::Left)
}

pub(super) fn rpushx(call: &mut Call) -> Outcome {
    push_if_there(call, End::Right)
}

fn push(call: &mut Call, end: End) -> Outcome {
    let (key, elements) = (call.word(1), call.arguments.from(2));
    let list = call.hold.make::<List>(key)?;
    elements.iter().for_each(|element| end.push(list, element));
    let length = list.len();
    call.changed(key, Class::List, end.push_event());
    call.reply.count(length);
    Ok(())
}

fn push_if_there(call: &mut Call, end: End) -> Outcome {
    if call.hold.read::<List>(call.word(1))?.is_none() {
        call.reply.count(0);
        return Ok(());
    }
    push(call, end)
}

pub(super) fn lpop(call: &mut Call) -> Outcome {
    pop(call, End::Left)
}

pub(super) fn rpop(call: &mut Call) -> Outcome {
    pop(call, End::Right)
}

fn pop(call: &mut Call, end: End) -> Outcome {
    let key = call.word(1);
    if call.len() > 3 {
        return Err(Fail::arity(end.pop_event()));
    }
    let count = count_or_one(call, 2)?;
    let popped = take(call, key, end, count.unwrap_or(1))?;
    match (popped, count) {
        (None, None) => call.reply.null(),
        (None, Some(_)) => call.reply.null_array(),
        (Some(elements), None) => call.reply.bulk_or_null(elements.first()),
        (Some(elements), Some(_)) => call.reply.words(&elements),
    }
    Ok(())
}

/// Takes up to so many elements; `None` if there is no list. The key goes with its last element.
pub(super) fn take(
    call: &mut Call,
    key: &[u8],
    end: End,
    count: usize,
) -> Result<Option<Vec<Word>>, Fail> {
    let Some(list) = call.hold.write::<List>(key)? else { return Ok(None) };
    let taken: Vec<Word> = std::iter::from_fn(|| end.pop(list)).take(count).collect();
    if !taken.is_empty() {
        call.changed(key, Class::List, end.pop_event());
        call.remove_if_empty::<List>(key);
    }
    Ok(Some(taken))
}

pub(super) fn llen(call: &mut Call) -> Outcome {
    let length = call.hold.read::<List>(call.word(1))?.map_or(0, List::len);
    call.reply.count(length);
    Ok(())
}

pub(super) fn lrange(call: &mut Call) -> Outcome {
    let (start, end) = (call.integer(2)?, call.integer(3)?);
    let list = call.hold.read::<List>(call.word(1))?;
    let found = list.and_then(|list| Some((list, range(start, end, list.len())?)));
    let Some((list, places)) = found else {
        call.reply.array(0);
        return Ok(());
    };
    call.reply.array(places.len());
    list.range(places).for_each(|element| call.reply.bulk(element));
    Ok(())
}

pub(super) fn lindex(call: &mut Call) -> Outcome {
    let index = call.integer(2);
    let list = call.hold.read::<List>(call.word(1))?;
    let Some(list) = list else {
        call.reply.null();
        return Ok(());
    };
    let element = place(index?, list.len()).and_then(|place| list.get(place));
    call.reply.bulk_or_null(element);
    Ok(())
}

pub(super) fn lset(call: &mut Call) -> Outcome {
    let (key, element) = (call.word(1), call.word(3));
    let list = call.hold.write::<List>(key)?.ok_or(NO_KEY)?;
    let place = place(integer(call.arguments.word(2))?, list.len());
    if !place.is_some_and(|place| list.set(place, element)) {
        return Err(NO_INDEX);
    }
    call.changed(key, Class::List, "lset");
    call.reply.ok();
    Ok(())
}

pub(super) fn ltrim(call: &mut Call) -> Outcome {
    let (key, start, end) = (call.word(1), call.integer(2)?, call.integer(3)?);
    if let Some(list) = call.hold.write::<List>(key)? {
        let before = list.len();
        let kept = range(start, end, before).unwrap_or(0..0);
        let is_cut = kept.len() < before;
        let cut = list.keep_only(kept);
        cut.into_iter().for_each(|cut| call.hold.discard(cut));
        if is_cut {
            call.changed(key, Class::List, "ltrim");
            call.remove_if_empty::<List>(key);
        } else {
            call.hold.rewritten(key);
            call.announce(key, Class::List, "ltrim");
        }
    }
    call.reply.ok();
    Ok(())
}

pub(super) fn linsert(call: &mut Call) -> Outcome {
    let (key, side, pivot) = (call.word(1), call.word(2), call.word(3));
    let is_after = match (is(side, "before"), is(side, "after")) {
        (true, _) => false,
        (_, true) => true,
        _ => return Err(SYNTAX),
    };
    let Some(list) = call.hold.write::<List>(key)? else {
        call.reply.integer(0);
        return Ok(());
    };
    let Some(place) = list.iter().position(|element| element == pivot) else {
        call.reply.integer(-1);
        return Ok(());
    };
    list.insert(place + usize::from(is_after), call.arguments.word(4));
    let length = list.len();
    call.changed(key, Class::List, "linsert");
    call.reply.count(length);
    Ok(())
}

pub(super) fn lrem(call: &mut Call) -> Outcome {
    let (key, count, wanted) = (call.word(1), call.integer(2)?, call.word(3));
    let Some(list) = call.hold.write::<List>(key)? else {
        call.reply.count(0);
        return Ok(());
    };
    let most = match count {
        0 => usize::MAX,
        count => usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX),
    };
    let removed = list.remove_equal(wanted, most, count < 0);
    if removed > 0 {
        call.changed(key, Class::List, "lrem");
        call.remove_if_empty::<List>(key);
    }
    call.reply.count(removed);
    Ok(())
}

/// The options of `LPOS`.
struct Search {
    rank: i64,
    count: Option<usize>,
    compared_max: usize,
}

fn search(call: &Call) -> Result<Search, Fail> {
    let mut search = Search { rank: 1, count: None, compared_max: usize::MAX };
    let mut options = Options::from(call.arguments, 3);
    while let Some(word) = options.next() {
        let value = options.value()?;
        let natural = |error: &'static str| {
            let number = parse_integer(value).and_then(|number| usize::try_from(number).ok());
            number.ok_or(Fail::fixed(error))
        };
        if is(word, "rank") {
            let number = integer(value)?;
            if number == 0 {
                return Err(Fail::fixed(
                    "ERR RANK can't be zero: use 1 to start from the first match, 2 from the \
                     second ... or use negative to start from the end of the list",
                ));
            }
            if number == i64::MIN {
                return Err(Fail::fixed(
                    "ERR value is out of range, value must between -9223372036854775807 \
                     and 9223372036854775807",
                ));
            }
            search.rank = number;
        } else if is(word, "count") {
            search.count = Some(natural("ERR COUNT can't be negative")?);
        } else if is(word, "maxlen") {
            let most = natural("ERR MAXLEN can't be negative")?;
            search.compared_max = if most == 0 { usize::MAX } else { most };
        } else {
            return Err(SYNTAX);
        }
    }
    Ok(search)
}

pub(super) fn lpos(call: &mut Call) -> Outcome {
    let wanted = call.word(2);
    let Search { rank, count, compared_max } = search(call)?;
    let list = call.hold.read::<List>(call.word(1))?;
    let skipped = usize::try_from(rank.unsigned_abs() - 1).unwrap_or(usize::MAX);
    let most = match count {
        None => 1,
        Some(0) => usize::MAX,
        Some(count) => count,
    };
    let is_it = |(_, element): &(usize, &[u8])| *element == wanted;
    let found: Vec<usize> = match list {
        None => Vec::new(),
        Some(list) if rank > 0 => {
            let elements = list.iter().enumerate().take(compared_max).filter(is_it);
            elements.skip(skipped).take(most).map(|(place, _)| place).collect()
        }
        Some(list) => {
            let elements = (0..list.len()).rev().zip(list.iter().rev());
            let elements = elements.take(compared_max).filter(is_it);
            elements.skip(skipped).take(most).map(|(place, _)| place).collect()
        }
    };
    match (count, found.first()) {
        (None, None) => call.reply.null(),
        (None, Some(place)) => call.reply.count(*place),
        (Some(_), _) => {
            call.reply.array(found.len());
            found.iter().for_each(|place| call.reply.count(*place));
        }
    }
    Ok(())
}
