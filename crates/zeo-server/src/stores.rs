//! What a client puts into its transaction, except for blobs.
//!
//! These calls have no reply. Their errors doom the transaction, and are reported by its vote.

use std::rc::Rc;
use std::sync::Arc;

use zodium_engine::Transaction;
use zodium_pickle::Value;
use zodium_zeo::codec::CodecError;

use crate::begin::new_transaction;
use crate::call::Arguments;
use crate::exception::Exception;
use crate::peer::Peer;
use crate::replies::Reply;
use crate::transaction::SharedSlot;
use crate::undo_log::tid_of_undo_id;

/// Collects the transaction of a session.
#[derive(Clone)]
pub(crate) struct Stores {
    peer: Rc<Peer>,
    slot: SharedSlot,
}

impl Stores {
    pub(crate) fn new(peer: Rc<Peer>, slot: SharedSlot) -> Stores {
        Stores { peer, slot }
    }

    pub(crate) fn begin(&self, arguments: &mut Arguments<'_>) -> Result<Reply, Exception> {
        let id = arguments.owned();
        let user = arguments.text_bytes()?;
        let description = arguments.text_bytes()?;
        let extension = arguments.value();
        let tid = arguments.value();
        let status = arguments.value();
        let make = || new_transaction(user, description, extension, &tid, &status);
        self.slot.borrow_mut().begin(id, self.peer.tally.arrived(), make)?;
        Ok(Reply::Value(Value::None))
    }

    /// Begins a transaction whose metadata cannot be decoded.
    pub(crate) fn begin_refused(
        &self,
        id: Value<'static>,
        error: &CodecError,
    ) -> Result<(), Exception> {
        let make = || {
            let text = format!("the metadata of the transaction cannot be stored: {error}");
            Err(Exception::type_error(text))
        };
        self.slot.borrow_mut().begin(id, self.peer.tally.arrived(), make)
    }

    pub(crate) fn store(&self, arguments: &mut Arguments<'_>) -> Result<Reply, Exception> {
        let (oid, serial) = (arguments.oid(), arguments.serial());
        let data = arguments.data();
        let reply = self.collect(arguments, |transaction| {
            transaction.store(oid?, serial?, data?);
            Ok(())
        });
        self.spill();
        reply
    }

    pub(crate) fn delete(&self, arguments: &mut Arguments<'_>) -> Result<Reply, Exception> {
        let (oid, serial) = (arguments.oid(), arguments.serial());
        self.collect(arguments, |transaction| {
            transaction.delete(oid?, serial?);
            Ok(())
        })
    }

    pub(crate) fn check_current(&self, arguments: &mut Arguments<'_>) -> Result<Reply, Exception> {
        let (oid, serial) = (arguments.oid(), arguments.serial());
        self.collect(arguments, |transaction| {
            transaction.read_current(oid?, serial?);
            Ok(())
        })
    }

    pub(crate) fn restore(&self, arguments: &mut Arguments<'_>) -> Result<Reply, Exception> {
        let (oid, serial) = (arguments.oid(), arguments.tid());
        let data = arguments.optional_data();
        let source = arguments.optional_tid();
        let reply = self.collect(arguments, |transaction| {
            transaction.restore(oid?, serial?, data?, source?);
            Ok(())
        });
        self.spill();
        reply
    }

    pub(crate) fn undo(&self, arguments: &mut Arguments<'_>) -> Result<Reply, Exception> {
        let id = arguments.text_bytes();
        self.collect(arguments, |transaction| {
            let tid = tid_of_undo_id(&id?);
            transaction.undo(tid.ok_or_else(|| Exception::undo("Invalid undo transaction id"))?);
            Ok(())
        })
    }

    /// Adds to the transaction whose id is the next argument.
    fn collect(
        &self,
        arguments: &mut Arguments<'_>,
        add: impl FnOnce(&mut Transaction) -> Result<(), Exception>,
    ) -> Result<Reply, Exception> {
        self.slot.borrow_mut().collect(&arguments.owned(), add)?;
        Ok(Reply::Value(Value::None))
    }

    /// Writes the data of a large transaction to a spool file. No requests of this client are read
    /// until that is done.
    pub(crate) fn spill(&self) {
        let Some(spill) = self.slot.borrow_mut().spill() else { return };
        let (storage, slot) = (Arc::clone(self.peer.storage()), Rc::clone(&self.slot));
        let job = move || storage.run_spill(spill);
        self.peer.jobs.spawn_pausing(job, move |spilled| slot.borrow_mut().spilled(spilled));
    }
}
