//! Runs the clients' threads.
//!
//! A round trip time is added here, half of it in each direction: requests leave late, and replies
//! are handled late. A proxy would take processor time for each piece, and forward the pieces of
//! clients that a server answers together one after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use rustix::buffer::spare_capacity;
use rustix::event::epoll;

use super::client::Client;
use super::delayed::{Delayed, TIMER_SLACK_NANOS};
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
    /// Starts clients that are so far away from the server.
    pub(super) fn start(clients: Vec<Client>, round_trip: Duration) -> Result<Generator> {
        let shared = Arc::new(Shared::default());
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("commit".to_owned());
        let delay = round_trip / 2;
        let (requests, replies) = (Delayed::new(delay), Delayed::new(delay));
        let run = move || Turns { clients, shared: own, requests, replies }.run();
        let thread = thread.spawn(run)?;
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

/// The clients of a thread, and what is on its way between them and the server.
struct Turns {
    clients: Vec<Client>,
    shared: Arc<Shared>,
    /// The clients whose requests leave.
    requests: Delayed<usize>,
    /// Received bytes, with the client.
    replies: Delayed<(usize, Vec<u8>)>,
}

impl Turns {
    fn run(mut self) -> Result<Vec<Client>> {
        rustix::thread::set_current_timer_slack(Some(TIMER_SLACK_NANOS))?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for index in 0..self.clients.len() {
            let data = epoll::EventData::new_u64(index as u64);
            let client = &mut self.clients[index];
            epoll::add(&epoll, client.link().stream(), data, epoll::EventFlags::IN)?;
            client.start()?;
            self.send(index)?;
        }
        let mut events = Vec::with_capacity(EVENTS_MAX);
        while self.clients.iter().any(|client| !client.is_idle()) {
            let due = [self.requests.wait(), self.replies.wait()].into_iter().flatten().min();
            let wait = rustix::event::Timespec::try_from(due.unwrap_or(PATIENCE))?;
            let count = epoll::wait(&epoll, spare_capacity(&mut events), Some(&wait))?;
            let is_silent = count == 0 && due.is_none();
            anyhow::ensure!(!is_silent, "the server has not answered for {PATIENCE:?}");
            for event in events.drain(..) {
                self.receive(event.data.u64() as usize)?;
            }
            self.move_what_is_due()?;
        }
        Ok(self.clients)
    }

    fn receive(&mut self, index: usize) -> Result<()> {
        let client = self.clients.get_mut(index).context("an event of no connection")?;
        let received = client.link().receive()?.to_vec();
        match self.replies.delays() {
            true => self.replies.push((index, received)),
            false => self.take(index, &received)?,
        }
        Ok(())
    }

    fn move_what_is_due(&mut self) -> Result<()> {
        while let Some(index) = self.requests.pop() {
            self.clients[index].link().flush()?;
        }
        while let Some((index, received)) = self.replies.pop() {
            self.take(index, &received)?;
        }
        Ok(())
    }

    /// Handles replies, and sends what the client asks next.
    fn take(&mut self, index: usize, received: &[u8]) -> Result<()> {
        let counting = self.shared.counting.load(Ordering::Relaxed);
        let client = &mut self.clients[index];
        if client.take_turn(received, counting)? {
            self.shared.commits.fetch_add(1, Ordering::Relaxed);
            if !self.shared.stopping.load(Ordering::Relaxed) {
                client.start()?;
            }
        }
        self.send(index)
    }

    fn send(&mut self, index: usize) -> Result<()> {
        let link = self.clients[index].link();
        if !link.has_requests() {
            return Ok(());
        }
        match self.requests.delays() {
            true => self.requests.push(index),
            false => link.flush()?,
        }
        Ok(())
    }
}
