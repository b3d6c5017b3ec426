//! Ends the process if one input takes too long: a decoder that hangs cannot be stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::failure::Failure;
use crate::mutation;
use crate::targets::Target;

/// Time limit of an input, on the slowest machine that tests run on.
pub(crate) const INPUT_TIME_MAX: Duration = Duration::from_secs(20);
/// Interval between checks.
const STEP: Duration = Duration::from_millis(100);

/// Watches a run from a thread of its own.
pub(crate) struct Watch {
    /// The current input. Relaxed: only changes of it matter.
    current: Arc<AtomicU64>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Starts watching; inputs are made from `seeds` and `seed`.
    pub(crate) fn begin(target: &'static Target, seeds: Arc<Vec<Vec<u8>>>, seed: u64) -> Watch {
        let (current, ended) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (watched, stop) = (Arc::clone(&current), Arc::clone(&ended));
        let thread = std::thread::spawn(move || {
            let (mut last, mut waited) = (u64::MAX, Duration::ZERO);
            while !stop.load(Ordering::Relaxed) {
                std::thread::park_timeout(STEP);
                let now = watched.load(Ordering::Relaxed);
                waited = if now == last { waited + STEP } else { Duration::ZERO };
                last = now;
                if waited > INPUT_TIME_MAX {
                    give_up(target, mutation::input(&seeds, seed, now), (seed, now));
                }
            }
        });
        Watch { current, ended, thread: Some(thread) }
    }

    /// Reports that the next input begins.
    pub(crate) fn note(&self, number: u64) {
        self.current.store(number, Ordering::Relaxed);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It returns nothing, and does not panic.
            let _ = thread.join();
        }
    }
}

fn give_up(target: &'static Target, input: Vec<u8>, made_of: (u64, u64)) {
    let what = format!("it has taken more than {} s", INPUT_TIME_MAX.as_secs());
    let failure = Failure { target: target.name, what, input, made_of };
    if let Err(error) = failure.keep() {
        eprintln!("cannot keep the input: {error}");
    }
    eprintln!("{failure}");
    std::process::exit(1);
}
