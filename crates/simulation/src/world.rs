//! One run: server, clients, links, disk and time on one thread, in an order that the seed decides.
//!
//! While the server is inside a disk call, the rest of the world can continue: the disk calls back
//! here. So what other threads would do meanwhile happens on the same thread.

mod calm;
mod packing;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use zodium_disk::{Clock, FaultyDisk, ManualClock, MemoryDisk, Operation, PowerCut};
use zodium_types::Tid;

use crate::client::{Client, Surroundings};
use crate::counts::Counts;
use crate::history::History;
use crate::pipe::Pipe;
use crate::plan::Plan;
use crate::random::Chance;
use crate::server::Server;
use crate::trace::Trace;

/// 2026, in nanoseconds since the Unix epoch.
const BEGIN: u64 = 1_767_225_600_000_000_000;
/// Disk operations that can be interrupted.
const INTERRUPTIBLE: [Operation; 6] = [
    Operation::Write,
    Operation::Sync,
    Operation::Reserve,
    Operation::Read,
    Operation::Folder,
    Operation::Open,
];
/// Most steps for which a client sleeps, or a worker ignores its connections.
const ABSENCE_STEPS_MAX: u64 = 4000;
/// Most reads that a pack overtakes between the disk and the worker that requested them.
const OVERTAKEN_MAX: u64 = 20;
/// Most client steps within one disk call.
const INTERRUPTION_STEPS_MAX: u64 = 30;
/// The same within a pack: enough for commits, which it then has to copy.
const PACK_INTERRUPTION_STEPS_MAX: u64 = 500;
/// Most milliseconds that pass at once.
const PASS_MS_MAX: u64 = 1000;
/// In the calm phase: transactions that clients have abandoned expire soon.
const CALM_PASS_MS_MAX: u64 = 10_000;

thread_local! {
    /// The run on this thread, for callbacks of the disk.
    static CURRENT: RefCell<Option<Rc<World>>> = const { RefCell::new(None) };
}

/// The state of a run.
pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) chance: Chance,
    pub(crate) trace: RefCell<Trace>,
    pub(crate) clock: Arc<ManualClock>,
    server: RefCell<Option<Rc<Server>>>,
    pub(crate) clients: RefCell<Vec<Client>>,
    pub(crate) history: RefCell<History>,
    pub(crate) counts: RefCell<Counts>,
    known: Cell<Tid>,
    /// Connections that clients have abandoned without closing.
    silent: RefCell<Vec<Pipe>>,
    /// The content of the disk after a crash, from the moment of the crash on.
    pub(crate) crashed: RefCell<Option<MemoryDisk>>,
    /// The content of the disk before the last write; for injected bugs.
    stale: RefCell<Option<MemoryDisk>>,
    /// Whether the calm phase has begun: no more faults and no new tasks.
    pub(crate) is_calm: Cell<bool>,
    violation: RefCell<Option<String>>,
    /// Nesting depth of disk calls of the server.
    depth: Cell<u32>,
    /// Whether a pack is running.
    is_packing: Cell<bool>,
    /// Whether the checksums are being synced.
    is_syncing: Cell<bool>,
    /// Steps so far, nested ones included.
    steps: Cell<u64>,
    /// The step until which each client sleeps: messages to it are delayed, and it sends nothing.
    asleep: RefCell<Vec<u64>>,
    /// A worker that handles only notices, and until which step.
    stalled: Cell<(usize, u64)>,
}

impl World {
    pub(crate) fn new(seed: u64, plan: Plan, chance: Chance, prints: bool) -> Rc<World> {
        let clients = (0..plan.clients).map(Client::new).collect();
        let asleep = vec![0; plan.clients];
        let mut trace = Trace::new(prints);
        trace.event("seed", &[seed]);
        let world = Rc::new(World {
            plan,
            chance,
            trace: RefCell::new(trace),
            clock: Arc::new(ManualClock::at(BEGIN)),
            server: RefCell::default(),
            clients: RefCell::new(clients),
            history: RefCell::default(),
            counts: RefCell::default(),
            known: Cell::new(Tid::ZERO),
            silent: RefCell::default(),
            crashed: RefCell::default(),
            stale: RefCell::default(),
            is_calm: Cell::new(false),
            violation: RefCell::default(),
            depth: Cell::new(0),
            is_packing: Cell::new(false),
            is_syncing: Cell::new(false),
            steps: Cell::new(0),
            asleep: RefCell::new(asleep),
            stalled: Cell::new((0, 0)),
        });
        CURRENT.with(|current| *current.borrow_mut() = Some(Rc::clone(&world)));
        world
    }

    /// Drops this thread's reference to the run.
    pub(crate) fn leave() {
        CURRENT.with(|current| current.borrow_mut().take());
    }

    pub(crate) fn event(&self, what: &'static str, numbers: &[u64]) {
        self.trace.borrow_mut().event(what, numbers);
    }

    /// Records a violation; the first one counts.
    pub(crate) fn check(&self, outcome: Result<(), String>) {
        if let Err(what) = outcome {
            self.violation.borrow_mut().get_or_insert(what);
        }
    }

    pub(crate) fn violation(&self) -> Option<String> {
        self.violation.borrow().clone()
    }

    pub(crate) fn server(&self) -> Option<Rc<Server>> {
        self.server.borrow().clone()
    }

    /// Runs one random step.
    pub(crate) fn step(self: &Rc<Self>) {
        match self.chance.number(0..=99) {
            0..=9 => self.write(),
            10..=19 => self.run_job(),
            20..=89 => self.run_light(),
            90..=95 => {
                self.let_time_pass();
                self.keep_checksums_up();
            }
            _ => self.go_wrong(),
        }
        if self.crashed.borrow().is_some() {
            self.restart_after_crash();
        }
    }

    /// Runs a step of clients, links or workers: all that may happen during a disk call.
    fn run_light(&self) {
        let Some(server) = self.server() else { return };
        self.steps.set(self.steps.get() + 1);
        match self.chance.number(0..=9) {
            0 | 1 => {
                let worker = self.chance.place(server.workers());
                if !self.is_stalled(worker) {
                    server.run_connections(worker);
                }
            }
            2 => {
                server.run_notices(self.chance.place(server.workers()));
            }
            3 if self.chance.permille(300) => self.deliver_last_words(),
            _ => self.run_client(self.chance.place(self.plan.clients), &server),
        }
    }

    fn is_stalled(&self, worker: usize) -> bool {
        let (stalled, until) = self.stalled.get();
        stalled == worker && self.steps.get() < until && !self.is_calm.get()
    }

    fn run_client(&self, number: usize, server: &Server) {
        if self.steps.get() < self.asleep.borrow()[number] && !self.is_calm.get() {
            return;
        }
        let mut clients = self.clients.borrow_mut();
        let client = &mut clients[number];
        let mut surroundings = self.surroundings();
        let mut with = surroundings.lend(self);
        let Some(pipe) = client.pipe().cloned() else {
            if self.crashed.borrow().is_none() {
                let (pipe, end) = Pipe::new(self.plan.window);
                self.event("connect", &[number as u64]);
                server.accept(self.chance.place(server.workers()), end, format!("client {number}"));
                client.connect(pipe);
            }
            return;
        };
        if pipe.is_over() {
            let reason = client.reason_of_end(&self.plan, self.clock.monotonic());
            self.check(reason.map(|reason| self.event(reason, &[number as u64])));
            client.disconnect(&mut with);
            return;
        }
        let chunk = match self.is_calm.get() {
            true => usize::MAX,
            false => self.chance.size(self.plan.chunk_bytes) as usize,
        };
        let outcome = match self.chance.number(0..=2) {
            0 if pipe.requests_under_way() > 0 => {
                pipe.deliver_requests(chunk);
                Ok(())
            }
            1 if client.is_idle() && !self.is_calm.get() => client.begin(&mut with),
            _ if pipe.replies_under_way() > 0 => client.receive(chunk, &mut with),
            _ => {
                pipe.deliver_requests(chunk);
                Ok(())
            }
        };
        self.known.set(surroundings.known);
        let (sent, coming) = (pipe.requests_under_way(), pipe.replies_under_way());
        drop(surroundings);
        self.event("client", &[number as u64, sent as u64, coming as u64, client.heard()]);
        self.check(outcome.map_err(|error| format!("client {number}: {error}")));
    }

    /// Delivers the last bytes of a client that has closed its side; or the server has ended the
    /// connection of one that has gone.
    fn deliver_last_words(&self) {
        let mut left = self.silent.borrow_mut();
        let place = self.chance.place(left.len());
        let Some(pipe) = left.get(place) else { return };
        if pipe.is_finished() {
            pipe.deliver_requests(self.chance.size(self.plan.chunk_bytes) as usize);
        } else if pipe.is_ended_by_server() {
            let reason = self.plan.reason_of_end();
            self.check(reason.map(|reason| self.event(reason, &[])));
            left.swap_remove(place);
        }
    }

    fn surroundings(&self) -> Borrowed<'_> {
        Borrowed {
            history: self.history.borrow_mut(),
            counts: self.counts.borrow_mut(),
            known: self.known.get(),
        }
    }

    /// Runs a round of the log writer.
    fn write(&self) {
        let Some(server) = self.server() else { return };
        // One writer at a time, and none while a pack replaces the file.
        if server.file.is_appending() {
            return;
        }
        if self.plan.bug == crate::InjectedBug::SyncsDoNothing {
            *self.stale.borrow_mut() = Some(server.disk.files().after_power_cut());
        }
        self.arm(&server.disk);
        self.depth.set(self.depth.get() + 1);
        let was_failed = server.storage.write_failure().is_some();
        let count = server.write();
        self.depth.set(self.depth.get() - 1);
        self.event("write", &[count as u64]);
        if was_failed && server.storage.write_failure().is_none() {
            self.event("reopened", &[server.file.size()]);
        }
        self.absorb(&server);
    }

    /// Reads what was appended to the file.
    fn absorb(&self, server: &Server) {
        // What is written after a crash never happened.
        if self.crashed.borrow().is_none() {
            let size = server.file.size();
            let absorbed = self.history.borrow_mut().absorb(server.disk.files(), size);
            self.check(absorbed.map(|_| ()));
            self.check(server.check_announcements());
        }
    }

    fn run_job(&self) {
        let Some(server) = self.server() else { return };
        if server.jobs() == 0 {
            return;
        }
        let job = server.take_job(self.chance.place(server.jobs()));
        self.event("job", &[server.jobs() as u64]);
        self.arm(&server.disk);
        self.depth.set(self.depth.get() + 1);
        job();
        self.depth.set(self.depth.get() - 1);
    }

    /// Makes a worker handle only its notices for a while. Finished reads for its clients then
    /// reach them after further commits, or after a pack.
    fn stall(&self, server: &Server) {
        let worker = self.chance.place(server.workers());
        let until = self.steps.get() + self.chance.size(ABSENCE_STEPS_MAX);
        self.stalled.set((worker, until));
        self.event("stall", &[worker as u64, until]);
        for _ in 0..self.chance.number(0..=OVERTAKEN_MAX) {
            self.run_job();
        }
    }

    fn sleep(&self) {
        let number = self.chance.place(self.plan.clients);
        let until = self.steps.get() + self.chance.size(ABSENCE_STEPS_MAX);
        self.asleep.borrow_mut()[number] = until;
        self.event("sleep", &[number as u64, until]);
    }

    /// Not during another disk call, which may hold locks that this needs.
    fn keep_checksums_up(&self) {
        let Some(server) = self.server() else { return };
        if server.file.is_appending() {
            return;
        }
        let syncs = self.chance.permille(200);
        self.arm(&server.disk);
        self.depth.set(self.depth.get() + 1);
        server.keep_checksums_up();
        self.depth.set(self.depth.get() - 1);
        if syncs {
            // Other work would wait for it on this very thread. But a crash may happen.
            self.arm(&server.disk);
            self.is_syncing.set(true);
            self.depth.set(self.depth.get() + 1);
            server.sync_checksums();
            self.depth.set(self.depth.get() - 1);
            self.is_syncing.set(false);
        }
    }

    fn let_time_pass(&self) {
        let most = if self.is_calm.get() { CALM_PASS_MS_MAX } else { PASS_MS_MAX };
        self.clock.advance(Duration::from_millis(self.chance.size(most)));
    }

    /// Injects a random fault.
    fn go_wrong(self: &Rc<Self>) {
        if self.is_calm.get() {
            return;
        }
        if self.chance.permille(self.plan.disconnects) {
            self.lose_connection();
        } else if self.chance.permille(self.plan.clock_jumps) {
            self.jump_in_time();
        } else if self.chance.permille(self.plan.faults) {
            self.break_disk();
        } else if self.chance.permille(self.plan.crashes) {
            self.crash();
        } else if self.chance.permille(self.plan.sleeps) {
            self.sleep();
        } else if self.plan.packs && self.chance.permille(self.pack_permille()) {
            self.pack();
        } else if self.chance.permille(2) {
            self.restart_in_order();
        } else if let Some(server) = self.server()
            && server.storage.commit_status().failed
            && !self.is_reopening()
            && self.chance.permille(100)
        {
            self.crash();
        }
    }

    fn lose_connection(&self) {
        let number = self.chance.place(self.plan.clients);
        let mut surroundings = self.surroundings();
        let lost = self.clients.borrow_mut()[number].disconnect(&mut surroundings.lend(self));
        let Some(pipe) = lost else { return };
        let how = self.chance.number(0..=2);
        self.event("disconnect", &[number as u64, how]);
        match how {
            0 => {
                // What was sent before still arrives at some time.
                pipe.finish();
                self.silent.borrow_mut().push(pipe);
            }
            1 => pipe.reset(0),
            _ => self.silent.borrow_mut().push(pipe),
        }
    }

    fn jump_in_time(&self) {
        let now = self.clock.unix_nanos();
        let by = Duration::from_secs(self.chance.size(100_000)).as_nanos() as u64;
        match self.chance.number(0..=2) {
            0 => self.clock.advance(Duration::from_secs(self.chance.size(100))),
            1 => self.clock.set_unix_nanos(now.saturating_sub(by)),
            _ => self.clock.set_unix_nanos(now + by.min(3_600_000_000_000)),
        }
        self.event("clock", &[self.clock.unix_nanos()]);
    }

    fn break_disk(&self) {
        let Some(server) = self.server() else { return };
        let kind = self.chance.number(0..=3);
        self.event("fault", &[kind]);
        let (nth, times) = (self.chance.number(1..=5), self.chance.size(8));
        let fail = |operation| {
            server.disk.fail_times(operation, nth, times, std::io::ErrorKind::Other);
        };
        match kind {
            0 => fail(Operation::Write),
            1 => fail(Operation::Sync),
            2 => fail(Operation::Read),
            _ => {
                let files = server.disk.files();
                let is_full = self.chance.permille(500);
                files.set_capacity(if is_full { files.used_bytes() } else { u64::MAX / 2 });
            }
        }
    }

    /// Makes the next disk operation of a random kind call back.
    fn arm(&self, disk: &FaultyDisk) {
        if self.chance.permille(self.plan.interruptions) {
            let operation = INTERRUPTIBLE[self.chance.place(INTERRUPTIBLE.len())];
            disk.before_next(operation, || {
                let world = CURRENT.with(|current| current.borrow().clone());
                if let Some(world) = world {
                    world.interrupted();
                }
            });
        }
    }

    /// Called by the disk before an operation.
    fn interrupted(self: &Rc<Self>) {
        // Meant for a call at another place: workers are never interrupted.
        if self.depth.get() == 0 || self.violation.borrow().is_some() {
            return;
        }
        let Some(server) = self.server() else { return };
        self.event("interruption", &[u64::from(self.depth.get())]);
        if !self.is_calm.get() && self.chance.permille(10 * self.plan.crashes) {
            self.take_image();
        }
        if self.is_syncing.get() {
            return self.arm(&server.disk);
        }
        let depth = self.depth.replace(0);
        let is_in_pack = self.is_packing.get() && depth == 1;
        let most = if is_in_pack { PACK_INTERRUPTION_STEPS_MAX } else { INTERRUPTION_STEPS_MAX };
        for _ in 0..self.chance.size(most) {
            match self.chance.number(0..=19) {
                0 if is_in_pack => {
                    self.depth.set(depth);
                    self.write();
                    self.depth.set(0);
                }
                1 => self.let_time_pass(),
                2 if !self.is_calm.get() && self.chance.permille(self.plan.disconnects) => {
                    self.lose_connection();
                }
                _ => self.run_light(),
            }
        }
        self.depth.set(depth);
        self.arm(&server.disk);
    }

    fn crash(self: &Rc<Self>) {
        self.take_image();
    }

    /// Crashes the server: what it does from now on is lost.
    fn take_image(&self) {
        let Some(server) = self.server() else { return };
        if self.crashed.borrow().is_some() {
            return;
        }
        let how = self.chance.place(PowerCut::KINDS.len() + 1);
        self.event("crash", &[how as u64]);
        let files = server.disk.files();
        let stale = self.stale.borrow_mut().take();
        let mut choose = |choices: u64| self.chance.number(0..=choices.saturating_sub(1));
        let image = match (stale, PowerCut::KINDS.get(how)) {
            (Some(stale), _) => stale,
            (None, Some(cut)) => files.after(cut, &mut choose),
            (None, None) => files.after_kill(),
        };
        *self.crashed.borrow_mut() = Some(image);
        self.cut_connections();
    }

    /// Resets all connections; some bytes in transit still arrive.
    fn cut_connections(&self) {
        // During a client's step no client can be borrowed, and no crash happens.
        for client in self.clients.borrow().iter() {
            if let Some(pipe) = client.pipe() {
                pipe.reset(self.chance.number(0..=pipe.replies_under_way() as u64) as usize);
            }
        }
        self.silent.borrow_mut().drain(..).for_each(|pipe| pipe.reset(0));
    }

    fn restart_after_crash(self: &Rc<Self>) {
        if let Some(server) = self.server.borrow_mut().take() {
            server.disk.mend();
            server.drain();
        }
        let image = self.crashed.borrow_mut().take();
        if let Some(image) = image {
            self.start(image);
        }
    }

    /// Stops the server in an orderly way, and starts another one.
    pub(crate) fn restart_in_order(self: &Rc<Self>) {
        let Some(server) = self.server() else { return };
        self.event("restart", &[]);
        server.disk.mend();
        while server.write() > 0 {}
        self.absorb(&server);
        for worker in 0..server.workers() {
            server.run_notices(worker);
            server.run_connections(worker);
        }
        let is_failed = server.storage.commit_status().failed;
        if let (Err(error), false) = (server.storage.close(), is_failed || self.plan.faults > 0) {
            self.check(Err(format!("cannot close: {error}")));
        }
        self.cut_connections();
        let files = server.disk.files().after_kill();
        drop(server);
        *self.crashed.borrow_mut() = Some(files);
        self.restart_after_crash();
    }

    /// Opens the file on a disk and serves it.
    pub(crate) fn start(self: &Rc<Self>, files: MemoryDisk) {
        files.set_capacity(u64::MAX / 2);
        let disk = FaultyDisk::new(files);
        let clock: Arc<dyn Clock> = self.clock.clone();
        let server = match Server::start(disk, clock, &self.plan.setting()) {
            Ok(server) => server,
            Err(error) => return self.check(Err(format!("cannot open the file: {error}"))),
        };
        let absorbed = self.absorb_all(&server);
        self.event("start", &[server.file.size()]);
        server.disk.forget_every(self.plan.cold_every);
        if self.chance.permille(500) {
            server.disk.forget_failed_syncs();
        }
        *self.server.borrow_mut() = Some(Rc::new(server));
        self.check(absorbed);
    }

    fn absorb_all(&self, server: &Server) -> Result<(), String> {
        let size = server.file.size();
        let mut history = self.history.borrow_mut();
        history.absorb(server.disk.files(), size)?;
        let (told, known) = (server.file.last_tid(), history.last_tid());
        (told == known)
            .then_some(())
            .ok_or_else(|| format!("the file was opened at {told}, but ends with {known}"))
    }
}

/// The parts of the world that a client's step borrows.
struct Borrowed<'a> {
    history: std::cell::RefMut<'a, History>,
    counts: std::cell::RefMut<'a, Counts>,
    known: Tid,
}

impl Borrowed<'_> {
    fn lend<'a>(&'a mut self, world: &'a World) -> Surroundings<'a> {
        Surroundings {
            plan: &world.plan,
            chance: &world.chance,
            history: &mut self.history,
            counts: &mut self.counts,
            known: &mut self.known,
            now: world.clock.monotonic(),
        }
    }
}
