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

/// The SHA-1 of a source, as 40 hexadecimal digits.
pub(crate) type Digest = String;

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

/// The digest of a source.
pub(crate) fn digest(source: &[u8]) -> Digest {
    Sha1::digest(source).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Scripts {
    /// Keeps a script. `is_loaded`: until a flush.
    pub(crate) fn add(&self, script: &Script, is_loaded: bool) {
        let mut known = self.known.lock();
        let is_new = !known.sources.contains_key(&script.digest);
        if is_new {
            known.sources.insert(script.digest.clone(), Arc::clone(&script.source));
        }
        if is_loaded {
            known.unloaded.retain(|digest| *digest != script.digest);
        } else if is_new {
            known.unloaded.push_back(script.digest.clone());
        }
        if known.unloaded.len() > UNLOADED_MAX
            && let Some(oldest) = known.unloaded.pop_front()
        {
            known.sources.remove(&oldest);
        }
    }

    /// The script with a digest.
    pub(crate) fn find(&self, digest: &[u8]) -> Option<Script> {
        let digest = std::str::from_utf8(digest).ok()?.to_ascii_lowercase();
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
        Script { digest: digest(source.as_bytes()), source: source.as_bytes().into() }
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
        assert_eq!(scripts.find(loaded.digest.as_bytes()), Some(loaded));
        assert_eq!(scripts.find(first.digest.as_bytes()), None);
        assert_eq!(scripts.count(), UNLOADED_MAX + 1);
    }

    #[test]
    fn a_digest_is_that_of_sha1() {
        assert_eq!(digest(b"return 1"), "e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
    }
}
