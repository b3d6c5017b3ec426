//! The last transaction that the listeners of a storage were told of.
//!
//! Key decision: a thread that asks for it waits while a commit is being told. Otherwise a listener
//! that is added in that time, such as a new connection of ZODB, could miss the commit for ever. It
//! would be added too late to be told, and would begin with a transaction from before the commit.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::ReentrantMutex;
use zodium_types::Tid;

/// The last transaction that was told, and whether another one is being told.
#[derive(Debug, Default)]
pub struct LastTold {
    /// Stored with Release after a transaction was told, loaded with Acquire.
    tid: AtomicU64,
    /// Whether a transaction was told or noted, or the first one is being told. Set with Release
    /// after the others, loaded with Acquire.
    has_begun: AtomicBool,
    /// Set with `turn` locked. A listener that fails leaves it set, so that readers take the lock.
    is_telling: AtomicBool,
    /// Locked while a transaction is told. Reentrant: a listener may ask for the last transaction.
    turn: ReentrantMutex<()>,
}

impl LastTold {
    /// Tells of a transaction: calls `tell`, and notes `tid` after it.
    ///
    /// # Errors
    /// Those of `tell`. The transaction is not noted then.
    pub fn tell<E>(&self, tid: Tid, tell: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let _turn = self.turn.lock();
        self.is_telling.store(true, Ordering::Release);
        self.has_begun.store(true, Ordering::Release);
        tell()?;
        self.advance(tid);
        self.is_telling.store(false, Ordering::Release);
        Ok(())
    }

    /// Notes a transaction that no listener has to be told of.
    pub fn advance(&self, tid: Tid) {
        self.tid.fetch_max(tid.0, Ordering::AcqRel);
        self.has_begun.store(true, Ordering::Release);
    }

    /// Whether a transaction was told or noted. The first one counts while its listeners are
    /// called, so that they wait for nothing.
    pub fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Acquire)
    }

    /// The last transaction that was told, [`Tid::ZERO`] before the first one. Waits while another
    /// one is being told, except in its listeners.
    pub fn wait(&self) -> Tid {
        self.at_once().unwrap_or_else(|| {
            let _turn = self.turn.lock();
            self.so_far()
        })
    }

    /// The last transaction that was told; `None` while another one is being told, and before the
    /// first one.
    pub fn at_once(&self) -> Option<Tid> {
        let is_known = self.has_begun() && !self.is_telling.load(Ordering::Acquire);
        is_known.then(|| self.so_far())
    }

    /// The last transaction whose telling has ended.
    pub fn so_far(&self) -> Tid {
        Tid(self.tid.load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::mpsc::{self, RecvTimeoutError};
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn others_wait_for_the_end_of_the_telling_and_its_listeners_do_not() {
        let told = LastTold::default();
        assert_eq!((told.at_once(), told.has_begun(), told.wait()), (None, false, Tid::ZERO));
        told.advance(Tid(3));
        let (answers, answer) = mpsc::channel();
        thread::scope(|scope| {
            told.tell(Tid(4), || {
                assert_eq!((told.wait(), told.at_once(), told.so_far()), (Tid(3), None, Tid(3)));
                scope.spawn(|| answers.send(told.wait()));
                let early = answer.recv_timeout(Duration::from_millis(100));
                assert_eq!(early, Err(RecvTimeoutError::Timeout));
                Ok::<_, ()>(())
            })
            .unwrap();
            assert_eq!(answer.recv(), Ok(Tid(4)));
        });
        assert_eq!((told.wait(), told.at_once()), (Tid(4), Some(Tid(4))));
    }

    #[test]
    fn a_listener_that_fails_stops_nobody_and_its_transaction_is_not_told() {
        let told = LastTold::default();
        let panics = || -> Result<(), ()> { panic!("a listener") };
        assert!(catch_unwind(AssertUnwindSafe(|| told.tell(Tid(4), panics))).is_err());
        assert_eq!((told.wait(), told.at_once()), (Tid::ZERO, None));
        assert_eq!(told.tell(Tid(4), || Err("a listener")), Err("a listener"));
        assert_eq!((told.wait(), told.at_once()), (Tid::ZERO, None));
        assert_eq!(told.tell(Tid(5), || Ok::<_, ()>(())), Ok(()));
        assert_eq!(told.at_once(), Some(Tid(5)));
    }
}
