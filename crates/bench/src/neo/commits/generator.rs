//! Runs the clients and their master on one thread.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Context, Result, bail, ensure};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use zodium_neo::Message;
use zodium_neo::messages::{AskLockInformation, NotifyUnlockInformation};
use zodium_types::Tid;

use super::super::ids::Ids;
use super::super::socket::Socket;
use super::client::{Committer, Voted};
use crate::connection::PATIENCE;
use crate::result::Latencies;

const EVENTS_MAX: usize = 64;

/// All relaxed: these are flags and sums; no other data depends on them.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) counting: AtomicBool,
    pub(super) stopping: AtomicBool,
    pub(super) commits: AtomicU64,
}

/// Clients, the master's connections, and the transactions that the master finishes.
pub(super) struct Generator<'a> {
    pub(super) clients: Vec<Committer>,
    pub(super) masters: &'a mut [Socket],
    pub(super) ids: &'a mut Ids,
    pub(super) shared: &'a Shared,
    pub(super) latencies: Latencies,
    /// In the order of their tids: they are finished in this order.
    queue: VecDeque<Finishing>,
}

/// A transaction that is being locked.
#[derive(Debug)]
struct Finishing {
    voted: Voted,
    tid: Tid,
    client: usize,
    /// Storage nodes that have not locked it.
    left: usize,
}

impl<'a> Generator<'a> {
    pub(super) fn new(
        clients: Vec<Committer>,
        masters: &'a mut [Socket],
        ids: &'a mut Ids,
        shared: &'a Shared,
    ) -> Result<Generator<'a>> {
        let (latencies, queue) = (Latencies::new()?, VecDeque::new());
        Ok(Generator { clients, masters, ids, shared, latencies, queue })
    }

    /// Commits until it is stopped, and then until all transactions are over.
    pub(super) fn run(mut self) -> Result<(Vec<Committer>, Latencies)> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let storages = self.masters.len();
        let clients = self.clients.iter().flat_map(|client| &client.sockets);
        for (index, socket) in self.masters.iter().chain(clients).enumerate() {
            let data = epoll::EventData::new_u64(index as u64);
            epoll::add(&epoll, socket.stream(), data, epoll::EventFlags::IN)?;
        }
        self.clients.iter_mut().try_for_each(|client| client.start(self.ids))?;
        let patience = Timespec::try_from(PATIENCE)?;
        let mut events = Vec::with_capacity(EVENTS_MAX);
        while self.clients.iter().any(|client| !client.is_idle()) {
            let count = epoll::wait(&epoll, spare_capacity(&mut events), Some(&patience))?;
            ensure!(count > 0, "no storage node has answered for {} s", PATIENCE.as_secs());
            for event in events.drain(..) {
                let index = event.data.u64() as usize;
                match index.checked_sub(storages) {
                    None => self.locked(index)?,
                    Some(index) => self.take_turn(index / storages, index % storages)?,
                }
            }
            self.masters.iter_mut().try_for_each(Socket::flush)?;
        }
        Ok((self.clients, self.latencies))
    }

    /// A storage node has answered a client.
    fn take_turn(&mut self, client: usize, place: usize) -> Result<()> {
        let committer = self.clients.get_mut(client).context("an event of no client")?;
        let Some(voted) = committer.take_turn(place)? else { return Ok(()) };
        let (ttid, left) = (voted.ttid, voted.involved.len());
        let tid = self.ids.finish(ttid);
        for place in &voted.involved {
            self.masters[*place].put(AskLockInformation { ttid, tid, pack_approved: false })?;
        }
        self.queue.push_back(Finishing { voted, tid, client, left });
        Ok(())
    }

    /// A storage node has locked transactions.
    fn locked(&mut self, place: usize) -> Result<()> {
        let queue = &mut self.queue;
        self.masters[place].receive(|packet| match packet.message {
            Message::AnswerInformationLocked(answer) => {
                let of_it = |one: &&mut Finishing| one.voted.ttid == answer.ttid;
                let one = queue.iter_mut().find(of_it);
                one.context("a storage node locked what was not asked")?.left -= 1;
                Ok(())
            }
            other => bail!("a storage node told its master {}", other.name()),
        })?;
        while self.queue.front().is_some_and(|first| first.left == 0)
            && let Some(first) = self.queue.pop_front()
        {
            self.finish(&first)?;
        }
        Ok(())
    }

    fn finish(&mut self, finished: &Finishing) -> Result<()> {
        let Finishing { voted, tid, client, .. } = finished;
        for place in &voted.involved {
            self.masters[*place].put(NotifyUnlockInformation { ttid: voted.ttid })?;
        }
        let took = self.clients[*client].finished(*tid);
        if self.shared.counting.load(Ordering::Relaxed) {
            self.latencies.record(took);
        }
        self.shared.commits.fetch_add(1, Ordering::Relaxed);
        if self.shared.stopping.load(Ordering::Relaxed) {
            return Ok(());
        }
        // The client is told before it can store again.
        self.clients[*client].start(self.ids)
    }
}
