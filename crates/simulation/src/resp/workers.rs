//! The server on workers that run only when they are told to.

use std::rc::Rc;
use std::sync::Arc;

use zodium_net::{Host, Limits};
use zodium_resp_server::{Options, RespService, Server};

use super::plan::Plan;
use super::recorder::{Record, RecordingService};
use super::storage::Storage;
use crate::pipe::ServerEnd;
use crate::server::Tasks;

/// The server, and its workers.
pub(super) struct Workers {
    server: Arc<Server>,
    storage: Arc<Storage>,
    workers: Vec<(Tasks, Rc<Host<RecordingService>>)>,
    limits: Limits,
    pub(super) record: Record,
}

impl Workers {
    /// Starts a server. Must be called within a runtime.
    pub(super) fn start(plan: &Plan) -> Result<Workers, String> {
        let options = Options { workers: plan.workers, port: 6379, ..Options::default() };
        let (server, storage) = (Arc::new(Server::new(options)), Arc::<Storage>::default());
        server.attach(Arc::<Storage>::clone(&storage));
        if plan.has_events {
            server.configure("notify-keyspace-events", "KEg$lzt")?;
        }
        let record = Record::default();
        let worker = |number| {
            let tasks = Tasks::new();
            let set = tasks.set.borrow();
            let within = set.enter();
            let inner = RespService::new(Arc::clone(&server), number);
            drop(within);
            drop(set);
            let service = RecordingService { inner, record: Rc::clone(&record) };
            (tasks, Rc::new(Host::new(service, Arc::default(), None)))
        };
        let workers = (0..plan.workers).map(worker).collect();
        let limits = Limits {
            output_bytes_high: plan.output_bytes_high,
            push_bytes_max: plan.push_bytes_max,
            ..Limits::default()
        };
        Ok(Workers { server, storage, workers, limits, record })
    }

    pub(super) fn accept(&self, worker: usize, end: ServerEnd, connection: usize) {
        let (tasks, host) = &self.workers[worker];
        let (host, limits) = (Rc::clone(host), self.limits.clone());
        tasks.spawn(async move { host.run(end, &connection.to_string(), None, limits).await });
    }

    pub(super) fn count(&self) -> usize {
        self.workers.len()
    }

    pub(super) fn is_awake(&self, worker: usize) -> bool {
        self.workers[worker].0.is_awake()
    }

    /// Runs what a worker has to do, or a part of that.
    pub(super) fn run(&self, worker: usize) {
        self.workers[worker].0.run();
    }

    /// Commits a transaction that has written objects.
    pub(super) fn commit(&self, tid: u64, oids: &[u64]) {
        self.storage.commit(&self.server, tid, oids);
    }
}
