//! Keys that are tied to objects of storages: a commit that writes one of the objects removes them.
//!
//! Key decision: a command that ties a key enters the tie here first and then asks whether its
//! objects have changed since. A commit is remembered by its storage first, and then looks for ties
//! here. So one of the two notices the other, whatever the order.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use zodium_keyspace::{DATABASES, Hold, Keyspace, Removed, Tie, WeakTie, now};
use zodium_types::{Oid, Tid};

use crate::Server;
use crate::call::ItsCommit;
use crate::durability::{are_to_the_same, objects_of, origin};
use crate::storages::Storages;

/// Entries of dropped ties that may stay beside as many of others.
const DROPPED_MAX: usize = 1024;

/// An object of a storage.
pub(crate) type Object = (usize, Oid);

/// What a key is to be tied to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TieWish {
    /// The objects, in order; those of one storage if there is a view.
    pub(crate) objects: Vec<Object>,
    /// The view that the value was computed at: the last transaction that it shows.
    pub(crate) view: Option<Tid>,
}

/// The ties of all keys, by object.
#[derive(Default)]
pub(crate) struct Ties {
    /// Number of entries. Read at each commit, and written when keys are tied.
    count: AtomicUsize,
    index: Mutex<Index>,
}

#[derive(Default)]
struct Index {
    by_object: FxHashMap<Object, Vec<Arc<TiedKey>>>,
    /// Number of all in it.
    entries: usize,
    /// Number of those that were left by the last sweep.
    swept: usize,
    /// Keys whose ties were cut, and whose memory is to be freed.
    cut: Vec<Removed>,
}

struct TiedKey {
    tie: WeakTie,
    place: Removed,
}

impl Ties {
    /// Ties for a key, whose stripe the caller holds: one for each storage, as each has tids of its
    /// own. `None` if one of the objects may have changed since the view.
    pub(crate) fn bind(
        &self,
        storages: &dyn Storages,
        place: &Removed,
        wish: &TieWish,
        commit: Option<ItsCommit>,
    ) -> Option<Vec<Tie>> {
        let of_storages = wish.objects.chunk_by(|one, other| one.0 == other.0);
        let bind = |objects: &[Object]| {
            let storage = objects.first()?.0;
            // Taken first: commits that come while the tie is entered are later ones.
            let since = wish.view.unwrap_or_else(|| last_tid(commit, storages, storage));
            let tie = Tie::new(&origin(storages, objects, since));
            self.enter(objects, &tie, place.clone());
            let Some(view) = wish.view else { return Some(tie) };
            let oids: Vec<Oid> = objects.iter().map(|(_, oid)| *oid).collect();
            (!storages.may_have_changed(storage, view, &oids)).then_some(tie)
        };
        of_storages.map(bind).collect()
    }

    /// A tie of a key for another one that has got its value.
    pub(crate) fn again(&self, storages: &dyn Storages, tie: &Tie, place: Removed) -> Tie {
        let Some((_, objects)) = objects_of(storages, tie.origin()) else { return tie.clone() };
        let again = Tie::new(tie.origin());
        self.enter(&objects, &again, place.clone());
        if tie.was_cut() {
            // Before the new one was entered.
            self.note_cut(place);
            return tie.clone();
        }
        again
    }

    /// All ties, once for each of their objects.
    pub(crate) fn all(&self) -> Vec<(Object, Tie, Removed)> {
        let index = self.index.lock();
        let tied = index.by_object.iter();
        let tied = tied.flat_map(|(object, keys)| keys.iter().map(|key| (*object, key)));
        tied.filter_map(|(object, key)| Some((object, key.tie.upgrade()?, key.place.clone())))
            .collect()
    }

    /// Notes a key whose tie was cut, so that its memory is freed.
    pub(crate) fn note_cut(&self, place: Removed) {
        self.index.lock().cut.push(place);
    }

    /// Takes up to so many keys whose ties were cut; and whether there are more.
    fn take_cut(&self, keys_max: usize) -> (Vec<Removed>, bool) {
        let mut index = self.index.lock();
        let left = index.cut.len().saturating_sub(keys_max);
        (index.cut.split_off(left), left > 0)
    }

    /// Enters a tie of a key to objects.
    pub(crate) fn enter(&self, objects: &[Object], tie: &Tie, place: Removed) {
        let key = Arc::new(TiedKey { tie: tie.downgrade(), place });
        let mut index = self.index.lock();
        for object in objects {
            index.by_object.entry(*object).or_default().push(Arc::clone(&key));
        }
        index.entries += objects.len();
        if index.entries > 2 * index.swept + DROPPED_MAX {
            index.sweep();
        }
        self.count.store(index.entries, Ordering::Release);
    }

    /// Removes the keys that are tied to objects, all at one moment, and returns them.
    pub(crate) fn cut(
        &self,
        keyspace: &Keyspace,
        objects: impl Iterator<Item = Object>,
    ) -> Vec<Removed> {
        if self.count.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let mut index = self.index.lock();
        let before = index.cut.len();
        let mut ties = Vec::new();
        for object in objects {
            for key in index.by_object.remove(&object).unwrap_or_default() {
                index.entries -= 1;
                if let Some(tie) = key.tie.upgrade() {
                    ties.push(tie);
                    index.cut.push(key.place.clone());
                }
            }
        }
        if !ties.is_empty() {
            keyspace.cut(&ties);
        }
        self.count.store(index.entries, Ordering::Release);
        index.cut[before..].to_vec()
    }
}

/// The last transaction of a storage that a command knows of, which may be one of a commit.
fn last_tid(commit: Option<ItsCommit>, storages: &dyn Storages, storage: usize) -> Tid {
    match commit {
        Some(commit) if commit.storage == storage => commit.tid,
        Some(commit) if commit.number.is_none() => storages.last_tid(storage).min(commit.tid),
        _ => storages.last_tid(storage),
    }
}

/// Ties a key that is there, beside its other ties: a new one takes the place of one to the same
/// objects.
pub(crate) fn add(hold: &mut Hold, key: &[u8], new: Vec<Tie>) {
    let mut ties = hold.ties(key);
    // One that was cut since the hold began is to take the key with it.
    ties.retain(|old| old.was_cut() || !new.iter().any(|new| are_to_the_same(new, old)));
    ties.extend(new);
    hold.tie(key, ties);
}

impl Index {
    /// Removes what was left by keys that are gone.
    fn sweep(&mut self) {
        self.by_object.retain(|_, keys| {
            keys.retain(|key| !key.tie.is_dropped());
            !keys.is_empty()
        });
        self.entries = self.by_object.values().map(Vec::len).sum();
        self.swept = self.entries;
    }
}

/// Frees the memory of up to so many keys whose ties were cut; whether there are more that can be
/// freed now.
pub(crate) fn free_cut(server: &Server, keys_max: usize) -> bool {
    let (cut, mut is_more) = server.beside.ties.take_cut(keys_max);
    for place in cut {
        let stripe = server.keyspace.stripe(&place.key);
        // Not waited for: a script may hold it.
        let Some(hold) = server.keyspace.try_lock(stripe, now(), None) else {
            server.beside.ties.note_cut(place);
            is_more = false;
            continue;
        };
        let mut hold = server.journaling(hold);
        // In each: databases may have been exchanged since the key was tied.
        for database in 0..DATABASES {
            hold.database = database;
            hold.remove_expired(&place.key);
        }
        server.settle(hold);
    }
    is_more
}

#[cfg(test)]
mod tests {

    use super::*;

    fn key(name: &str) -> Removed {
        Removed { database: 0, key: name.as_bytes().into() }
    }

    #[test]
    fn a_commit_takes_no_lock_while_no_key_is_tied() {
        let (ties, keyspace) = (Ties::default(), Keyspace::default());
        let _index = ties.index.lock();
        let _stripes = keyspace.lock(zodium_keyspace::Stripes::ALL, 1);
        ties.cut(&keyspace, [(0, Oid(7))].into_iter());
    }

    #[test]
    fn entries_of_keys_that_are_gone_do_not_pile_up() {
        let (ties, keyspace) = (Ties::default(), Keyspace::default());
        let stays = Tie::default();
        let enter = |tie: &Tie, oid| {
            ties.enter(&[(0, Oid(oid))], tie, key("a"));
        };
        enter(&stays, 7);
        for oid in 0..100_000 {
            enter(&Tie::default(), oid);
            // A sweep leaves two: the one that stays, and the one being entered.
            assert!(ties.index.lock().entries <= DROPPED_MAX + 2 * 2);
        }
        let stripe = keyspace.stripe(b"a");
        let mut hold = keyspace.lock(stripe, 1);
        hold.put_string(b"a", b"", None);
        hold.tie(b"a", vec![stays]);
        drop(hold);
        ties.cut(&keyspace, [(1, Oid(7)), (0, Oid(8))].into_iter());
        assert!(keyspace.lock(stripe, 1).has(b"a"), "other objects");
        ties.cut(&keyspace, [(0, Oid(7))].into_iter());
        assert!(!keyspace.lock(stripe, 1).has(b"a"));
    }

    #[test]
    fn keys_that_were_cut_are_freed_without_waiting_for_a_lock() {
        let server = Server::new(crate::Options::default());
        let (ties, keyspace, stripe) =
            (&server.beside.ties, &server.keyspace, server.keyspace.stripe(b"a"));
        let tie = Tie::default();
        ties.enter(&[(0, Oid(7))], &tie, key("a"));
        let mut hold = keyspace.lock(stripe, 1);
        hold.put_string(b"a", b"", None);
        hold.tie(b"a", vec![tie]);
        drop(hold);
        ties.cut(keyspace, [(0, Oid(7))].into_iter());
        let hold = keyspace.lock(stripe, 1);
        assert!(!free_cut(&server, 1), "there is none that can be freed now");
        assert_eq!(ties.index.lock().cut.len(), 1);
        drop(hold);
        assert!(!free_cut(&server, 1));
        assert_eq!(ties.index.lock().cut.len(), 0);
    }
}
