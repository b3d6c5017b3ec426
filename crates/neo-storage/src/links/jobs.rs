//! Jobs for the database, and what the node does with their outcomes.

use tracing::error;

use super::{Completion, Links, Output, ReadJob, WriteJob};
use crate::database::{DatabaseError, ReadResult, Reads, Writes};
use crate::handling::Handled;
use crate::{ConnectionId, Node};

impl Links {
    /// Reads from the database, and goes on with the result unless operation ended meanwhile.
    pub(crate) fn read<T: Send + 'static>(
        &mut self,
        read: impl FnOnce(&dyn Reads) -> ReadResult<T> + Send + 'static,
        done: impl FnOnce(&mut Node, ReadResult<T>) + Send + 'static,
    ) {
        self.read_after(None, read, done);
    }

    /// As [`Links::read`], when most of what was sent to a connection is on its way.
    pub(crate) fn read_after<T: Send + 'static>(
        &mut self,
        after_sending: Option<ConnectionId>,
        read: impl FnOnce(&dyn Reads) -> ReadResult<T> + Send + 'static,
        done: impl FnOnce(&mut Node, ReadResult<T>) + Send + 'static,
    ) {
        let job = self.read_job(read, done);
        self.push(Output::Read { job, after_sending });
    }

    /// As [`Links::read_after`], for another storage: clients come first.
    pub(crate) fn read_in_background<T: Send + 'static>(
        &mut self,
        connection: ConnectionId,
        read: impl FnOnce(&dyn Reads) -> ReadResult<T> + Send + 'static,
        done: impl FnOnce(&mut Node, ReadResult<T>) + Send + 'static,
    ) {
        let job = self.read_job(read, done).in_background();
        self.push(Output::Read { job, after_sending: Some(connection) });
    }

    /// As [`Links::read`], of a row or two.
    pub(crate) fn read_shortly<T: Send + 'static>(
        &mut self,
        read: impl FnOnce(&dyn Reads) -> ReadResult<T> + Send + 'static,
        done: impl FnOnce(&mut Node, ReadResult<T>) + Send + 'static,
    ) {
        let job = self.read_job(read, done).short();
        self.push(Output::Read { job, after_sending: None });
    }

    fn read_job<T: Send + 'static>(
        &self,
        read: impl FnOnce(&dyn Reads) -> ReadResult<T> + Send + 'static,
        done: impl FnOnce(&mut Node, ReadResult<T>) + Send + 'static,
    ) -> ReadJob {
        let epoch = self.epoch;
        ReadJob::new(move |database| {
            let result = read(database);
            Completion::new(move |node| {
                if node.links.epoch == epoch {
                    done(node, result);
                }
            })
        })
    }

    /// Reads for a request; a failure of the database ends the connection.
    pub(crate) fn read_for<T: Send + 'static>(
        &mut self,
        from: (ConnectionId, u32),
        read: impl FnOnce(&dyn Reads) -> ReadResult<T> + Send + 'static,
        done: impl FnOnce(&mut Node, T) -> Handled + Send + 'static,
    ) {
        self.read_after(Some(from.0), read, move |node, result| go_on(node, from, result, done));
    }

    /// As [`Links::read_for`], of a row or two.
    pub(crate) fn read_shortly_for<T: Send + 'static>(
        &mut self,
        from: (ConnectionId, u32),
        read: impl FnOnce(&dyn Reads) -> ReadResult<T> + Send + 'static,
        done: impl FnOnce(&mut Node, T) -> Handled + Send + 'static,
    ) {
        let job = self.read_job(read, move |node, result| go_on(node, from, result, done)).short();
        self.push(Output::Read { job, after_sending: Some(from.0) });
    }

    /// Ends a connection whose request the database failed: a replica may serve it.
    pub(crate) fn read_failed(&mut self, connection: ConnectionId, error: &DatabaseError) {
        error!(peer = self.name_of(connection), %error, "the database failed a request, closing \
            the connection");
        self.close(connection);
    }

    /// Writes to the database, durably, and goes on with the result unless operation ended
    /// meanwhile.
    pub(crate) fn write<T: Send + 'static>(
        &mut self,
        write: impl FnOnce(&mut dyn Writes) -> ReadResult<T> + Send + 'static,
        done: impl FnOnce(&mut Node, T) + Send + 'static,
    ) {
        self.write_as(true, write, done);
    }

    /// As [`Links::write`], for what another durable commit or a restart would bring back.
    pub(crate) fn write_lazily<T: Send + 'static>(
        &mut self,
        write: impl FnOnce(&mut dyn Writes) -> ReadResult<T> + Send + 'static,
        done: impl FnOnce(&mut Node, T) + Send + 'static,
    ) {
        self.write_as(false, write, done);
    }

    /// Goes on when every durable write before is on disk, also if operation has ended meanwhile.
    pub(crate) fn when_written(&mut self, done: impl FnOnce(&mut Node) + Send + 'static) {
        let job = WriteJob::new(move |_| Ok(Completion::new(done)));
        self.push(Output::Write { job, is_durable: true });
    }

    pub(crate) fn write_as<T: Send + 'static>(
        &mut self,
        is_durable: bool,
        write: impl FnOnce(&mut dyn Writes) -> ReadResult<T> + Send + 'static,
        done: impl FnOnce(&mut Node, T) + Send + 'static,
    ) {
        let epoch = self.epoch;
        let job = WriteJob::new(move |database| {
            let result = write(database)?;
            Ok(Completion::new(move |node| {
                if node.links.epoch == epoch {
                    done(node, result);
                }
            }))
        });
        self.push(Output::Write { job, is_durable });
    }
}

/// Goes on with what was read for a request.
fn go_on<T>(
    node: &mut Node,
    (connection, id): (ConnectionId, u32),
    result: ReadResult<T>,
    done: impl FnOnce(&mut Node, T) -> Handled,
) {
    let handled = match result {
        Ok(found) => done(node, found),
        Err(error) => return node.links.read_failed(connection, &error),
    };
    if let Err(refusal) = handled {
        node.links.refuse((connection, id), "a request", &refusal);
    }
}
