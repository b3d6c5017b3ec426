//! An answer that is still to come.

use std::sync::Arc;
use std::time::{Duration, Instant};

use zodium_neo::Message;

use crate::NeoError;
use crate::connection::{Connection, Then};

/// What is fulfilled, by the thread that reads.
pub(crate) type Slot<T> = zodium_transport::Promise<Result<T, NeoError>>;

/// An answer that one caller waits for. It reads the connection meanwhile if no other thread does.
pub(crate) struct Promise<T> {
    slot: Arc<Slot<T>>,
    connection: Arc<Connection>,
}

impl<T> Promise<T> {
    /// A promise of an answer on a connection, and what fulfils it.
    pub(crate) fn new(connection: &Arc<Connection>) -> (Arc<Slot<T>>, Promise<T>) {
        let slot = Arc::new(Slot::default());
        (Arc::clone(&slot), Promise { slot, connection: Arc::clone(connection) })
    }

    /// Waits for the answer. It comes, at the latest when the connection ends.
    pub(crate) fn wait(self) -> Result<T, NeoError> {
        self.connection.turns.wait(&*self.connection, &self.slot, None)?;
        self.slot.take().unwrap_or_else(|| {
            Err(NeoError::lost(self.connection.peer(), "the request was not answered"))
        })
    }

    /// As [`Promise::wait`]; `None` when it takes longer.
    pub(crate) fn wait_for(&self, limit: Duration) -> Option<Result<T, NeoError>> {
        let deadline = Some(Instant::now() + limit);
        match self.connection.turns.wait(&*self.connection, &self.slot, deadline) {
            Ok(()) => self.slot.take(),
            Err(interrupted) => Some(Err(interrupted.into())),
        }
    }
}

impl Connection {
    /// Sends a request. `take` makes of its answer what the caller waits for; `None` if it is
    /// another message.
    pub(crate) fn ask<'a, T: Send + 'static>(
        self: &Arc<Self>,
        request: impl Into<Message<'a>>,
        take: impl for<'m> FnOnce(Message<'m>) -> Option<T> + Send + 'static,
    ) -> Result<Promise<T>, NeoError> {
        let (then, promise) = self.promise(take);
        self.send(|batch| batch.ask(request, then))?;
        Ok(promise)
    }

    /// What fulfils the promise of an answer, and the promise.
    pub(crate) fn promise<T: Send + 'static>(
        self: &Arc<Self>,
        take: impl for<'m> FnOnce(Message<'m>) -> Option<T> + Send + 'static,
    ) -> (Then, Promise<T>) {
        let (slot, promise) = Promise::new(self);
        let peer = Arc::clone(self.peer());
        let then: Then = Box::new(move |answer| {
            slot.complete(answer.and_then(|message| {
                let name = message.name();
                take(message).ok_or(NeoError::Unexpected { peer, message: name })
            }));
        });
        (then, promise)
    }
}
