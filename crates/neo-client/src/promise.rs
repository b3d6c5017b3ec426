//! An answer that is still to come.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use crate::NeoError;
use crate::patience::Patience;

/// An answer that one caller waits for.
pub(crate) struct Promise<T> {
    answer: Receiver<Result<T, NeoError>>,
    peer: Arc<str>,
    patience: Patience,
}

impl<T> Promise<T> {
    /// A promise, and what fulfils it.
    pub(crate) fn new(
        peer: &Arc<str>,
        patience: &Patience,
    ) -> (SyncSender<Result<T, NeoError>>, Promise<T>) {
        let (sender, answer) = sync_channel(1);
        (sender, Promise { answer, peer: Arc::clone(peer), patience: patience.clone() })
    }

    /// Waits for the answer. It comes, at the latest when the connection ends.
    pub(crate) fn wait(self) -> Result<T, NeoError> {
        self.wait_until(None).unwrap_or_else(|| Err(self.unanswered()))
    }

    /// As [`Promise::wait`]; `None` when it takes longer.
    pub(crate) fn wait_for(&self, limit: Duration) -> Option<Result<T, NeoError>> {
        self.wait_until(Some(Instant::now() + limit))
    }

    fn wait_until(&self, deadline: Option<Instant>) -> Option<Result<T, NeoError>> {
        let waited = self.patience.wait(deadline, |until| {
            let answer = match until {
                None => self.answer.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(until) => {
                    self.answer.recv_timeout(until.saturating_duration_since(Instant::now()))
                }
            };
            match answer {
                Ok(answer) => Some(answer),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => Some(Err(self.unanswered())),
            }
        });
        waited.unwrap_or_else(|interrupted| Some(Err(interrupted)))
    }

    fn unanswered(&self) -> NeoError {
        NeoError::lost(&self.peer, "the request was not answered")
    }
}
