//! Models for `loom`, with the orderings that the real types promise and no stronger ones.
//!
//! Limits of the models: `OnceLock` and `SkipMap` have one writer, as the index has. A map has
//! places for few small keys, and a removed key can return only to its own place. `ArcSwapAny` is
//! an atomic pointer that frees nothing before its end. So the models do not check the reclamation
//! of `arc_swap`.

use std::ops::RangeBounds;
use std::sync::PoisonError;

use arc_swap::Guard;
use loom::sync::atomic::AtomicBool;
pub(crate) use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

/// One more than the largest key of a map.
const KEYS: u64 = 6;

/// Empty cells.
pub(crate) fn cells<T, const N: usize>() -> Box<[OnceLock<T>; N]> {
    Box::new(std::array::from_fn(|_| OnceLock::new()))
}

/// Zeros.
pub(crate) fn zeros<const N: usize>() -> Box<[AtomicU64; N]> {
    Box::new(std::array::from_fn(|_| AtomicU64::new(0)))
}

/// A cell that one thread fills: Release for the store, Acquire for readers, as in std.
pub(crate) struct OnceLock<T> {
    is_filled: AtomicBool,
    value: std::sync::OnceLock<T>,
}

impl<T> OnceLock<T> {
    pub(crate) fn new() -> OnceLock<T> {
        OnceLock { is_filled: AtomicBool::new(false), value: std::sync::OnceLock::new() }
    }

    pub(crate) fn get(&self) -> Option<&T> {
        self.is_filled.load(Ordering::Acquire).then(|| self.value.get()).flatten()
    }

    pub(crate) fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        // Not within std's lock: `make` may switch to another thread of the model.
        let made = self.get().is_none().then(make);
        let value = self.value.get_or_init(|| match made {
            Some(made) => made,
            None => unreachable!("a filled cell has a value"),
        });
        self.is_filled.store(true, Ordering::Release);
        value
    }
}

/// A map whose insertion publishes its value, and whose removal publishes nothing.
pub(crate) struct SkipMap<K, V> {
    places: [Place<K, V>; KEYS as usize],
    /// Incremented before an insertion and decremented after a removal, both relaxed.
    length: AtomicUsize,
}

struct Place<K, V> {
    key: K,
    is_there: AtomicBool,
    value: V,
}

/// An entry of a map, which another thread may remove meanwhile.
pub(crate) struct Entry<'a> {
    map: &'a SkipMap<u64, AtomicU64>,
    place: &'a Place<u64, AtomicU64>,
}

impl SkipMap<u64, AtomicU64> {
    pub(crate) fn new() -> SkipMap<u64, AtomicU64> {
        let place = |key| Place {
            key: key as u64,
            is_there: AtomicBool::new(false),
            value: AtomicU64::new(0),
        };
        SkipMap { places: std::array::from_fn(place), length: AtomicUsize::new(0) }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.length.load(Ordering::Relaxed) == 0
    }

    pub(crate) fn get(&self, key: &u64) -> Option<Entry<'_>> {
        self.entry(self.places.get(usize::try_from(*key).ok()?)?)
    }

    pub(crate) fn insert(&self, key: u64, value: AtomicU64) {
        let place = usize::try_from(key).ok().and_then(|key| self.places.get(key));
        let Some(place) = place else { unreachable!("the model has no place for key {key}") };
        self.length.fetch_add(1, Ordering::Relaxed);
        place.value.store(value.load(Ordering::Relaxed), Ordering::Relaxed);
        place.is_there.store(true, Ordering::Release);
    }

    pub(crate) fn range(&self, range: impl RangeBounds<u64>) -> impl Iterator<Item = Entry<'_>> {
        let places = self.places.iter().filter(move |place| range.contains(&place.key));
        places.filter_map(|place| self.entry(place))
    }

    /// A reader that finds an entry sees its value. One that finds none has synchronized with
    /// nothing.
    fn entry<'a>(&'a self, place: &'a Place<u64, AtomicU64>) -> Option<Entry<'a>> {
        place.is_there.load(Ordering::Relaxed).then(|| {
            fence(Ordering::Acquire);
            Entry { map: self, place }
        })
    }
}

impl Entry<'_> {
    pub(crate) fn key(&self) -> &u64 {
        &self.place.key
    }

    pub(crate) fn value(&self) -> &AtomicU64 {
        &self.place.value
    }

    pub(crate) fn remove(&self) {
        self.place.is_there.store(false, Ordering::Relaxed);
        self.map.length.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An atomic pointer: a store is a Release, a load an Acquire, a swap both.
pub(crate) struct ArcSwapAny<T> {
    /// The number of the current value.
    current: AtomicUsize,
    /// All values so far. Hidden from the model: this lock orders nothing.
    values: std::sync::Mutex<Vec<T>>,
}

impl<T: Clone> ArcSwapAny<T> {
    pub(crate) fn load_full(&self) -> T {
        self.value(self.current.load(Ordering::Acquire))
    }

    pub(crate) fn store(&self, value: T) {
        let number = self.keep(value);
        self.current.store(number, Ordering::Release);
    }

    pub(crate) fn swap(&self, value: T) -> T {
        let number = self.keep(value);
        self.value(self.current.swap(number, Ordering::AcqRel))
    }

    fn keep(&self, value: T) -> usize {
        let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        values.push(value);
        values.len() - 1
    }

    fn value(&self, number: usize) -> T {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)[number].clone()
    }
}

impl<T: arc_swap::RefCnt> ArcSwapAny<T> {
    pub(crate) fn load(&self) -> Guard<T> {
        Guard::from_inner(self.load_full())
    }
}

impl<T> From<T> for ArcSwapAny<T> {
    fn from(value: T) -> ArcSwapAny<T> {
        ArcSwapAny { current: AtomicUsize::new(0), values: std::sync::Mutex::new(vec![value]) }
    }
}

/// A lock without poisoning.
pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Mutex<T> {
        Mutex(loom::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
