//! The ZEO service of one worker.

use std::rc::Rc;
use std::sync::Arc;

use zodium_net::{Blocking, Link, Parked, RuntimeThreads, Service};

use crate::local::LocalServer;
use crate::server::Server;
use crate::session::SessionHandle;

/// The ZEO service of one worker.
pub struct ZeoService {
    local: Rc<LocalServer>,
}

impl ZeoService {
    /// Creates a service for all storages.
    ///
    /// It must be called within a worker's runtime, whose blocking threads execute the jobs.
    pub fn new(server: Arc<Server>) -> ZeoService {
        ZeoService::with_blocking(server, Box::new(RuntimeThreads::default()))
    }

    /// As [`ZeoService::new`], but `blocking` executes the jobs.
    pub fn with_blocking(server: Arc<Server>, blocking: Box<dyn Blocking>) -> ZeoService {
        ZeoService { local: LocalServer::start(server, Rc::from(blocking)) }
    }
}

impl Service for ZeoService {
    type Session = SessionHandle;

    fn open(&self, link: Link) -> SessionHandle {
        SessionHandle::open(Rc::clone(&self.local), link)
    }

    fn resume(&self, link: Link, parked: Parked) -> Option<SessionHandle> {
        SessionHandle::resume(Rc::clone(&self.local), link, *parked.downcast().ok()?)
    }
}
