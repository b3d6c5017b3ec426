//! Locking the stripes of a command's keys, and what follows when they are unlocked.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use zodium_keyspace::{Hold, Keyspace, News, Reader, Removed, Stripes};
use zodium_resp::Arguments;

use crate::client::{Client, Watch};
use crate::commands::{Command, Keys};
use crate::events::Class;
use crate::fail::Fail;
use crate::memory::drop_elsewhere;
use crate::server::Server;
use crate::waiting::serve;

/// How long a lock is waited for at least before a script is looked at again.
const WAIT_MIN: Duration = Duration::from_millis(1);

impl Server {
    /// Locks stripes, and waits for those that others hold. If a script has held them for longer
    /// than `busy-reply-threshold`, it answers `BUSY`. All happens at `now`, in milliseconds since
    /// 1970, or when it has waited: a time to live counts from the command that sets it.
    pub(crate) fn lock(&self, stripes: Stripes, now: u64) -> Result<Hold<'_>, Fail> {
        self.lock_by(|until| self.keyspace.try_lock(stripes, now, until))
    }

    /// As [`Server::lock`], for a script: these are the stripes of the keys that it names. It may
    /// come to others ([`Server::widen`]).
    pub(crate) fn lock_first(&self, named: Stripes, now: u64) -> Result<Hold<'_>, Fail> {
        let mut hold = self.lock_by(|until| self.keyspace.try_lock_first(named, now, until))?;
        self.widen_if_tied(&mut hold);
        Ok(hold)
    }

    /// Locks further stripes for a script.
    pub(crate) fn widen(&self, hold: &mut Hold, wanted: Stripes) {
        if self.widen_noting(hold, wanted) {
            self.widen_if_tied(hold);
        }
    }

    /// Locks all stripes if keys are held that a commit may remove: a script is not to see some of
    /// the keys of a commit go.
    fn widen_if_tied(&self, hold: &mut Hold) {
        if self.beside.is_attached() && hold.has_ties() {
            self.widen_noting(hold, Stripes::ALL);
        }
    }

    /// Locks further stripes; whether there were any. Clients that wait for their keys, or track
    /// them, may have come after the hold began: it notes what it changes for these too.
    fn widen_noting(&self, hold: &mut Hold, wanted: Stripes) -> bool {
        let is_wider = hold.widen(wanted);
        if is_wider {
            self.note_asked(&mut hold.news);
        }
        is_wider
    }

    fn lock_by<'k>(
        &'k self,
        try_lock: impl Fn(Option<Instant>) -> Option<Hold<'k>>,
    ) -> Result<Hold<'k>, Fail> {
        let mut until = None;
        loop {
            if let Some(mut hold) = try_lock(until) {
                if until.is_some() {
                    hold.begin_at(zodium_keyspace::now());
                }
                return Ok(self.noting(hold));
            }
            until =
                Some(Instant::now() + self.scripts.running.patience(&self.settings)?.max(WAIT_MIN));
        }
    }

    /// Locks stripes for what has to happen, and waits for scripts as long as they run.
    pub(crate) fn lock_however_long(&self, stripes: Stripes) -> Hold<'_> {
        let mut hold = self.keyspace.lock(stripes, 0);
        hold.begin_at(zodium_keyspace::now());
        self.noting(hold)
    }

    /// Locks stripes for a command that changes nothing: others may read them meanwhile.
    pub(crate) fn lock_to_read<'a>(
        &'a self,
        reader: &'a Reader,
        stripes: Stripes,
        now: u64,
    ) -> Result<Hold<'a>, Fail> {
        match self.keyspace.try_read(reader, stripes, now) {
            Some(hold) => Ok(self.noting(hold)),
            None => self.lock(stripes, now),
        }
    }

    /// The same hold, which notes what clients wait for, and what the log gets.
    pub(crate) fn noting<'k>(&self, mut hold: Hold<'k>) -> Hold<'k> {
        self.note_asked(&mut hold.news);
        self.log.follow(&mut hold);
        hold
    }

    /// Has a hold note what others ask for now: keys that clients wait for, new keys, and changes
    /// of keys. Called under the locks of stripes: clients that ask for their keys came before.
    fn note_asked(&self, news: &mut News) {
        news.filled.is_noted |= self.waiting.is_any();
        news.new.is_noted |= self.publishing.events().has_new();
        news.altered.is_noted |= self.tracking.is_any();
    }

    /// The same hold, which notes what clients are told of, and what the log gets.
    pub(crate) fn journaling<'k>(&self, mut hold: Hold<'k>) -> Hold<'k> {
        hold.news.altered.is_noted = self.tracking.is_any();
        self.log.follow(&mut hold);
        hold
    }

    /// Ends a hold: what it has done is logged and announced, and clients that wait are served.
    /// Returns the position of the log that its answer waits for; 0 for none.
    pub(crate) fn settle(&self, mut hold: Hold) -> u64 {
        let position = self.log.append(&mut hold);
        self.tracking.invalidate(&self.clients, &mut hold);
        let created = self.unlock(hold);
        if !created.is_empty() {
            serve(self, created);
        }
        position
    }

    /// Unlocks a hold whose changes are logged; returns the keys that clients may wait for.
    pub(crate) fn unlock(&self, mut hold: Hold) -> Vec<Removed> {
        let (created, expired) = (hold.news.filled.take(), hold.news.take_expired());
        let (changes, garbage) = (hold.changes, hold.take_garbage());
        drop(hold);
        drop_elsewhere(garbage);
        if changes > 0 {
            self.statistics.changes.fetch_add(changes, Ordering::Relaxed);
        }
        self.tell_expired(&expired);
        created
    }

    /// Tells of keys that were removed because their time was past: clients with caches first, as
    /// those that get the events may read the keys then.
    pub(crate) fn tell_expired(&self, expired: &[Removed]) {
        if expired.is_empty() {
            return;
        }
        self.tracking.invalidate_removed(&self.clients, expired);
        let count = u64::try_from(expired.len()).unwrap_or(u64::MAX);
        self.statistics.expired.fetch_add(count, Ordering::Relaxed);
        for Removed { database, key } in expired {
            self.publishing.announce(&self.clients, (*database, key), Class::Expired, "expired");
        }
    }
}

/// The stripes that a command locks.
pub(crate) fn stripes_of(
    keyspace: &Keyspace,
    client: &Client,
    command: &Command,
    arguments: Arguments,
) -> Stripes {
    match command.keys {
        Keys::Watched => watched_stripes(keyspace, client),
        _ => command.stripes(keyspace, arguments),
    }
}

/// The stripes of the keys that a client watches.
pub(crate) fn watched_stripes(keyspace: &Keyspace, client: &Client) -> Stripes {
    match &*client.watch.borrow() {
        Some(watch) => watch.stripes(keyspace),
        None => Stripes::NONE,
    }
}

impl Watch {
    /// The stripes of its keys.
    pub(crate) fn stripes(&self, keyspace: &Keyspace) -> Stripes {
        keyspace.stripes(self.keys.iter().map(|(_, key)| &**key))
    }
}
