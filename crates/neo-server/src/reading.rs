//! Where a read of the database runs: short ones on the node's thread, others elsewhere.
//!
//! A row that is in memory is read in a few microseconds. To hand the read to another thread, and
//! the result back, takes several times as long. A row that is only on disk takes longer than that,
//! so for a while after slow reads all reads run elsewhere. One slow read says little: the system
//! may have given the processor to another process.
//!
//! A server may be away for a minute, and the first read that waits for it would be found slow only
//! at its end. So what is kept on a server is never read on the node's thread.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Instant;

use zodium_neo_storage::{ConnectionId, ReadJob, Reads};

use crate::driver::Driver;
use crate::links::Reading;
use crate::reader::{ShortRead, UNSENT_BYTES_MAX};

impl Driver {
    /// Runs short reads, and does what follows from them.
    pub(crate) fn read(self: &Rc<Driver>, mut reads: VecDeque<ShortRead>) {
        if self.reader.store().is_on_server() {
            return reads.into_iter().for_each(|(job, after)| self.read_elsewhere(job, after));
        }
        let result = self.reader.store().read_together(reads.len(), &mut |database| {
            let mut now = Instant::now();
            while let Some((job, connection)) = reads.pop_front() {
                if self.pace.is_quick(now) && !self.is_congested(connection) {
                    now = self.read_here(job, database, now);
                } else {
                    self.read_elsewhere(job, connection);
                }
                self.apply_outputs(&mut reads);
            }
        });
        if let Err(error) = result {
            self.end(Err(error));
        }
    }

    /// Runs a read that begins now; when it has ended.
    fn read_here(&self, job: ReadJob, database: &dyn Reads, began: Instant) -> Instant {
        let completion = job.run(database);
        let ended = Instant::now();
        self.pace.note(began, ended);
        self.node.borrow_mut().completed(completion);
        ended
    }

    /// Runs a read on another thread.
    pub(crate) fn read_elsewhere(self: &Rc<Driver>, job: ReadJob, after: Option<ConnectionId>) {
        let reading = match after.map(|connection| self.links.begin_read(connection)) {
            // The connection has ended.
            Some(None) => return,
            reading => reading.flatten(),
        };
        let driver = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let link = reading.as_ref().map(Reading::link);
            if let Some(done) = driver.reader.run(job, link).await {
                driver.done(done);
            }
        });
    }

    /// Whether much waits to be sent to a connection.
    fn is_congested(&self, connection: Option<ConnectionId>) -> bool {
        let unsent_bytes =
            connection.map_or(0, |connection| self.links.unsent_bytes_of(connection));
        unsent_bytes > UNSENT_BYTES_MAX
    }
}
