//! Packs: an order that is committed as a transaction, and carried out by the storages.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tracing::info;
use zodium_neo::Message;
use zodium_neo::messages::{PackRequest, WaitForPack};
use zodium_storage::{Pack, PackOptions, PackStep, Packed, StorageError};
use zodium_types::{Tid, TransactionMetadata};

use super::NeoStorage;
use crate::NeoError;
use crate::transaction::NeoTransaction;

/// Interval between looks whether the pack is to be given up.
const TICK: Duration = Duration::from_millis(100);
/// The description of an order, as NEO's own clients give it.
const DESCRIPTION: &[u8] = b"IStorage.pack";

impl NeoStorage {
    /// Commits an order; its tid names the pack.
    fn order(&self, tid: Tid) -> Result<Tid, StorageError> {
        let metadata =
            TransactionMetadata { description: DESCRIPTION.to_vec(), ..Default::default() };
        let order = PackRequest { oids: None, tid };
        let finish = NeoTransaction::begin(&self.cluster, metadata, (Some(order), None))?.vote()?;
        Ok(self.finish_now(finish)?.tid)
    }

    /// Waits until the storages have carried the order out.
    fn wait_for_pack(&self, id: Tid, options: &PackOptions<'_>) -> Result<(), StorageError> {
        loop {
            let session = self.cluster.session(self.cluster.deadline())?;
            let asked = session.master.ask(WaitForPack { id }, |answer| {
                matches!(answer, Message::WaitedForPack(_)).then_some(())
            });
            let waiting = match asked {
                Ok(waiting) => waiting,
                Err(NeoError::Lost { .. }) => continue,
                Err(error) => return Err(error.into()),
            };
            loop {
                if options.cancelled.load(Ordering::Relaxed) {
                    let cause = "the NEO cluster goes on with the pack, which was not waited for";
                    return Err(StorageError::PackCancelled(cause.into()));
                }
                match waiting.wait_for(TICK) {
                    None => (options.progress)(PackStep::Copying, 0, 0),
                    Some(Ok(())) => return Ok(()),
                    // The next primary master is asked.
                    Some(Err(NeoError::Lost { .. })) => break,
                    Some(Err(error)) => return Err(error.into()),
                }
            }
        }
    }
}

impl Pack for NeoStorage {
    fn pack(&self, until: Tid, options: &PackOptions<'_>) -> Result<Option<Packed>, StorageError> {
        let last = self.cluster.commits.last_tid();
        if last == Tid::ZERO || until == Tid::ZERO {
            return Ok(None);
        }
        if options.cancelled.load(Ordering::Relaxed) {
            return Err(StorageError::PackCancelled("it was not begun".into()));
        }
        if options.gc {
            info!("a NEO cluster drops old revisions only, and no objects");
        }
        let id = self.order(until.min(last))?;
        self.wait_for_pack(id, options)?;
        self.cluster.current.note_pack();
        let packed = Packed::default();
        (options.packed)(&packed);
        Ok(Some(packed))
    }
}
