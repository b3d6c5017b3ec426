//! A run from start to end: a new file, steps with faults, a calm phase, and the final checks.

use std::fmt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use zodium_disk::{Disk, FaultyDisk, MemoryDisk};
use zodium_filestorage::{CheckOptions, FileStorage, check};
use zodium_storage::{Access, Applier, Load, LogItem, StorageError};
use zodium_types::{Oid, Tid, TransactionStatus, fix_oid_hashes};

use crate::counts::Counts;
use crate::coverage::Coverage;
use crate::history::{History, Tried, path};
use crate::plan::{EXPIRED, InjectedBug, LEFT_BEHIND, Objects, Plan};
use crate::random::Chance;
use crate::record::{Attempt, record};
use crate::server::open_options;
use crate::trace::Events;
use crate::world::World;

/// Steps without faults within which every client must finish.
const CALM_STEPS_MAX: u64 = 1_000_000;
/// Steps between two checks whether all have finished.
const CALM_STEPS: u64 = 500;

/// What has to happen.
const COVERAGE: Coverage = Coverage {
    runs: 50,
    steps: 20_000,
    kinds: &[
        "crash",
        "disconnect",
        EXPIRED,
        LEFT_BEHIND,
        "fault",
        "reopened",
        "clock",
        "pack",
        "pack that freed",
        "restart",
        "interruption",
        "sleep",
        "stall",
    ],
    least: 1,
};

/// Options of a run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Decides every random choice.
    pub seed: u64,
    /// Steps before the calm phase.
    pub steps: u64,
    /// Whether to print each event.
    pub trace: bool,
    /// The injected bug, if any.
    pub bug: InjectedBug,
}

/// The results of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What happened.
    pub events: Events,
    /// What clients have done.
    pub counts: Counts,
    /// Transactions in the file, acknowledged or not.
    pub transactions: u64,
}

impl Report {
    /// Adds the results of another run.
    pub fn add(&mut self, other: &Report) {
        self.events.add(&other.events);
        self.transactions += other.transactions;
        self.counts.add(&other.counts);
    }

    /// What did not happen in this many runs of this many steps, and has to.
    pub fn lacking(&self, runs: u64, steps: u64) -> Vec<&'static str> {
        let always = [("reads", self.counts.reads), ("commits", self.counts.commits)];
        let (happened, counts) = (&self.events.happened, self.counts.named());
        COVERAGE.lacking((runs, steps), happened, &always, &counts)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { events, counts, transactions } = self;
        write!(f, "{events}\n{transactions} transactions; {counts}")
    }
}

/// A violated invariant.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The seed of the run.
    pub seed: u64,
    /// The step in which it was found.
    pub step: u64,
    /// What was found.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Violation { seed, step, what } = self;
        write!(f, "seed {seed}, step {step}: {what}")
    }
}

/// Runs one seed.
///
/// # Errors
///
/// The first violation.
pub fn run(options: &Options) -> Result<Report, Violation> {
    let Options { seed, steps, trace, bug } = *options;
    fix_oid_hashes();
    let chance = Chance::new(seed);
    let plan = Plan::new(&chance, bug);
    if trace {
        println!("{plan:#?}");
    }
    let world = World::new(seed, plan, chance, trace);
    let (step, outcome) = drive(&world, steps);
    World::leave();
    match outcome {
        Ok(()) => Ok(report(&world)),
        Err(what) => Err(Violation { seed, step, what }),
    }
}

fn drive(world: &Rc<World>, steps: u64) -> (u64, Result<(), String>) {
    if let Err(what) = begin(world) {
        return (0, Err(what));
    }
    for step in 0..steps {
        if let Some(what) = world.violation() {
            return (step, Err(what));
        }
        world.step();
    }
    (steps, come_to_rest(world).and_then(|()| look_at_everything(world)))
}

fn report(world: &World) -> Report {
    Report {
        events: world.trace.borrow().events(),
        counts: *world.counts.borrow(),
        transactions: world.history.borrow().transactions.len() as u64,
    }
}

/// Makes a file that contains every object once.
fn begin(world: &Rc<World>) -> Result<(), String> {
    let files = MemoryDisk::new();
    let first = world.plan.objects.first_values(world.plan.clients);
    let data = |(oid, values): (Oid, Vec<u64>)| (oid, record(oid, Attempt(0), &values, 0));
    let data: Vec<_> = first.into_iter().map(data).collect();
    let writes = data.iter().map(|(oid, data)| (*oid, (Tid::ZERO, data.clone())));
    let tried = Tried { writes: writes.collect(), asked: true, ..Tried::default() };
    world.history.borrow_mut().attempts.push(tried);
    write_first(&files, &data).map_err(|error| format!("cannot make a file: {error}"))?;
    world.start(files);
    world.violation().map_or(Ok(()), Err)
}

fn write_first(files: &MemoryDisk, data: &[(Oid, Bytes)]) -> Result<(), StorageError> {
    let file = FileStorage::open(Arc::new(files.clone()), &open_options())?;
    let (tid, status) = (Tid(1 << 32), TransactionStatus::Normal);
    let (user, description, extension) = (&[][..], &b"0"[..], &[][..]);
    let mut applier = Applier::new(&file);
    applier.apply(LogItem::Transaction { tid, status, user, description, extension })?;
    for (oid, data) in data {
        applier.apply(LogItem::Record { oid: *oid, data: Some(data), data_tid: None })?;
    }
    applier.finish()?;
    Ok(file.close()?)
}

/// The calm phase: no more faults, and every client must finish what it has begun.
fn come_to_rest(world: &Rc<World>) -> Result<(), String> {
    world.is_calm.set(true);
    world.event("calm", &[]);
    world.end_silence();
    for step in 0..CALM_STEPS_MAX {
        if let Some(what) = world.violation() {
            return Err(what);
        }
        if step % CALM_STEPS == 0 {
            if is_at_rest(world) {
                return Ok(());
            }
            world.mend_disk();
        }
        world.step();
    }
    let clients = world.clients.borrow();
    let stuck = clients.iter().filter(|client| !client.is_idle()).map(|c| c.describe());
    let stuck = stuck.collect::<Vec<_>>().join("; ");
    let file = if world.is_reopening() { "; the file is never reopened" } else { "" };
    Err(format!("a client waits for ever: {stuck}{file}"))
}

fn is_at_rest(world: &World) -> bool {
    let last = world.history.borrow().last_tid();
    let clients = world.clients.borrow();
    let are_idle = clients.iter().all(|client| client.is_idle() && client.told() == last);
    are_idle && !world.is_reopening()
}

fn look_at_everything(world: &Rc<World>) -> Result<(), String> {
    let server = world.server().ok_or("there is no server at the end")?;
    server.storage.close().map_err(|error| format!("cannot close at the end: {error}"))?;
    let files = server.disk.files().after_power_cut();
    let history = world.history.borrow();
    check_attempts(&history)?;
    check_sums(&history)?;
    check_file(&files)?;
    check_revisions(&files, &history)?;
    let index = Path::new("Data.fs.index");
    files.remove(index).map_err(|error| format!("cannot remove the index: {error}"))?;
    check_revisions(&files, &history).map_err(|error| format!("without the index: {error}"))
}

fn check_attempts(history: &History) -> Result<(), String> {
    for (number, tried) in history.attempts.iter().enumerate() {
        if tried.acknowledged.is_some() && tried.acknowledged != tried.committed {
            let Tried { acknowledged, committed, .. } = tried;
            return Err(format!(
                "attempt {number}: {acknowledged:?} was said, {committed:?} is so"
            ));
        }
    }
    Ok(())
}

/// Checks that every committed increment and every appended item counts exactly once.
fn check_sums(history: &History) -> Result<(), String> {
    let last = |oid: Oid| {
        let data = history.before(oid, Tid::MAX).map(|(_, data, _)| data);
        data.and_then(|data| crate::record::values(oid, data)).unwrap_or_default()
    };
    let written =
        |oid: Oid| history.transactions[1..].iter().filter(move |c| c.oids.contains(&oid));
    for (oid, _) in history.revisions() {
        if Objects::is_counter(oid) && last(oid) != [written(oid).count() as u64] {
            return Err(format!("counter {oid} is {:?} in the end", last(oid)));
        }
        if !Objects::is_log(oid) {
            continue;
        }
        for (client, items) in last(oid).into_iter().enumerate() {
            let own = |attempt: Attempt| history.attempts[attempt.place()].client == client;
            let appended = written(oid).filter(|c| own(c.attempt)).count() as u64;
            if items != appended {
                return Err(format!("log {oid} has {items} items of {client}, not {appended}"));
            }
        }
    }
    Ok(())
}

fn check_file(files: &MemoryDisk) -> Result<(), String> {
    let options = CheckOptions::new(path());
    let mut damages = Vec::new();
    let checked = check(files, &options, &mut |damage| damages.push(damage.clone()));
    checked.map_err(|error| format!("cannot check the file: {error}"))?;
    damages.first().map_or(Ok(()), |damage| Err(format!("the file is damaged: {damage:?}")))
}

/// Opens the file again and reads every revision of every object.
fn check_revisions(files: &MemoryDisk, history: &History) -> Result<(), String> {
    let disk = FaultyDisk::new(files.after_power_cut());
    let file = FileStorage::open(Arc::new(disk), &open_options())
        .map_err(|error| format!("cannot open the file in the end: {error}"))?;
    for (oid, revisions) in history.revisions() {
        for (place, (tid, data)) in revisions.iter().enumerate() {
            let next = revisions.get(place + 1).map(|(tid, _)| *tid);
            if next.is_some_and(|next| next <= history.packed) {
                continue;
            }
            match file.reader().load_before(oid, tid.next(), Access::Blocking) {
                Ok(Load::Revision(found))
                    if found.data == *data && found.serial == *tid && found.end == next => {}
                other => return Err(format!("{oid} of {tid} is in the end {other:?}")),
            }
        }
    }
    Ok(())
}
