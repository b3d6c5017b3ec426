//! A command on its way: its arguments, what it may touch, and its answer.

use zodium_keyspace::{Hold, Kind, Removed, Score, Stripes};
use zodium_resp::{Arguments, OwnedRequest, parse_double, parse_integer};
use zodium_types::Tid;

use crate::durability::Instead;
use crate::events::Class;
use crate::fail::{Fail, NO_FLOAT, NO_INTEGER, SYNTAX};
use crate::reply::Reply;
use crate::{Client, Server};

/// A command that is being executed.
pub(crate) struct Call<'a, 'k> {
    pub(crate) server: &'a Server,
    /// The client; `None` when a command that waited is tried again, by whichever worker.
    pub(crate) client: Option<&'a Client>,
    /// The stripes of the command's keys.
    pub(crate) hold: &'a mut Hold<'k>,
    pub(crate) arguments: Arguments<'a>,
    pub(crate) reply: Reply<'a>,
    pub(crate) blocking: Blocking,
    /// The request that waits instead of this one, whose arguments would mean something else later.
    pub(crate) waits_as: Option<OwnedRequest>,
    /// What the log gets of it, if that is not the command itself.
    pub(crate) instead: Instead,
    /// The commit that it takes effect with, if it was parked.
    pub(crate) commit: Option<ItsCommit>,
}

/// The transaction of a storage that a command takes effect with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ItsCommit {
    pub(crate) storage: usize,
    pub(crate) tid: Tid,
    /// Its number among those that were voted; `None` if it was committed before the server was
    /// started. Others have followed then.
    pub(crate) number: Option<u64>,
}

/// What a command does that finds nothing to take, and how that ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Blocking {
    /// It answers null: within a transaction.
    Never,
    /// It may wait, or waits already and is tried again.
    May,
    /// It is to wait for so many seconds, 0 for ever.
    Waits { seconds: f64 },
}

impl<'a, 'k> Call<'a, 'k> {
    /// A command that neither waits nor takes effect with a commit.
    pub(crate) fn new(
        (server, client): (&'a Server, Option<&'a Client>),
        hold: &'a mut Hold<'k>,
        arguments: Arguments<'a>,
        reply: Reply<'a>,
    ) -> Call<'a, 'k> {
        let (blocking, instead) = (Blocking::Never, Instead::default());
        let (waits_as, commit) = (None, None);
        Call { server, client, hold, arguments, reply, blocking, waits_as, instead, commit }
    }

    /// An argument; 0 is the command's name.
    pub(crate) fn word(&self, number: usize) -> &'a [u8] {
        self.arguments.word(number)
    }

    /// Number of arguments, the name included.
    pub(crate) fn len(&self) -> usize {
        self.arguments.len()
    }

    pub(crate) fn integer(&self, number: usize) -> Result<i64, Fail> {
        integer(self.word(number))
    }

    pub(crate) fn client(&self) -> Result<&'a Client, Fail> {
        self.client.ok_or(Fail::fixed("ERR the command needs a connection"))
    }

    /// Notes a change of a key, and announces it.
    pub(crate) fn changed(&mut self, key: &[u8], class: Class, event: &str) {
        self.hold.changed(key);
        self.tell_changes();
        for Removed { database, key } in self.hold.news.new.take() {
            let Server { publishing, clients, .. } = self.server;
            publishing.announce(clients, (database, &key), Class::New, "new");
        }
        self.announce(key, class, event);
    }

    /// Notes a change of the groups of a stream, and announces it.
    pub(crate) fn changed_groups(&mut self, key: &[u8], event: &str) {
        self.hold.changed_beside(key);
        self.announce(key, Class::Stream, event);
    }

    /// Announces an event of a key.
    pub(crate) fn announce(&mut self, key: &[u8], class: Class, event: &str) {
        self.tell_changes();
        let Server { publishing, clients, .. } = self.server;
        publishing.announce(clients, (self.hold.database, key), class, event);
    }

    /// Tells others of what the hold has changed until now, before a message goes to them: clients
    /// with caches that may read a key then, and listeners of keys whose time was past. A script
    /// locks all stripes before.
    fn tell_changes(&mut self) {
        if self.server.publishing.events().is_any() {
            // They are not to see another key as it was before the script.
            self.server.widen(self.hold, Stripes::ALL);
            self.invalidate_readers();
        }
        self.server.tell_expired(self.hold.news.announce_expired());
    }

    /// Tells clients with caches of what the hold has changed until now.
    pub(crate) fn invalidate_readers(&mut self) {
        self.server.tracking.invalidate_readers(&self.server.clients, self.hold);
    }

    /// Removes a key, and announces that; whether it was there.
    pub(crate) fn remove(&mut self, key: &[u8]) -> bool {
        let was_there = self.hold.remove(key);
        if was_there {
            self.changed(key, Class::Generic, "del");
        }
        was_there
    }

    /// Removes a key whose collection has no elements any more, and announces that.
    pub(crate) fn remove_if_empty<T: Kind>(&mut self, key: &[u8]) {
        if self.hold.remove_if_empty::<T>(key) {
            self.announce(key, Class::Generic, "del");
        }
    }

    /// Waits for something to take, or answers null. `is_array` is the kind of that null; that of a
    /// command that has waited in vain is always an array's.
    pub(crate) fn wait(&mut self, seconds: f64, is_array: bool) {
        match (self.blocking, is_array) {
            (Blocking::Never, true) => self.reply.null_array(),
            (Blocking::Never, false) => self.reply.null(),
            _ => self.blocking = Blocking::Waits { seconds },
        }
    }
}

/// An integer among the arguments.
pub(crate) fn integer(word: &[u8]) -> Result<i64, Fail> {
    parse_integer(word).ok_or(NO_INTEGER)
}

/// A double among the arguments.
pub(crate) fn double(word: &[u8]) -> Result<Score, Fail> {
    parse_double(word).ok_or(NO_FLOAT)
}

/// A count of at least one.
pub(crate) fn positive(word: &[u8], otherwise: Fail) -> Result<usize, Fail> {
    let number = parse_integer(word).filter(|number| *number > 0);
    number.and_then(|number| usize::try_from(number).ok()).ok_or(otherwise)
}

/// Whether a word is this name, in any case.
pub(crate) fn is(word: &[u8], name: &str) -> bool {
    word.eq_ignore_ascii_case(name.as_bytes())
}

/// Goes through the options at the end of a command.
pub(crate) struct Options<'a> {
    arguments: Arguments<'a>,
    at: usize,
}

impl<'a> Options<'a> {
    /// The options from an argument on.
    pub(crate) fn from(arguments: Arguments<'a>, at: usize) -> Options<'a> {
        Options { arguments, at }
    }

    /// The next word, if there is one.
    pub(crate) fn next(&mut self) -> Option<&'a [u8]> {
        (self.at < self.arguments.len()).then(|| {
            self.at += 1;
            self.arguments.word(self.at - 1)
        })
    }

    /// The next word, which stays the next one.
    pub(crate) fn peek(&self) -> Option<&'a [u8]> {
        (self.at < self.arguments.len()).then(|| self.arguments.word(self.at))
    }

    /// The word that must follow.
    pub(crate) fn value(&mut self) -> Result<&'a [u8], Fail> {
        self.next().ok_or(SYNTAX)
    }

    /// Number of words that are left.
    pub(crate) fn left(&self) -> usize {
        self.arguments.len() - self.at
    }
}
