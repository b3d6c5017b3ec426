//! An answer that is still to come.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use crate::NeoError;

/// An answer that one caller waits for.
pub(crate) struct Promise<T> {
    answer: Receiver<Result<T, NeoError>>,
    peer: Arc<str>,
}

impl<T> Promise<T> {
    /// A promise, and what fulfils it.
    pub(crate) fn new(peer: &Arc<str>) -> (SyncSender<Result<T, NeoError>>, Promise<T>) {
        let (sender, answer) = sync_channel(1);
        (sender, Promise { answer, peer: Arc::clone(peer) })
    }

    /// Waits for the answer. It comes, at the latest when the connection ends.
    pub(crate) fn wait(self) -> Result<T, NeoError> {
        self.answer.recv().unwrap_or_else(|_| Err(self.unanswered()))
    }

    /// As [`Promise::wait`]; `None` when it takes longer.
    pub(crate) fn wait_for(&self, limit: Duration) -> Option<Result<T, NeoError>> {
        match self.answer.recv_timeout(limit) {
            Ok(answer) => Some(answer),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Err(self.unanswered())),
        }
    }

    fn unanswered(&self) -> NeoError {
        NeoError::lost(&self.peer, "the request was not answered")
    }
}
