//! A NEO cluster as a kind of storage.

mod copying;
mod cursor;
mod many;
mod objects;
mod oids;
mod packing;
mod read;
mod tids;
mod undo;
mod write;

use std::sync::Arc;
use std::thread;

use zodium_disk::SpaceWatch;
use zodium_transport::{Interrupt, Patience};
use zodium_types::Durations;

use crate::cluster::Cluster;
use crate::many::Prefetches;
use crate::{NeoError, Options, connector};
use copying::CopiedSerials;
use objects::ObjectsAhead;
use oids::OidStock;

/// A cluster, opened as one of its clients.
pub struct NeoStorage {
    cluster: Arc<Cluster>,
    oids: OidStock,
    objects: ObjectsAhead,
    prefetches: Prefetches,
    space: Arc<SpaceWatch>,
    copied: CopiedSerials,
    /// How long finishes took at the cluster.
    finishes: Arc<Durations>,
}

impl NeoStorage {
    /// Connects to the primary master. Blocking, for at most the time of [`Options::wait`].
    ///
    /// # Errors
    /// When there is no primary master, or it does not accept this client; when the certificates
    /// cannot be used.
    pub fn open(options: Options) -> Result<NeoStorage, NeoError> {
        NeoStorage::open_with(options, None)
    }

    /// As [`NeoStorage::open`]; threads that wait for the cluster can be interrupted.
    ///
    /// # Errors
    /// As [`NeoStorage::open`].
    pub fn open_with(
        options: Options,
        interrupt: Option<Arc<dyn Interrupt>>,
    ) -> Result<NeoStorage, NeoError> {
        let cluster = Arc::new(Cluster::new(options, Patience::new(interrupt))?);
        let connecting = Arc::clone(&cluster);
        let run = move || connector::run(&connecting);
        let started = thread::Builder::new().name("neo-connector".to_owned()).spawn(run);
        started.map_err(|error| NeoError::Thread { reason: error.to_string().into() })?;
        let storage = NeoStorage {
            cluster,
            oids: OidStock::default(),
            objects: ObjectsAhead::default(),
            prefetches: Prefetches::default(),
            space: Arc::default(),
            copied: CopiedSerials::default(),
            finishes: Arc::default(),
        };
        // When this fails, dropping the storage ends the thread.
        storage.cluster.session(storage.cluster.deadline())?;
        Ok(storage)
    }

    /// Why no transaction can be committed, if so.
    pub fn obstacle(&self) -> Option<String> {
        self.cluster.obstacle()
    }

    /// Storages that do not answer although requests wait, in sentences.
    pub fn notes(&self) -> Vec<String> {
        let links = self.cluster.links.all();
        let notes = links.iter().filter_map(|link| {
            let (peer, seconds) = (link.peer(), link.silent_seconds()?);
            Some(format!(
                "{peer} has not answered for {seconds} s, and requests wait for it: see `zodium \
                 neo status`"
            ))
        });
        notes.collect()
    }

    /// Forgets the revisions in memory.
    pub fn clear_cache(&self) {
        self.cluster.current.clear();
    }
}

impl Drop for NeoStorage {
    fn drop(&mut self) {
        self.cluster.end(NeoError::Closed);
    }
}
