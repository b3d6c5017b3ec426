//! The RESP service of one worker.

use std::rc::Rc;
use std::sync::Arc;

use zodium_net::{Link, Parked, Service};

use crate::local::LocalServer;
use crate::server::Server;
use crate::session::RespSession;
use crate::{expiry, idle};

/// The RESP service of one worker.
pub struct RespService {
    local: Rc<LocalServer>,
}

impl RespService {
    /// Creates the service of the worker with this number. Must be called within its runtime.
    #[must_use]
    pub fn new(server: Arc<Server>, worker: usize) -> RespService {
        if worker == 0 {
            tokio::task::spawn_local(expiry::expire(Arc::clone(&server)));
        }
        let local = LocalServer::start(server, worker);
        tokio::task::spawn_local(idle::watch(Rc::clone(&local)));
        RespService { local }
    }
}

impl Service for RespService {
    type Session = RespSession;

    fn open(&self, link: Link) -> RespSession {
        RespSession::open(Rc::clone(&self.local), link)
    }

    fn resume(&self, link: Link, parked: Parked) -> Option<RespSession> {
        Some(RespSession::resume(Rc::clone(&self.local), link, *parked.downcast().ok()?))
    }
}
