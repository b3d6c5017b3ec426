//! Databases: strings, and commands for keys of any type.

use std::collections::BTreeSet;

use super::content::{Content, Kept, Place, Type, WRONG_TYPE};
use super::{Caller, Failure, Model};
use crate::resp::reply::Reply;
use crate::resp::request::{number_of, text_of};

/// Number of databases that clients use.
pub(super) const DATABASES: usize = 3;

const NO_INTEGER: Failure = "ERR value is not an integer or out of range";

impl Model {
    /// Executes a command for strings, or for keys of any type; `None` if it is another one.
    pub(super) fn run_of_keys(
        &mut self,
        caller: Caller,
        request: &[Vec<u8>],
    ) -> Result<Option<Reply>, Failure> {
        let place = |word: usize| (caller.database, request[word].clone());
        Ok(Some(match &*request[0] {
            b"SET" => self.set(caller, request),
            b"MSET" => {
                for word in [1, 3] {
                    let value = Content::String(request[word + 1].clone());
                    self.store(caller, place(word), Kept::new(value));
                }
                Reply::ok()
            }
            b"GET" => Reply::bulk_or_null(self.string(&place(1))?),
            b"MGET" => {
                let found = [1, 2].map(|word| self.string(&place(word)).ok().flatten());
                Reply::Array(found.into_iter().map(Reply::bulk_or_null).collect())
            }
            b"INCR" => {
                let old = self.string(&place(1))?;
                let old = old.map_or(Some(0), |text| integer(&text)).ok_or(NO_INTEGER)?;
                let sum = old.checked_add(1).ok_or("ERR increment or decrement would overflow")?;
                self.replace(caller, place(1), sum.to_string().into(), "incrby");
                Reply::Number(sum)
            }
            b"APPEND" => {
                let mut text = self.string(&place(1))?.unwrap_or_default();
                text.extend(&request[2]);
                let length = text.len();
                self.replace(caller, place(1), text, "append");
                Reply::count(length)
            }
            b"TYPE" => {
                let kind = self.get(&place(1)).map(|kept| kept.content.kind());
                Reply::Simple(kind.map_or("none", Type::name))
            }
            b"DEL" => {
                let deleted = [1, 2].map(|word| self.delete(caller, &place(word)));
                Reply::count(deleted.iter().filter(|was_there| **was_there).count())
            }
            b"EXISTS" => {
                let there = [1, 2].map(|word| self.get(&place(word)).is_some());
                Reply::count(there.iter().filter(|is_there| **is_there).count())
            }
            b"RENAME" => self.rename(caller, &place(1), place(2))?,
            b"MOVE" => self.move_key(caller, &place(1), number_of(&request[2]) as usize)?,
            b"PEXPIRE" => self.expire(caller, place(1), number_of(&request[2])),
            b"PERSIST" => self.persist(caller, place(1)),
            b"PTTL" => {
                let now = self.now;
                let left = |at: u64| i64::try_from(at - now).unwrap_or(i64::MAX);
                let kept = self.get(&place(1));
                Reply::Number(kept.map_or(-2, |kept| kept.expires_at.map_or(-1, left)))
            }
            b"FLUSHALL" => self.flush(&(0..DATABASES).collect::<Vec<_>>()),
            b"FLUSHDB" => self.flush(&[caller.database]),
            b"SWAPDB" => {
                let [one, other] = [1, 2].map(|word| number_of(&request[word]) as usize);
                self.swap(one, other)
            }
            _ => return Ok(None),
        }))
    }

    /// What there is at a place, unless its time is past.
    pub(super) fn get(&mut self, place: &Place) -> Option<&mut Kept> {
        let now = self.now;
        if self.keys.get(place)?.expires_at.is_some_and(|at| at <= now) {
            self.keys.remove(place);
            self.touch(place);
        }
        self.keys.get_mut(place)
    }

    /// The content of a type.
    pub(super) fn of_type(
        &mut self,
        place: &Place,
        kind: Type,
    ) -> Result<Option<&mut Content>, Failure> {
        match self.get(place) {
            None => Ok(None),
            Some(kept) if kept.content.kind() == kind => Ok(Some(&mut kept.content)),
            Some(_) => Err(WRONG_TYPE),
        }
    }

    fn string(&mut self, place: &Place) -> Result<Option<Vec<u8>>, Failure> {
        Ok(match self.of_type(place, Type::String)? {
            Some(Content::String(text)) => Some(text.clone()),
            _ => None,
        })
    }

    /// As [`Model::of_type`]; what is not there comes into being.
    pub(super) fn make(&mut self, place: &Place, kind: Type) -> Result<&mut Content, Failure> {
        if self.get(place).is_none() {
            self.put(place.clone(), Kept::new(Content::new(kind)));
        }
        self.of_type(place, kind)?.ok_or(WRONG_TYPE)
    }

    fn put(&mut self, place: Place, kept: Kept) {
        if kept.content.kind() != Type::String {
            self.filled.push_back(place.clone());
        }
        self.keys.insert(place, kept);
    }

    /// Sets a key to what it has had nothing of.
    fn store(&mut self, caller: Caller, place: Place, kept: Kept) {
        self.put(place.clone(), kept);
        self.changed(caller, &place, "set");
    }

    fn set(&mut self, caller: Caller, request: &[Vec<u8>]) -> Reply {
        let place = (caller.database, request[1].clone());
        let mut kept = Kept::new(Content::String(request[2].clone()));
        match request.get(3).map(|word| &word[..]) {
            Some(b"PX") => kept.expires_at = Some(self.now + number_of(&request[4])),
            Some(b"TIE") => {
                let of_hexadecimal = |word: &[u8]| u64::from_str_radix(&text_of(word), 16);
                let oid = of_hexadecimal(&request[4]).unwrap_or(0);
                let view = of_hexadecimal(&request[6]).unwrap_or(0);
                let mut later = self.commits.iter().filter(|(tid, _)| *tid > view);
                if later.any(|(_, oids)| oids.contains(&oid)) {
                    self.happened.push("tie refused");
                    return Reply::Null;
                }
                self.happened.push("tie");
                kept.ties = BTreeSet::from([oid]);
            }
            _ => {}
        }
        let is_timed = kept.expires_at.is_some();
        self.store(caller, place.clone(), kept);
        if is_timed {
            self.notify(caller, &place, "expire");
        }
        Reply::ok()
    }

    /// Gives a key another string. Its time and its ties stay.
    fn replace(&mut self, caller: Caller, place: Place, text: Vec<u8>, event: &'static str) {
        match self.get(&place) {
            Some(kept) => kept.content = Content::String(text),
            None => self.put(place.clone(), Kept::new(Content::String(text))),
        }
        self.changed(caller, &place, event);
    }

    pub(super) fn delete(&mut self, caller: Caller, place: &Place) -> bool {
        let was_there = self.get(place).is_some();
        if was_there {
            self.keys.remove(place);
            self.changed(caller, place, "del");
        }
        was_there
    }

    /// Removes a key that has no elements any more.
    pub(super) fn drop_if_void(&mut self, caller: Caller, place: &Place) {
        if self.keys.get(place).is_some_and(|kept| kept.content.is_void()) {
            self.keys.remove(place);
            self.notify(caller, place, "del");
        }
    }

    fn rename(&mut self, caller: Caller, source: &Place, target: Place) -> Result<Reply, Failure> {
        let kept = self.get(source).cloned().ok_or("ERR no such key")?;
        if *source != target {
            self.keys.remove(source);
            self.put(target.clone(), kept);
            self.changed(caller, source, "rename_from");
            self.changed(caller, &target, "rename_to");
        }
        Ok(Reply::ok())
    }

    fn move_key(
        &mut self,
        caller: Caller,
        source: &Place,
        database: usize,
    ) -> Result<Reply, Failure> {
        if source.0 == database {
            return Err("ERR source and destination objects are the same");
        }
        let target = (database, source.1.clone());
        let is_taken = self.get(&target).is_some();
        let Some(kept) = self.get(source).cloned().filter(|_| !is_taken) else {
            return Ok(Reply::Number(0));
        };
        self.keys.remove(source);
        self.changed(caller, source, "move_from");
        self.put(target.clone(), kept);
        self.changed(caller, &target, "move_to");
        Ok(Reply::Number(1))
    }

    fn expire(&mut self, caller: Caller, place: Place, time: u64) -> Reply {
        let at = self.now + time;
        let Some(kept) = self.get(&place) else { return Reply::Number(0) };
        kept.expires_at = Some(at);
        match time {
            0 => {
                kept.expires_at = None;
                self.delete(caller, &place);
            }
            _ => self.changed(caller, &place, "expire"),
        }
        Reply::Number(1)
    }

    fn persist(&mut self, caller: Caller, place: Place) -> Reply {
        let had_time = self.get(&place).is_some_and(|kept| kept.expires_at.take().is_some());
        if had_time {
            self.changed(caller, &place, "persist");
        }
        Reply::Number(i64::from(had_time))
    }

    fn flush(&mut self, databases: &[usize]) -> Reply {
        let is_in = |place: &&Place| databases.contains(&place.0);
        let gone: Vec<_> = self.keys.keys().filter(is_in).cloned().collect();
        for place in gone {
            self.keys.remove(&place);
            self.touch(&place);
        }
        self.is_all_altered = true;
        Reply::ok()
    }

    fn swap(&mut self, one: usize, other: usize) -> Reply {
        if one == other {
            return Reply::ok();
        }
        let in_either = self.keys.keys().filter(|(database, _)| [one, other].contains(database));
        let names: BTreeSet<_> = in_either.map(|(_, key)| key.clone()).collect();
        for key in names {
            let (first, second) = ((one, key.clone()), (other, key));
            self.touch(&first);
            self.touch(&second);
            let (of_first, of_second) = (self.keys.remove(&first), self.keys.remove(&second));
            self.keys.extend(of_first.map(|kept| (second, kept)));
            self.keys.extend(of_second.map(|kept| (first, kept)));
        }
        self.is_all_altered = true;
        for database in [one, other] {
            let waited_for = self.keys_waited_for(database);
            self.filled.extend(waited_for);
        }
        Reply::ok()
    }

    /// A transaction of the storage has written objects.
    pub(in crate::resp) fn commit(&mut self, tid: u64, oids: &[u64]) {
        self.commits.push((tid, oids.to_vec()));
        let is_tied = |kept: &Kept| oids.iter().any(|oid| kept.ties.contains(oid));
        let tied = self.keys.iter().filter(|(_, kept)| is_tied(kept));
        let gone: Vec<_> = tied.map(|(place, _)| place.clone()).collect();
        for place in gone {
            self.happened.push("cut");
            self.keys.remove(&place);
            self.touch(&place);
        }
        let words = [tid].iter().chain(oids).map(|id| format!("{id:016x}")).collect::<Vec<_>>();
        let channel = [b"zodb:", crate::resp::storage::NAME.as_bytes()].concat();
        self.publish(&channel, words.join(" ").as_bytes());
    }
}

/// A number as a command takes it.
fn integer(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    text.parse().ok().filter(|number: &i64| number.to_string() == text)
}
