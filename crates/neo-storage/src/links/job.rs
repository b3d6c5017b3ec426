//! Work for the database, and what the node does when it is done.

use std::fmt;

use crate::Node;
use crate::database::{ReadResult, Reads, Writes};

type RunRead = dyn FnOnce(&dyn Reads) -> Completion + Send;
type RunWrite = dyn FnOnce(&mut dyn Writes) -> ReadResult<Completion> + Send;

/// A job that only reads.
pub struct ReadJob {
    run: Box<RunRead>,
    is_background: bool,
    is_short: bool,
}

/// A job that may write.
pub struct WriteJob(Box<RunWrite>);

/// The outcome of a job, for [`Node::completed`].
pub struct Completion(Box<dyn FnOnce(&mut Node) + Send>);

/// A database, as the driver of a node uses it.
pub trait Store: Send + Sync {
    /// Runs a job that only reads.
    fn read(&self, job: ReadJob) -> ReadResult<Completion>;
    /// Whether the database is on a server, which a read may wait for. A node that waits for a read
    /// itself does nothing else.
    fn is_on_server(&self) -> bool {
        false
    }
    /// Has about `count` jobs that only read run one after the other.
    fn read_together(&self, count: usize, run: &mut dyn FnMut(&dyn Reads)) -> ReadResult<()>;
    /// Runs jobs that write, as one transaction of the database.
    fn write(&self, is_durable: bool, jobs: Vec<WriteJob>) -> ReadResult<Vec<Completion>>;
}

impl ReadJob {
    pub(crate) fn new(run: impl FnOnce(&dyn Reads) -> Completion + Send + 'static) -> ReadJob {
        ReadJob { run: Box::new(run), is_background: false, is_short: false }
    }

    pub(crate) fn in_background(self) -> ReadJob {
        ReadJob { is_background: true, ..self }
    }

    /// Whether the job is for another storage: clients come first, so few such jobs, or one, should
    /// run at a time.
    pub fn is_background(&self) -> bool {
        self.is_background
    }

    /// The same job, which reads one row or two.
    pub(crate) fn short(self) -> ReadJob {
        ReadJob { is_short: true, ..self }
    }

    /// Whether the job reads a row or two: it takes longer to hand it to another thread.
    pub fn is_short(&self) -> bool {
        self.is_short
    }

    /// Runs the job.
    pub fn run(self, database: &dyn Reads) -> Completion {
        (self.run)(database)
    }
}

impl WriteJob {
    pub(crate) fn new(
        run: impl FnOnce(&mut dyn Writes) -> ReadResult<Completion> + Send + 'static,
    ) -> WriteJob {
        WriteJob(Box::new(run))
    }

    /// Runs the job.
    ///
    /// # Errors
    /// When the database fails. Nothing of the transaction may be committed then, and the node
    /// cannot go on.
    pub fn run(self, database: &mut dyn Writes) -> ReadResult<Completion> {
        (self.0)(database)
    }
}

impl Completion {
    pub(crate) fn new(done: impl FnOnce(&mut Node) + Send + 'static) -> Completion {
        Completion(Box::new(done))
    }

    pub(crate) fn tell(self, node: &mut Node) {
        (self.0)(node);
    }
}

impl fmt::Debug for ReadJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReadJob")
    }
}

impl fmt::Debug for WriteJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WriteJob")
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Completion")
    }
}
