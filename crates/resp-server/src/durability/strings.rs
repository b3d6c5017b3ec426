//! Records of the log that give one key a string, as most records do: their keys are looked up
//! together.

use std::borrow::Cow;

use zodium_keyspace::{KEYS_AHEAD_MAX, Keyspace, Place, Reader};
use zodium_rdb::Input;

use super::items::{Change, OneKey};

/// Such records of one thread, which it has taken and not yet executed.
pub(super) struct Strings<'a> {
    keyspace: &'a Keyspace,
    reader: Reader,
    waiting: Vec<NewString<'a>>,
}

struct NewString<'a> {
    place: Place,
    now: u64,
    database: usize,
    key: &'a [u8],
    value: Cow<'a, [u8]>,
    expires_at: Option<u64>,
}

impl<'a> Strings<'a> {
    pub(super) fn new(keyspace: &'a Keyspace) -> Strings<'a> {
        let waiting = Vec::with_capacity(KEYS_AHEAD_MAX);
        Strings { keyspace, reader: keyspace.reader(), waiting }
    }

    /// Takes a record; `false` if it is none of these.
    pub(super) fn take(&mut self, place: Place, one: OneKey<'a>) -> bool {
        let OneKey { now, database, key, change } = one;
        let (value, expires_at) = match change {
            Change::String(value) => (Cow::Borrowed(value), None),
            Change::SavedString { expires_at, string } => {
                let mut string = string;
                let Ok(value) = Input::new(&mut string).string() else { return false };
                (Cow::Owned(value), expires_at)
            }
            Change::Other => return false,
        };
        self.waiting.push(NewString { place, now, database, key, value, expires_at });
        if self.waiting.len() == KEYS_AHEAD_MAX {
            self.put();
        }
        true
    }

    /// Executes what was taken. Must be called before another record of this thread is executed,
    /// and at the end.
    pub(super) fn put(&mut self) {
        let keyspace = self.keyspace;
        if let [NewString { database, .. }, _, ..] = self.waiting[..]
            && keyspace.pays_to_look_ahead()
        {
            // Mostly all are of the same database. Others are looked up for nothing.
            let places = self.waiting.iter().map(|new| new.place);
            keyspace.look_ahead(&self.reader, database, places);
        }
        for NewString { place, now, database, key, value, expires_at } in self.waiting.drain(..) {
            // That a key has gone at that time makes no difference: its old value goes anyway.
            keyspace.lock_key(place, database, key, now).put_string(&value, expires_at);
        }
    }
}
