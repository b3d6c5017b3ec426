//! Writes transactions into a storage, with their tids, statuses and back pointers.

use zodium_storage::{Applier, LogItem, Write};
use zodium_types::{Oid, Tid};

use crate::ToolError;
use crate::dump::{DumpBody, DumpTransaction};

/// Takes transactions that bring their tids, as the items of a log.
pub trait Restore {
    /// Takes the next item.
    fn apply(&mut self, item: LogItem<'_>) -> Result<(), ToolError>;

    /// Takes a record with the same data as the one of an earlier transaction.
    fn apply_copy(&mut self, oid: Oid, earlier: Tid) -> Result<(), ToolError>;

    /// The last transaction that is durable.
    fn durable_tid(&self) -> Tid;

    /// Forgets the transaction whose records come now: they will not all come.
    fn forget_unfinished(&mut self);

    /// Makes all transactions durable, and gives the last one.
    fn finish(self: Box<Self>) -> Result<Tid, ToolError>;
}

/// Restores a transaction of a dump.
///
/// # Errors
/// Those of `target`, and `Refused` for an object whose data the dump leaves out. The transaction
/// is forgotten then.
pub fn restore(target: &mut dyn Restore, transaction: &DumpTransaction) -> Result<(), ToolError> {
    apply(target, transaction).inspect_err(|_| target.forget_unfinished())
}

fn apply(target: &mut dyn Restore, transaction: &DumpTransaction) -> Result<(), ToolError> {
    let DumpTransaction { tid, status, metadata, objects } = transaction;
    target.apply(LogItem::Transaction {
        tid: *tid,
        status: *status,
        user: &metadata.user,
        description: &metadata.description,
        extension: &metadata.extension,
    })?;
    for object in objects {
        let oid = object.oid;
        let record = |data| LogItem::Record { oid, data, data_tid: None };
        match &object.body {
            DumpBody::Delete => target.apply(record(None))?,
            DumpBody::CopyOf(earlier) => target.apply_copy(oid, *earlier)?,
            DumpBody::Data(data) => target.apply(record(Some(data)))?,
            DumpBody::HashOnly => return Err(no_data(oid)),
        }
    }
    Ok(())
}

/// Restores into a storage of this process.
pub struct LocalRestore<'s> {
    applier: Applier<'s>,
}

impl<'s> LocalRestore<'s> {
    /// Writes behind the last transaction of `storage`.
    pub fn new(storage: &'s dyn Write) -> LocalRestore<'s> {
        LocalRestore { applier: Applier::new(storage) }
    }
}

impl Restore for LocalRestore<'_> {
    fn apply(&mut self, item: LogItem<'_>) -> Result<(), ToolError> {
        Ok(self.applier.apply(item)?)
    }

    fn apply_copy(&mut self, oid: Oid, earlier: Tid) -> Result<(), ToolError> {
        Ok(self.applier.apply_same_as(oid, earlier)?)
    }

    fn durable_tid(&self) -> Tid {
        self.applier.committed_tid()
    }

    fn forget_unfinished(&mut self) {
        self.applier.forget_unfinished();
    }

    fn finish(self: Box<Self>) -> Result<Tid, ToolError> {
        Ok(self.applier.finish()?)
    }
}

/// The error for an object whose data the dump leaves out.
pub fn no_data(oid: Oid) -> ToolError {
    ToolError::Refused(format!(
        "object {oid}: the dump has only the hash of its data; make a dump without --hashonly"
    ))
}
