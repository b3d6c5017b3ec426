//! The parts of a registered session, and the dispatch of calls to them.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use zodium_net::{JOBS_MAX, Jobs, Link};
use zodium_pickle::Value;
use zodium_zeo::codec::Encoding;

use crate::blob_download::Downloads;
use crate::blob_upload::BlobUploads;
use crate::call::{Arguments, Method};
use crate::exception::{Exception, tid_value};
use crate::info::info;
use crate::iterators::Iterators;
use crate::local::LocalServer;
use crate::peer::Peer;
use crate::replies::{Replies, Reply, ReplyTo};
use crate::stores::Stores;
use crate::subscriber::StorageSubscriber;
use crate::transaction::{SharedSlot, TransactionSlot};
use crate::vote::Votes;
use crate::{loads, log_chunk, pack, reads, undo_log};

/// The parts of a session of one storage.
pub(crate) struct Parts {
    local: Rc<LocalServer>,
    /// The name of the storage.
    pub(crate) storage: String,
    pub(crate) read_only: bool,
    pub(crate) peer: Rc<Peer>,
    pub(crate) slot: SharedSlot,
    pub(crate) stores: Stores,
    uploads: Rc<BlobUploads>,
    pub(crate) votes: Rc<Votes>,
    downloads: Rc<Downloads>,
    pub(crate) iterators: Rc<Iterators>,
}

/// A client that registers.
pub(crate) struct Registration {
    pub(crate) link: Link,
    pub(crate) encoding: Encoding,
    pub(crate) subscriber: Rc<StorageSubscriber>,
    /// The number of the session.
    pub(crate) session: u64,
    /// The name of the storage.
    pub(crate) storage: String,
    pub(crate) read_only: bool,
    /// Whether the connection has ended.
    pub(crate) gone: Arc<AtomicBool>,
}

impl Parts {
    pub(crate) fn new(local: Rc<LocalServer>, registration: Registration) -> Parts {
        let Registration { link, encoding, subscriber, session, storage, read_only, gone } =
            registration;
        let statistics = Arc::clone(&subscriber.statistics);
        let slot = TransactionSlot::new(
            Arc::clone(&subscriber.storage),
            Arc::clone(&statistics),
            Arc::clone(link.memory()),
        );
        let slot = Rc::new(RefCell::new(slot));
        let drained = Rc::clone(&subscriber);
        // The notices that a job has posted come before its answer.
        let before_done = Box::new(move || drained.drain_inbox());
        let blocking = Rc::clone(&local.blocking);
        let jobs = Jobs::new(link.clone(), blocking, before_done, Arc::clone(&gone));
        let replies = Replies::new(link, encoding, Some(statistics), gone);
        let tally = Rc::clone(&local.tally);
        let peer = Rc::new(Peer { subscriber, replies, jobs, tally, session });
        let stores = Stores::new(Rc::clone(&peer), Rc::clone(&slot));
        let uploads = BlobUploads::new(Rc::clone(&peer), Rc::clone(&slot), stores.clone());
        Parts {
            local,
            storage,
            read_only,
            votes: Votes::new(Rc::clone(&peer), Rc::clone(&slot), Rc::clone(&uploads)),
            downloads: Downloads::new(Rc::clone(&peer)),
            iterators: Iterators::new(Rc::clone(&peer)),
            peer,
            slot,
            stores,
            uploads,
        }
    }

    /// Whether more requests are read.
    pub(crate) fn is_ready(&self) -> bool {
        let jobs = &self.peer.jobs;
        jobs.running() + self.iterators.waiting() < JOBS_MAX
            && !jobs.is_paused()
            && self.uploads.is_ready()
    }

    /// Whether nothing is at work, and the client holds nothing of the session: no transaction, no
    /// iterator.
    pub(crate) fn is_idle(&self) -> bool {
        self.peer.jobs.running() == 0
            && !self.slot.borrow().is_used()
            && self.iterators.len() == 0
            && self.is_ready()
    }

    /// Ends the session: its connection has ended.
    pub(crate) fn close(&self) {
        self.votes.close();
        self.iterators.clear();
        self.peer.subscriber.remove(self.peer.session);
    }

    /// Calls a method.
    pub(crate) fn call(
        &self,
        to: &ReplyTo,
        arguments: &mut Arguments<'_>,
    ) -> Result<Reply, Exception> {
        let Parts { peer, stores, uploads, votes, iterators, .. } = self;
        match to.method {
            Method::GetInfo => Ok(Reply::Value(info(peer.storage()))),
            Method::LastTransaction => Ok(Reply::Value(tid_value(peer.subscriber.last_seen()))),
            Method::GetInvalidations => reads::invalidations(peer, to, arguments),
            Method::LoadBefore => {
                let (oid, before) = (arguments.oid()?, arguments.tid()?);
                let Some(id) = to.id.clone() else { return Ok(Reply::Value(Value::None)) };
                loads::load_before(peer, id, oid, before);
                Ok(Reply::Later)
            }
            Method::LoadSerial => reads::load_serial(peer, to, arguments),
            Method::GetTid => reads::current_tid(peer, to, arguments),
            Method::History => reads::history(peer, self.searches(), to, arguments),
            Method::NewOids => reads::new_oids(peer, to, arguments),
            Method::NewOid => Err(Exception::new(
                "builtins.AttributeError",
                "'new_oid' is not served, call 'new_oids'",
            )),
            Method::ServerStatus => {
                let status = self.local.server.status(&self.storage);
                Ok(status.map_or(Reply::Later, Reply::Value))
            }
            Method::RecordIternext => reads::next_object(peer, to, arguments),
            Method::Begin => stores.begin(arguments),
            Method::Store => stores.store(arguments),
            Method::Delete => stores.delete(arguments),
            Method::CheckCurrent => stores.check_current(arguments),
            Method::Restore => stores.restore(arguments),
            Method::Undo => stores.undo(arguments),
            Method::BlobStart => uploads.start(),
            Method::BlobChunk => uploads.chunk(arguments),
            Method::BlobEnd => uploads.end(arguments),
            Method::BlobShared => uploads.share(arguments),
            Method::SendBlob => self.downloads.send(to, arguments),
            Method::Vote => votes.vote(to, arguments),
            Method::Finish => votes.finish(to, arguments),
            Method::Abort => votes.abort(to, arguments),
            Method::UndoLog => undo_log::undo_log(peer, self.searches(), to, arguments),
            Method::UndoInfo => undo_log::undo_info(peer, self.searches(), to, arguments),
            Method::Pack => pack::pack(peer, to, arguments),
            Method::IteratorStart => iterators.start(to, arguments),
            Method::IteratorNext => iterators.next(to, arguments),
            Method::IteratorRecordStart => iterators.record_start(to, arguments),
            Method::IteratorRecordNext => iterators.record_next(to, arguments),
            Method::IteratorGc => iterators.close(arguments),
            Method::IteratorRead => iterators.read(to, arguments),
            Method::ObjectsRead => log_chunk::read_objects(peer, to, arguments),
            // The session itself answers the first two.
            Method::Register | Method::SetClientLabel | Method::Ping => {
                Ok(Reply::Value(Value::None))
            }
        }
    }

    /// Places for undo logs and long histories that are being read.
    fn searches(&self) -> Arc<tokio::sync::Semaphore> {
        Arc::clone(&self.local.server.searches)
    }
}
