//! The server, its clients and the model, step by step.

use std::time::Duration;

use bytes::BytesMut;
use tokio::time::Instant;
use zodium_keyspace::set_time;

use super::faulty::altered;
use super::model::{Model, name_of};
use super::peer::Peer;
use super::plan::{PUSH_BYTES_USUAL, Plan, RespBug};
use super::recorder::Call;
use super::reply::shown;
use super::request::{Choice, OIDS, Request, Role, encoded, reads_of_all};
use super::workers::Workers;
use crate::pipe::Pipe;
use crate::random::Chance;
use crate::trace::Trace;

/// The time at the begin of a run, in milliseconds since 1970.
const BEGIN_MS: u64 = 1_700_000_000_000;
/// Most bytes of requests that a client sends before they are executed. Behind a command that waits
/// the server reads 64 KiB, and notices the end of the connection after these.
const SENT_BYTES_MAX: usize = 5000;
/// Rounds after which a server that still does something does so for ever.
const ROUNDS_MAX: usize = 100_000;

/// Everything of a run.
pub(super) struct World {
    workers: Workers,
    peers: Vec<Peer>,
    /// Clients whose connections have ended, and what the server has not noticed of that.
    left: Vec<Peer>,
    model: Model,
    plan: Plan,
    chance: Chance,
    pub(super) trace: Trace,
    begin: Instant,
    connections: usize,
    steps: u64,
}

impl World {
    /// Starts a server. Must be called within a runtime, on paused time.
    pub(super) fn new(chance: Chance, trace: Trace, bug: RespBug) -> Result<World, String> {
        set_time(1000 * BEGIN_MS);
        let plan = Plan::new(&chance, bug);
        let workers = Workers::start(&plan)?;
        let mut model = Model::new(plan.has_events, bug);
        model.now = BEGIN_MS;
        let (peers, left, begin) = (Vec::new(), Vec::new(), Instant::now());
        let (connections, steps) = (0, 0);
        let mut world =
            World { workers, peers, left, model, plan, chance, trace, begin, connections, steps };
        for _ in 0..world.plan.clients {
            let peer = world.connect();
            world.peers.push(peer);
        }
        Ok(world)
    }

    /// A connection.
    fn connect(&mut self) -> Peer {
        let role = Role::choose(&self.chance, &self.plan);
        self.connect_as(role)
    }

    /// A connection to any worker.
    fn connect_as(&mut self, role: Role) -> Peer {
        let (pipe, end) = Pipe::new(self.plan.window);
        let worker = self.chance.place(self.workers.count());
        self.connections += 1;
        self.model.connect(self.connections, worker);
        self.workers.accept(worker, end, self.connections);
        for request in role.greeting() {
            self.send(&pipe, self.connections, request);
        }
        Peer::new(pipe, self.connections, role)
    }

    fn send(&mut self, pipe: &Pipe, connection: usize, request: Request) {
        let bytes = encoded(&altered(self.plan.bug, &request));
        pipe.send(&bytes);
        self.trace.event("request", &[connection as u64, digest(&bytes)]);
        self.model.note_sent(connection, request, bytes.len());
    }

    fn elapsed(&self) -> u64 {
        u64::try_from(self.begin.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Something happens.
    pub(super) async fn step(&mut self) -> Result<(), String> {
        self.steps += 1;
        let client = self.chance.place(self.peers.len());
        if self.peers[client].pipe.is_over() || self.chance.permille(self.plan.disconnects) {
            return self.disconnect(client);
        }
        match self.chance.number(0..=999) {
            0..=349 => self.act(client),
            350..=549 => self.deliver(client),
            550..=699 => self.receive(client, false)?,
            700..=949 => {
                let worker = self.chance.place(self.workers.count());
                if self.workers.is_awake(worker) {
                    self.run_worker(worker).await?;
                }
            }
            950..=969 => self.commit(),
            970..=994 => {
                let time = self.chance.number(1..=2000);
                self.pass(time).await?;
            }
            _ => self.calm().await?,
        }
        self.note_happened();
        Ok(())
    }

    fn note_happened(&mut self) {
        for what in self.model.happened.drain(..) {
            self.trace.event(what, &[]);
        }
    }

    /// A client goes, in one of several ways, or comes again.
    fn disconnect(&mut self, client: usize) -> Result<(), String> {
        let peer = &mut self.peers[client];
        let is_over = peer.pipe.is_over();
        if !is_over && !peer.has_finished && self.chance.permille(300) {
            self.trace.event("half-open", &[peer.connection as u64]);
            peer.has_finished = true;
            peer.pipe.finish();
            return Ok(());
        }
        if is_over {
            self.trace.event("ended", &[peer.connection as u64]);
            self.check_end(client)?;
        } else {
            let is_waiting = self.model.is_waiting(self.peers[client].connection);
            let what = if is_waiting { "gone while it waits" } else { "gone" };
            self.trace.event(what, &[self.peers[client].connection as u64]);
            self.peers[client].pipe.reset(0);
        }
        self.replace(client);
        Ok(())
    }

    /// A client that has gone comes again.
    fn replace(&mut self, client: usize) {
        let peer = self.connect();
        let gone = std::mem::replace(&mut self.peers[client], peer);
        if self.model.session(gone.connection).is_some() {
            self.left.push(gone);
        }
    }

    /// What a connection that has ended in order has sent is whole.
    fn check_end(&mut self, client: usize) -> Result<(), String> {
        let connection = self.peers[client].connection;
        self.receive(client, true)?;
        match self.model.take_ended(connection).and_then(|mut stream| stream.lacking()) {
            Some(lacking) => Err(format!("connection {connection} ends without {lacking}")),
            None => Ok(()),
        }
    }

    /// A client sends something.
    fn act(&mut self, client: usize) {
        let peer = &self.peers[client];
        let (connection, has_finished) = (peer.connection, peer.has_finished);
        let sent = self.model.session(connection).map_or(0, |session| session.sent_bytes());
        if has_finished || sent > SENT_BYTES_MAX {
            return;
        }
        // Those that the server does not know yet have an id that is too high.
        let ids = self.peers.iter().map(|peer| self.model.id_of(peer.connection));
        let ids: Vec<u64> = ids.map(|id| if id > 0 { id } else { u64::MAX >> 1 }).collect();
        let choice = Choice {
            chance: &self.chance,
            plan: &self.plan,
            role: self.peers[client].role,
            ids: &ids,
            tid: self.model.last_tid().saturating_sub(self.chance.number(0..=2)),
            number: self.steps,
        };
        let mut is_queueing = self.peers[client].is_queueing;
        let requests = choice.pipeline(&mut is_queueing);
        self.peers[client].is_queueing = is_queueing;
        let pipe = self.peers[client].pipe.clone();
        requests.into_iter().for_each(|request| self.send(&pipe, connection, request));
    }

    /// Some bytes of a client reach the server.
    fn deliver(&mut self, client: usize) {
        let pipe = &self.peers[client].pipe;
        let most = pipe.requests_under_way() as u64;
        if most > 0 {
            let some = self.chance.number(1..=most);
            let count = if self.chance.permille(400) { most } else { some };
            pipe.deliver_requests(count.min(self.plan.chunk_bytes) as usize);
        }
    }

    /// Some bytes of the server reach a client, or all that there are.
    fn receive(&mut self, client: usize, all: bool) -> Result<(), String> {
        let peer = &mut self.peers[client];
        let most = peer.pipe.replies_under_way() as u64;
        if most == 0 {
            return Ok(());
        }
        let count = if all { most } else { self.chance.number(1..=most) };
        let mut received = BytesMut::new();
        peer.pipe.deliver_replies(count as usize, &mut received);
        let bytes = peer.faults.change(self.plan.bug, &received, &self.chance);
        let connection = peer.connection;
        self.trace.event("answer", &[connection as u64, digest(&bytes)]);
        match self.model.stream(connection) {
            Some(stream) => {
                stream.receive(&bytes).map_err(|what| format!("connection {connection} {what}"))
            }
            None => Err(format!("connection {connection} was sent {:?}", shown(&bytes))),
        }
    }

    /// A transaction of the storage is committed.
    fn commit(&mut self) {
        let tid = self.model.last_tid() + 1;
        let mut oids: Vec<u64> = (1..=OIDS).filter(|_| self.chance.permille(300)).collect();
        oids.push(OIDS + 1);
        self.trace.event("commit", &[tid, oids.len() as u64]);
        self.model.commit(tid, &oids);
        if self.plan.bug != RespBug::LosesCommits || self.chance.permille(800) {
            self.workers.commit(tid, &oids);
        }
    }

    /// A worker does something, and the model follows.
    async fn run_worker(&mut self, worker: usize) -> Result<(), String> {
        // Time has passed while no worker had anything to do: what it has ended comes first.
        self.model.end_waits(worker);
        self.workers.run(worker);
        let calls = std::mem::take(&mut *self.workers.record.borrow_mut());
        for (connection, call) in calls {
            if let Call::Closed = call {
                self.check_closing(connection)?;
            }
            self.model.follow(connection, call)?;
        }
        // Tasks that let others go first are woken by that.
        tokio::task::yield_now().await;
        if !self.workers.is_awake(worker) {
            self.model.bar_worker(worker);
        }
        Ok(())
    }

    /// A connection ends for a reason.
    fn check_closing(&mut self, connection: usize) -> Result<(), String> {
        self.left.retain(|peer| peer.connection != connection);
        let Some(peer) = self.peers.iter().find(|peer| peer.connection == connection) else {
            return Ok(());
        };
        let has_finished = peer.has_finished;
        let Some(session) = self.model.session(connection) else { return Ok(()) };
        let (unread, most) = (session.stream.missing(), self.plan.push_bytes_max);
        let does_not_read = most < PUSH_BYTES_USUAL && unread > most && session.was_told();
        session.is_left_behind = does_not_read;
        match (has_finished || session.has_to_end(), does_not_read) {
            (true, _) => Ok(()),
            (false, true) => {
                self.trace.event("left behind", &[connection as u64]);
                Ok(())
            }
            (false, false) => Err(format!(
                "the server ends connection {connection}, which has not read {unread} bytes"
            )),
        }
    }

    /// All workers do what there is to do.
    async fn run_all(&mut self) -> Result<(), String> {
        for _ in 0..ROUNDS_MAX {
            let awake = (0..self.workers.count()).filter(|w| self.workers.is_awake(*w));
            let awake: Vec<usize> = awake.collect();
            if awake.is_empty() {
                return Ok(());
            }
            let worker = awake[self.chance.place(awake.len())];
            self.run_worker(worker).await?;
        }
        Err("the workers never rest".to_owned())
    }

    /// Time passes. Where something ends that the model knows of, the server does what follows.
    async fn pass(&mut self, milliseconds: u64) -> Result<(), String> {
        self.run_all().await?;
        self.trace.event("time", &[milliseconds]);
        let end = self.model.now + milliseconds;
        while self.model.now < end {
            let next = self.model.next_end().map_or(end, |next| next.min(end));
            tokio::time::advance(Duration::from_millis(next - self.model.now)).await;
            self.model.now = BEGIN_MS + self.elapsed();
            set_time(1000 * self.model.now);
            self.run_all().await?;
        }
        Ok(())
    }

    /// All that was sent arrives, and all is answered.
    async fn calm(&mut self) -> Result<(), String> {
        self.run_all().await?;
        for peer in self.peers.iter().chain(&self.left) {
            let session = self.model.session(peer.connection);
            if session.is_some_and(|session| session.is_killed) {
                return Err(format!("connection {} goes on, which was killed", peer.connection));
            }
        }
        for _ in 0..ROUNDS_MAX {
            let mut is_busy = false;
            for client in 0..self.peers.len() {
                let pipe = &self.peers[client].pipe;
                is_busy |= pipe.requests_under_way() > 0 || pipe.replies_under_way() > 0;
                pipe.deliver_requests(usize::MAX);
                self.receive(client, true)?;
            }
            self.run_all().await?;
            if !is_busy && !self.model.is_paused() {
                return self.check_calm();
            }
            if !is_busy && let Some(next) = self.model.next_end() {
                self.pass(next - self.model.now).await?;
            }
        }
        Err("the server never rests".to_owned())
    }

    /// No client lacks anything.
    fn check_calm(&mut self) -> Result<(), String> {
        for peer in &self.peers {
            let connection = peer.connection;
            let is_waiting = self.model.is_waiting(connection);
            let Some(session) = self.model.session(connection) else { continue };
            if let Some(request) = session.next()
                && !is_waiting
            {
                let name = name_of(request);
                return Err(format!("connection {connection} waits for ever with {name}"));
            }
            if let Some(lacking) = session.stream.lacking() {
                return Err(format!("connection {connection} waits for ever for {lacking}"));
            }
            if peer.has_finished {
                return Err(format!("connection {connection} goes on, whose client has finished"));
            }
        }
        Ok(())
    }

    /// All clients go; then all keys are looked at.
    pub(super) async fn finish(&mut self) -> Result<(), String> {
        self.calm().await?;
        self.plan.window = usize::MAX >> 1;
        for client in 0..self.peers.len() {
            self.peers[client].pipe.reset(0);
            self.replace(client);
        }
        self.calm().await?;
        if let Some(peer) = self.left.first() {
            return Err(format!("connection {} goes on, which was reset", peer.connection));
        }
        let reader = self.connect_as(Role::Plain { is_resp3: false });
        for request in reads_of_all() {
            self.send(&reader.pipe, reader.connection, request);
        }
        self.peers.push(reader);
        self.calm().await?;
        self.note_happened();
        Ok(())
    }
}

fn digest(bytes: &[u8]) -> u64 {
    let mut digest = crate::trace::Digest::default();
    digest.add(bytes);
    digest.0
}
