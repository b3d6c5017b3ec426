//! The sources of scripts, by their digests, for all workers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use sha1::{Digest as _, Sha1};

use super::running::Running;

/// Most scripts of `EVAL` that are kept. Those of `SCRIPT LOAD` stay.
const UNLOADED_MAX: usize = 500;

/// Hexadecimal digits of a SHA-1.
const DIGITS: usize = 40;

/// The SHA-1 of a source, as hexadecimal digits in lower case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Digest([u8; DIGITS]);

/// A script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Script {
    pub(crate) digest: Digest,
    pub(crate) source: Arc<[u8]>,
}

/// All scripts that clients have sent, and the one that runs.
#[derive(Default)]
pub(crate) struct Scripts {
    /// The Lua states of the workers look at it too.
    pub(crate) running: Arc<Running>,
    known: Mutex<Known>,
    /// Counts flushes: workers forget what they have compiled before the last one.
    flushes: AtomicU64,
}

#[derive(Default)]
struct Known {
    sources: FxHashMap<Digest, Arc<[u8]>>,
    /// Those that came with `EVAL`, the oldest first.
    unloaded: VecDeque<Digest>,
}

impl Digest {
    /// The digest of a source.
    pub(crate) fn of(source: &[u8]) -> Digest {
        let mut digits = [0; DIGITS];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(Sha1::digest(source)) {
            let digit = |half: u8| b"0123456789abcdef"[usize::from(half)];
            pair.copy_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
        }
        Digest(digits)
    }

    /// The digest that a client names, in any case; `None` if it can be none.
    fn named(digits: &[u8]) -> Option<Digest> {
        let mut digits: [u8; DIGITS] = digits.try_into().ok()?;
        digits.make_ascii_lowercase();
        digits.is_ascii().then_some(Digest(digits))
    }

    /// Its digits.
    pub(crate) fn as_str(&self) -> &str {
        // They are ASCII.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl Scripts {
    /// Keeps a script. `is_loaded`: until a flush.
    pub(crate) fn add(&self, script: &Script, is_loaded: bool) {
        let mut known = self.known.lock();
        let is_new = !known.sources.contains_key(&script.digest);
        if is_new {
            known.sources.insert(script.digest, Arc::clone(&script.source));
        }
        if is_loaded {
            known.unloaded.retain(|digest| *digest != script.digest);
        } else if is_new {
            known.unloaded.push_back(script.digest);
        }
        if known.unloaded.len() > UNLOADED_MAX
            && let Some(oldest) = known.unloaded.pop_front()
        {
            known.sources.remove(&oldest);
        }
    }

    /// The script with a digest that a client names.
    pub(crate) fn find(&self, digest: &[u8]) -> Option<Script> {
        self.known(Digest::named(digest)?)
    }

    /// The script with a digest.
    pub(crate) fn known(&self, digest: Digest) -> Option<Script> {
        let source = Arc::clone(self.known.lock().sources.get(&digest)?);
        Some(Script { digest, source })
    }

    /// Forgets all.
    pub(crate) fn flush(&self) {
        *self.known.lock() = Known::default();
        self.flushes.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of flushes.
    pub(crate) fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::Relaxed)
    }

    /// Number of scripts.
    pub(crate) fn count(&self) -> usize {
        self.known.lock().sources.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(source: &str) -> Script {
        Script { digest: Digest::of(source.as_bytes()), source: source.as_bytes().into() }
    }

    #[test]
    fn the_oldest_scripts_that_were_not_loaded_go() {
        let scripts = Scripts::default();
        let (loaded, first) = (script("return 'loaded'"), script("return 'first'"));
        scripts.add(&loaded, true);
        scripts.add(&first, false);
        for number in 0..UNLOADED_MAX {
            scripts.add(&script(&format!("return {number}")), false);
        }
        let upper = loaded.digest.as_str().to_ascii_uppercase();
        assert_eq!(scripts.find(upper.as_bytes()), Some(loaded));
        assert_eq!(scripts.find(first.digest.as_str().as_bytes()), None);
        assert_eq!(scripts.count(), UNLOADED_MAX + 1);
    }

    #[test]
    fn a_digest_is_that_of_sha1() {
        assert_eq!(Digest::of(b"return 1").as_str(), "e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
    }
}
