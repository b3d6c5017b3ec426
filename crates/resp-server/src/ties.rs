//! Keys that are tied to objects of storages: a commit that writes one of the objects removes them.
//!
//! Key decision: a command that ties a key enters the tie here first and then asks whether its
//! objects have changed since. A commit is remembered by its storage first, and then looks for ties
//! here. So one of the two notices the other, whatever the order.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use zodium_keyspace::{Keyspace, Removed, Tie, WeakTie, now};
use zodium_types::{Oid, Tid};

use crate::Server;
use crate::durability::origin;
use crate::storages::Storages;

/// Entries of dropped ties that may stay beside as many of others.
const DROPPED_MAX: usize = 1024;

/// An object of a storage.
pub(crate) type Object = (usize, Oid);

/// What a key is to be tied to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TieWish {
    /// The objects; those of one storage if there is a view.
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
    /// A tie for a key, whose stripe the caller holds; `None` if one of the objects may have
    /// changed since the view.
    pub(crate) fn bind(
        &self,
        storages: &dyn Storages,
        place: Removed,
        wish: &TieWish,
    ) -> Option<Tie> {
        // Taken first: commits that come while the tie is entered are later ones.
        let storage = wish.objects.first()?.0;
        let since = wish.view.unwrap_or_else(|| oldest(storages, &wish.objects));
        let tie = Tie::new(&origin(storages, &wish.objects, since));
        self.enter_tie(&wish.objects, &tie, place);
        let Some(view) = wish.view else { return Some(tie) };
        let oids: Vec<Oid> = wish.objects.iter().map(|(_, oid)| *oid).collect();
        (!storages.may_have_changed(storage, view, &oids)).then_some(tie)
    }

    /// Enters a tie of a key to objects.
    pub(crate) fn enter_tie(&self, objects: &[Object], tie: &Tie, place: Removed) {
        self.enter(objects, &Arc::new(TiedKey { tie: tie.downgrade(), place }));
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

    fn enter(&self, objects: &[Object], key: &Arc<TiedKey>) {
        let mut index = self.index.lock();
        for object in objects {
            index.by_object.entry(*object).or_default().push(Arc::clone(key));
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

/// The last transaction of all storages of some objects: the first of these, by tid.
fn oldest(storages: &dyn Storages, objects: &[Object]) -> Tid {
    let tids = objects.iter().map(|(storage, _)| storages.last_tid(*storage));
    tids.min().unwrap_or(Tid::ZERO)
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

/// Frees the memory of up to so many keys whose ties were cut; whether there are more.
pub(crate) fn free_cut(server: &Server, keys_max: usize) -> bool {
    let (cut, is_more) = server.beside.ties.take_cut(keys_max);
    for Removed { database, key } in cut {
        let hold = server.keyspace.lock(server.keyspace.stripe(&key), now());
        let mut hold = server.journaling(hold);
        hold.database = database;
        hold.remove_expired(&key);
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
            ties.enter(
                &[(0, Oid(oid))],
                &Arc::new(TiedKey { tie: tie.downgrade(), place: key("a") }),
            );
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
}
