//! The turn to commit: a connection allows one transaction at a time.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex, MutexGuard};
use zodium_transport::{Patience, TICK};

use crate::ClientError;
use crate::standing::Standing;

/// Threads that commit take turns.
#[derive(Default)]
pub(crate) struct CommitTurns {
    state: Mutex<State>,
    over: Condvar,
}

#[derive(Default)]
struct State {
    /// Whether a transaction is open.
    is_taken: bool,
    /// Transactions so far.
    transactions: u64,
}

/// The right to have a transaction open; released when dropped.
pub(crate) struct CommitTurn {
    turns: Arc<CommitTurns>,
    /// The id of the transaction.
    pub(crate) transaction: u64,
}

impl CommitTurns {
    /// Waits until no other transaction is open. Fails if the client is closed.
    pub(crate) fn begin(
        self: &Arc<CommitTurns>,
        standing: &Standing,
        patience: &Patience,
    ) -> Result<CommitTurn, ClientError> {
        let mut state = self.state.lock();
        while state.is_taken {
            if standing.is_closed() {
                return Err(ClientError::Closed);
            }
            let waited = self.over.wait_for(&mut state, TICK);
            if waited.timed_out() && MutexGuard::unlocked(&mut state, || patience.has_ended()) {
                return Err(ClientError::Interrupted);
            }
        }
        state.is_taken = true;
        state.transactions += 1;
        Ok(CommitTurn { turns: Arc::clone(self), transaction: state.transactions })
    }

    /// Makes threads that wait notice that the client is closed.
    pub(crate) fn dismiss(&self) {
        // A thread that saw the client open is waiting once this lock is taken.
        drop(self.state.lock());
        self.over.notify_all();
    }
}

impl Drop for CommitTurn {
    fn drop(&mut self) {
        self.turns.state.lock().is_taken = false;
        self.turns.over.notify_one();
    }
}
