//! Busy polling: keeps a worker awake for a while after a request.
//!
//! An idle processor takes longer to wake than a request takes to answer. On the machine of
//! docs/benchmarks.md a lone client waits 80 us for a wake-up on either side, and 10 us for all the
//! rest. A worker that polls without sleeping answers at once, at the price of processor time.

use std::cell::Cell;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// Keeps one worker awake.
pub(crate) struct BusyPoll {
    time: Duration,
    /// When the last bytes of any peer arrived; `None` while the worker sleeps as usual.
    last_request: Cell<Option<Instant>>,
    requested: Notify,
}

impl BusyPoll {
    /// Stays awake for `time` after each request.
    pub(crate) fn new(time: Duration) -> BusyPoll {
        BusyPoll { time, last_request: Cell::new(None), requested: Notify::new() }
    }

    /// Notes that bytes have arrived.
    pub(crate) fn note_request(&self) {
        if self.last_request.replace(Some(Instant::now())).is_none() {
            self.requested.notify_one();
        }
    }

    /// Keeps the runtime polling while requests come; never ends.
    ///
    /// The task is always ready to run, so the runtime looks at its sockets without waiting.
    pub(crate) async fn run(&self) {
        loop {
            self.requested.notified().await;
            while self.last_request.get().is_some_and(|last| last.elapsed() < self.time) {
                // Other threads go first: one of them may be the client itself.
                std::thread::yield_now();
                tokio::task::yield_now().await;
            }
            self.last_request.set(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use tokio::task::LocalSet;

    use super::*;

    #[test]
    fn it_is_awake_after_a_request_for_its_time_and_then_asleep() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        LocalSet::new().block_on(&runtime, async {
            let time = Duration::from_millis(20);
            let busy_poll = Rc::new(BusyPoll::new(time));
            let running = Rc::clone(&busy_poll);
            tokio::task::spawn_local(async move { running.run().await });
            for _ in 0..3 {
                tokio::task::yield_now().await;
                assert_eq!(busy_poll.last_request.get(), None);
                let noted = Instant::now();
                busy_poll.note_request();
                while busy_poll.last_request.get().is_some() {
                    tokio::task::yield_now().await;
                }
                assert!(noted.elapsed() >= time);
            }
        });
    }
}
