//! Lists, sorted sets and streams.

use std::collections::VecDeque;

use super::content::{Content, Entry, Place, Scored, Type};
use super::{Caller, Failure, Model, Outcome};
use crate::resp::reply::Reply;
use crate::resp::request::{number_of, text_of};

/// What a command takes that may wait, or nothing.
type Taken = Result<Option<Reply>, Failure>;

impl Model {
    /// Executes a command for lists, sorted sets or streams.
    pub(super) fn run_of_collections(
        &mut self,
        caller: Caller,
        request: &[Vec<u8>],
    ) -> Result<Outcome, Failure> {
        let place = |word: usize| (caller.database, request[word].clone());
        let is_left = |word: usize| request[word] == b"LEFT";
        let (source, target) = (place(1), place(2.min(request.len() - 1)));
        let waits = |taken: Option<Reply>, is_array| match taken {
            Some(reply) => Outcome::Answer(reply),
            None => Outcome::Waits { is_array },
        };
        let or_null = |taken: Option<Reply>| taken.unwrap_or(Reply::Null);
        Ok(Outcome::Answer(match &*request[0] {
            b"RPUSH" | b"LPUSH" => self.push(caller, &source, request)?,
            b"LPOP" => or_null(self.pop(caller, &source, true)?.map(Reply::Bulk)),
            b"RPOP" => or_null(self.pop(caller, &source, false)?.map(Reply::Bulk)),
            b"LLEN" => Reply::count(self.list(&source)?.map_or(0, |list| list.len())),
            b"LRANGE" => {
                let list = self.list(&source)?.cloned().unwrap_or_default();
                Reply::Array(list.into_iter().map(Reply::Bulk).collect())
            }
            b"LMOVE" => {
                or_null(self.move_element(caller, &source, target, (is_left(3), is_left(4)))?)
            }
            b"BLMOVE" => {
                let ends = (is_left(3), is_left(4));
                let moved = self.move_element(caller, &source, target, ends)?;
                return Ok(waits(moved, false));
            }
            b"BRPOPLPUSH" => {
                let moved = self.move_element(caller, &source, target, (false, true))?;
                return Ok(waits(moved, false));
            }
            name @ (b"BLPOP" | b"BRPOP") => {
                let taken = self.pop_first(caller, request, name == b"BLPOP")?;
                return Ok(waits(taken, true));
            }
            b"BZPOPMIN" => return Ok(waits(self.pop_lowest_of(caller, request)?, true)),
            b"XREAD" => {
                let found = self.read(caller, request)?;
                if request[1] != b"BLOCK" {
                    return Ok(Outcome::Answer(found.unwrap_or(Reply::NullArray)));
                }
                return Ok(waits(found, true));
            }
            b"ZADD" => self.add(caller, &source, request)?,
            b"ZCARD" => Reply::count(self.sorted_set(&source)?.map_or(0, |set| set.len())),
            b"ZRANGE" => {
                let set = self.sorted_set(&source)?.cloned().unwrap_or_default();
                Reply::Array(set.into_iter().map(|(_, member)| Reply::Bulk(member)).collect())
            }
            b"ZPOPMIN" => {
                let lowest = self.pop_lowest(caller, &source)?;
                let pair = |(score, member)| vec![Reply::Bulk(member), Reply::Double(score)];
                Reply::Array(lowest.map(pair).unwrap_or_default())
            }
            b"XADD" => self.append_entry(caller, &source, request)?,
            b"XLEN" => Reply::count(self.entries(&source)?.map_or(0, |entries| entries.len())),
            name => unreachable!("{} is no command of the model", text_of(name)),
        }))
    }

    fn list(&mut self, place: &Place) -> Result<Option<&mut VecDeque<Vec<u8>>>, Failure> {
        Ok(match self.of_type(place, Type::List)? {
            Some(Content::List(list)) => Some(list),
            _ => None,
        })
    }

    fn sorted_set(&mut self, place: &Place) -> Result<Option<&mut Scored>, Failure> {
        Ok(match self.of_type(place, Type::SortedSet)? {
            Some(Content::SortedSet(set)) => Some(set),
            _ => None,
        })
    }

    fn entries(&mut self, place: &Place) -> Result<Option<&mut Vec<Entry>>, Failure> {
        Ok(match self.of_type(place, Type::Stream)? {
            Some(Content::Stream(entries)) => Some(entries),
            _ => None,
        })
    }

    fn push(
        &mut self,
        caller: Caller,
        place: &Place,
        request: &[Vec<u8>],
    ) -> Result<Reply, Failure> {
        let (is_left, mut length) = (request[0] == b"LPUSH", 0);
        if let Content::List(list) = self.make(place, Type::List)? {
            for element in &request[2..] {
                add_to(list, is_left, element.clone());
            }
            length = list.len();
        }
        self.changed(caller, place, if is_left { "lpush" } else { "rpush" });
        Ok(Reply::count(length))
    }

    fn pop(
        &mut self,
        caller: Caller,
        place: &Place,
        is_left: bool,
    ) -> Result<Option<Vec<u8>>, Failure> {
        let Some(list) = self.list(place)? else { return Ok(None) };
        let element = take_from(list, is_left);
        self.changed(caller, place, if is_left { "lpop" } else { "rpop" });
        self.drop_if_void(caller, place);
        Ok(element)
    }

    /// Pops an element of the first list that there is.
    fn pop_first(&mut self, caller: Caller, request: &[Vec<u8>], is_left: bool) -> Taken {
        for key in &request[1..request.len() - 1] {
            if let Some(element) = self.pop(caller, &(caller.database, key.clone()), is_left)? {
                return Ok(Some(Reply::Array(vec![Reply::bulk(key), Reply::Bulk(element)])));
            }
        }
        Ok(None)
    }

    fn move_element(
        &mut self,
        caller: Caller,
        source: &Place,
        target: Place,
        (from_left, to_left): (bool, bool),
    ) -> Taken {
        if self.list(source)?.is_none() {
            return Ok(None);
        }
        self.list(&target)?;
        let Some(list) = self.list(source)? else { return Ok(None) };
        let Some(element) = take_from(list, from_left) else { return Ok(None) };
        if let Content::List(list) = self.make(&target, Type::List)? {
            add_to(list, to_left, element.clone());
        }
        self.changed(caller, &target, if to_left { "lpush" } else { "rpush" });
        let event = if from_left { "lpop" } else { "rpop" };
        match *source == target {
            true => self.notify(caller, source, event),
            false => self.changed(caller, source, event),
        }
        self.drop_if_void(caller, source);
        Ok(Some(Reply::Bulk(element)))
    }

    fn add(
        &mut self,
        caller: Caller,
        place: &Place,
        request: &[Vec<u8>],
    ) -> Result<Reply, Failure> {
        let (score, member) = (number_of(&request[2]) as i64, request[3].clone());
        let Content::SortedSet(set) = self.make(place, Type::SortedSet)? else {
            return Ok(Reply::None);
        };
        let old = set.iter().find(|(_, other)| *other == member).cloned();
        if old.as_ref().is_some_and(|(old, _)| *old == score) {
            return Ok(Reply::Number(0));
        }
        set.retain(|(_, other)| *other != member);
        set.insert((score, member));
        self.changed(caller, place, "zadd");
        Ok(Reply::Number(i64::from(old.is_none())))
    }

    fn pop_lowest(
        &mut self,
        caller: Caller,
        place: &Place,
    ) -> Result<Option<(i64, Vec<u8>)>, Failure> {
        let Some(set) = self.sorted_set(place)? else { return Ok(None) };
        let lowest = set.pop_first();
        self.changed(caller, place, "zpopmin");
        self.drop_if_void(caller, place);
        Ok(lowest)
    }

    fn pop_lowest_of(&mut self, caller: Caller, request: &[Vec<u8>]) -> Taken {
        for key in &request[1..request.len() - 1] {
            let lowest = self.pop_lowest(caller, &(caller.database, key.clone()))?;
            if let Some((score, member)) = lowest {
                let words = vec![Reply::bulk(key), Reply::Bulk(member), Reply::Double(score)];
                return Ok(Some(Reply::Array(words)));
            }
        }
        Ok(None)
    }

    fn append_entry(
        &mut self,
        caller: Caller,
        place: &Place,
        request: &[Vec<u8>],
    ) -> Result<Reply, Failure> {
        let id = id_of(&request[2]);
        if self.entries(place)?.is_some_and(|there| there.last().is_some_and(|e| e.0 >= id)) {
            return Err(
                "ERR The ID specified in XADD is equal or smaller than the target stream top item",
            );
        }
        if let Content::Stream(entries) = self.make(place, Type::Stream)? {
            entries.push((id, request[3].clone(), request[4].clone()));
        }
        self.filled.push_back(place.clone());
        self.changed(caller, place, "xadd");
        Ok(Reply::bulk(&request[2]))
    }

    /// The entries of streams behind ids.
    fn read(&mut self, caller: Caller, request: &[Vec<u8>]) -> Taken {
        let (keys, ids) = streams_of(request);
        let mut starts = Vec::new();
        for (key, id) in keys.iter().zip(ids) {
            let entries = self.entries(&(caller.database, key.clone()))?;
            let last = entries.and_then(|entries| Some(entries.last()?.0)).unwrap_or(0);
            starts.push(if id == b"$" { last } else { id_of(id) });
        }
        let mut found = Vec::new();
        for (key, start) in keys.iter().zip(starts) {
            let entries = self.entries(&(caller.database, key.clone()))?;
            let behind = entries.into_iter().flatten().filter(|entry| entry.0 > start);
            let shown: Vec<_> = behind
                .map(|(id, field, value)| {
                    let fields = Reply::Array(vec![Reply::bulk(field), Reply::bulk(value)]);
                    Reply::Array(vec![Reply::bulk(format!("{id}-0")), fields])
                })
                .collect();
            if !shown.is_empty() {
                found.push((Reply::bulk(key), Reply::Array(shown)));
            }
        }
        Ok((!found.is_empty()).then_some(Reply::Map(found)))
    }

    /// The request that waits: `$` is the last entry of now.
    pub(super) fn with_ids(&mut self, caller: Caller, request: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mut waiting = request.to_vec();
        if request[0] == b"XREAD" {
            let (keys, _) = streams_of(request);
            let first = request.len() - keys.len();
            for (number, key) in keys.iter().enumerate() {
                let word = &mut waiting[first + number];
                if word == b"$" {
                    let entries = self.entries(&(caller.database, key.clone()));
                    let last = entries.ok().flatten().and_then(|entries| Some(entries.last()?.0));
                    *word = format!("{}-0", last.unwrap_or(0)).into_bytes();
                }
            }
        }
        waiting
    }
}

/// The keys and the ids of `XREAD`.
pub(super) fn streams_of(request: &[Vec<u8>]) -> (&[Vec<u8>], &[Vec<u8>]) {
    let first = request.iter().position(|word| word == b"STREAMS").map_or(0, |place| place + 1);
    let words = &request[first..];
    words.split_at(words.len() / 2)
}

fn id_of(word: &[u8]) -> u64 {
    word.split(|byte| *byte == b'-').next().map_or(0, number_of)
}

fn add_to(list: &mut VecDeque<Vec<u8>>, is_left: bool, element: Vec<u8>) {
    match is_left {
        true => list.push_front(element),
        false => list.push_back(element),
    }
}

fn take_from(list: &mut VecDeque<Vec<u8>>, is_left: bool) -> Option<Vec<u8>> {
    if is_left { list.pop_front() } else { list.pop_back() }
}
