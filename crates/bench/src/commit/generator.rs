//! Runs the clients' threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow, ensure};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

use super::client::Client;
use crate::connection::PATIENCE;

const EVENTS_MAX: usize = 64;

/// Clients at work.
pub(super) struct Generator {
    thread: JoinHandle<Result<Vec<Client>>>,
    shared: Arc<Shared>,
}

/// All relaxed: these are flags and sums; no other data depends on them.
#[derive(Debug, Default)]
struct Shared {
    counting: AtomicBool,
    stopping: AtomicBool,
    commits: AtomicU64,
}

impl Generator {
    pub(super) fn start(clients: Vec<Client>) -> Result<Generator> {
        let shared = Arc::new(Shared::default());
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("commit".to_owned());
        let thread = thread.spawn(move || run(clients, &own))?;
        Ok(Generator { thread, shared })
    }

    /// Number of commits so far.
    pub(super) fn commits(&self) -> u64 {
        self.shared.commits.load(Ordering::Relaxed)
    }

    /// Whether the clients have stopped by themselves, which only an error causes.
    pub(super) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Starts or stops recording results.
    pub(super) fn count(&self, counting: bool) {
        self.shared.counting.store(counting, Ordering::Relaxed);
    }

    /// Lets every client finish its transaction, and returns the clients.
    pub(super) fn finish(self) -> Result<Vec<Client>> {
        self.shared.stopping.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("a thread with clients panicked"))?
    }
}

fn run(mut clients: Vec<Client>, shared: &Shared) -> Result<Vec<Client>> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (index, client) in clients.iter_mut().enumerate() {
        let data = epoll::EventData::new_u64(index as u64);
        epoll::add(&epoll, client.link().stream(), data, epoll::EventFlags::IN)?;
        client.start(false)?;
    }
    let patience = Timespec::try_from(PATIENCE)?;
    let mut events = Vec::with_capacity(EVENTS_MAX);
    while clients.iter().any(|client| !client.is_idle()) {
        let count = epoll::wait(&epoll, spare_capacity(&mut events), Some(&patience))?;
        ensure!(count > 0, "the server has not answered for {} s", PATIENCE.as_secs());
        for event in events.drain(..) {
            let client = clients.get_mut(event.data.u64() as usize);
            let client = client.context("an event of no connection")?;
            let counting = shared.counting.load(Ordering::Relaxed);
            if client.take_turn(counting)? {
                shared.commits.fetch_add(1, Ordering::Relaxed);
                if !shared.stopping.load(Ordering::Relaxed) {
                    client.start(counting)?;
                }
            }
        }
    }
    Ok(clients)
}
