//! A client that commits, as a state machine driven by replies.
//!
//! It never blocks: each reply leads to the next request, so that one thread serves many clients.
//! The generator sends the requests.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use zodium_pickle::Value;
use zodium_types::{Oid, Tid};
use zodium_zeo::codec::MessageId;

use super::content::Content;
use super::journal::{Journal, Known};
use super::link::{Answer, Link};
use crate::options::Mode;
use crate::result::Latencies;

/// Names of the steps of a commit, and of the whole. Begin and stores are no steps: they have no
/// reply, and leave with the vote.
pub(super) const OPERATIONS: [&str; 3] = ["vote", "finish", "whole"];
const VOTE: usize = 0;
const FINISH: usize = 1;
const WHOLE: usize = 2;

/// A client and its results.
pub(super) struct Client {
    link: Link,
    content: Arc<Content>,
    mode: Mode,
    /// Number of objects in a transaction.
    objects: usize,
    random: SmallRng,
    state: State,
    /// Unused oids.
    fresh: Vec<Oid>,
    /// The objects that it updates.
    own: Vec<Known>,
    /// The place of the shared object that the current transaction writes.
    place: Option<usize>,
    /// What the current transaction writes, as of after its commit.
    chosen: Vec<Known>,
    /// The serials that `chosen` replaces.
    replaced: Vec<Tid>,
    number: u64,
    last_tid: Tid,
    began: Instant,
    step_began: Instant,
    journal: Journal,
    metrics: ClientMetrics,
}

/// Results, recorded while counting.
pub(super) struct ClientMetrics {
    pub(super) commits: u64,
    pub(super) conflicts: u64,
    /// Latencies of [`OPERATIONS`].
    pub(super) operations: [Latencies; 3],
}

/// The pending request.
#[derive(Debug)]
enum State {
    Idle,
    Oids(MessageId),
    Load(MessageId),
    Vote(MessageId),
    Finish(MessageId),
    Abort(MessageId),
}

impl Client {
    /// Creates a client without objects; it makes its own, or shares those of others.
    pub(super) fn new(
        link: Link,
        content: Arc<Content>,
        mode: Mode,
        objects: usize,
        seed: u64,
    ) -> Result<Client> {
        let now = Instant::now();
        Ok(Client {
            link,
            content,
            mode,
            objects: if mode.is_shared() { 1 } else { objects },
            random: SmallRng::seed_from_u64(seed),
            state: State::Idle,
            fresh: Vec::new(),
            own: Vec::new(),
            place: None,
            chosen: Vec::new(),
            replaced: Vec::new(),
            number: seed << 32,
            last_tid: Tid::ZERO,
            began: now,
            step_began: now,
            journal: Journal::default(),
            metrics: ClientMetrics::new()?,
        })
    }

    pub(super) fn link(&mut self) -> &mut Link {
        &mut self.link
    }

    pub(super) fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle)
    }

    /// The objects that it updates.
    pub(super) fn own(&self) -> &[Known] {
        &self.own
    }

    pub(super) fn share(&mut self, own: &[Known]) {
        self.own = own.to_vec();
    }

    pub(super) fn into_results(self) -> (Journal, ClientMetrics) {
        (self.journal, self.metrics)
    }

    /// Commits new objects for later updates, and waits for it.
    pub(super) fn make_own(&mut self, count: usize) -> Result<()> {
        while self.fresh.len() < count {
            let oids = self.link.call("new_oids", &Value::tuple([]), Duration::ZERO)?;
            self.take_oids(&oids)?;
        }
        let oids = self.fresh.split_off(self.fresh.len() - count);
        self.choose(oids.into_iter().map(|oid| Known { oid, serial: Tid::ZERO, count: 0 }));
        self.put_stores()?;
        let number = self.argument();
        self.link.call("vote", &number, Duration::ZERO)?;
        let tid = self.link.call("tpc_finish", &number, Duration::ZERO)?;
        self.acknowledge(&tid)?;
        self.own = std::mem::take(&mut self.chosen);
        Ok(())
    }

    /// Begins the next transaction.
    pub(super) fn start(&mut self) -> Result<()> {
        self.began = Instant::now();
        match self.mode {
            Mode::Add if self.fresh.len() < self.objects => {
                self.state = State::Oids(self.link.request("new_oids", &Value::tuple([]))?);
                Ok(())
            }
            Mode::Add => {
                let oids = self.fresh.split_off(self.fresh.len() - self.objects);
                self.choose(oids.into_iter().map(|oid| Known { oid, serial: Tid::ZERO, count: 0 }));
                self.commit()
            }
            Mode::Update => {
                let first = self.random.random_range(0..self.own.len());
                let own: Vec<Known> =
                    self.own.iter().cycle().skip(first).take(self.objects).copied().collect();
                self.choose(own.into_iter());
                self.commit()
            }
            Mode::Conflict | Mode::ConflictAny => {
                let place = self.place.take();
                let place = place.unwrap_or_else(|| self.random.random_range(0..self.own.len()));
                self.place = Some(place);
                let known = self.own.get(place).context("no objects to write")?;
                self.state = State::Load(self.link.load(known.oid)?);
                Ok(())
            }
        }
    }

    /// Handles replies that have arrived. Returns whether a transaction has ended, so that the next
    /// one may begin.
    pub(super) fn take_turn(&mut self, received: &[u8], counting: bool) -> Result<bool> {
        let answers = self.link.answers(received)?;
        let now = Instant::now();
        let mut is_over = false;
        for answer in answers {
            is_over |= self.take(answer, now, counting)?;
        }
        Ok(is_over)
    }

    fn take(&mut self, answer: Answer, now: Instant, counting: bool) -> Result<bool> {
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Idle => bail!("{:?} was answered, but nothing was asked", answer.id),
            State::Oids(id) => {
                self.take_oids(&answer.expect(&id)?)?;
                self.start()?;
            }
            State::Load(id) => {
                self.take_load(&answer.expect(&id)?)?;
                self.commit()?;
            }
            State::Vote(id) => self.take_vote(answer, &id, now, counting)?,
            State::Abort(id) => {
                answer.expect(&id)?;
                let began = self.began;
                if self.mode == Mode::ConflictAny {
                    self.place = None;
                }
                self.start()?;
                // A further attempt of the same transaction, timed as a whole.
                self.began = began;
            }
            State::Finish(id) => {
                self.acknowledge(&answer.expect(&id)?)?;
                self.place = None;
                if counting {
                    self.metrics.record(FINISH, self.step_began, now);
                    self.metrics.record(WHOLE, self.began, now);
                    self.metrics.commits += 1;
                }
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn take_oids(&mut self, oids: &Value<'_>) -> Result<()> {
        let oids = oids.as_sequence().context("new_oids was answered with no list")?;
        let oids: Option<Vec<Oid>> = oids.iter().rev().map(Value::as_oid).collect();
        self.fresh.splice(0..0, oids.context("new_oids was answered with no oids")?);
        Ok(())
    }

    fn take_load(&mut self, answer: &Value<'_>) -> Result<()> {
        let parts = answer.as_sequence().context("a load was answered with no sequence")?;
        let serial = parts.get(1).and_then(Value::as_tid).context("a load has no tid")?;
        let data = parts.first().and_then(Value::as_bytes).context("a load has no data")?;
        let oid = data.get(self.content.oid_range()).and_then(Oid::from_slice);
        let oid = oid.context("data are shorter than stored")?;
        ensure!(self.own.iter().any(|known| known.oid == oid), "another object was answered");
        let count = self.content.check(oid, data)?;
        self.choose([Known { oid, serial, count }].into_iter());
        Ok(())
    }

    fn take_vote(
        &mut self,
        answer: Answer,
        id: &MessageId,
        now: Instant,
        counting: bool,
    ) -> Result<()> {
        let is_conflict = match &answer.result {
            Err(raised) => raised.name == "ZODB.POSException.ConflictError",
            Ok(value) => value.as_sequence().is_some_and(|items| !items.is_empty()),
        };
        if is_conflict && self.mode.is_shared() {
            self.metrics.conflicts += u64::from(counting);
            let number = self.argument();
            self.state = State::Abort(self.link.request("tpc_abort", &number)?);
            return Ok(());
        }
        let voted = answer.expect(id)?;
        ensure!(voted.as_sequence().is_some_and(<[_]>::is_empty), "vote answered {voted:?}");
        if counting {
            self.metrics.record(VOTE, self.step_began, now);
        }
        self.step_began = now;
        let number = self.argument();
        self.state = State::Finish(self.link.request("tpc_finish", &number)?);
        Ok(())
    }

    /// Selects the objects to write, and increments their counts.
    fn choose(&mut self, objects: impl Iterator<Item = Known>) {
        self.chosen.clear();
        self.replaced.clear();
        for known in objects {
            self.replaced.push(known.serial);
            self.chosen.push(Known { count: known.count + 1, ..known });
        }
    }

    /// Begins, stores and votes, in one piece.
    fn commit(&mut self) -> Result<()> {
        self.put_stores()?;
        self.step_began = Instant::now();
        let number = self.argument();
        self.state = State::Vote(self.link.request("vote", &number)?);
        Ok(())
    }

    /// Buffers begin and stores.
    fn put_stores(&mut self) -> Result<()> {
        self.number += 1;
        let number = || Value::Int(self.number.into());
        let empty = || Value::from(&b""[..]);
        let metadata = [empty(), empty(), Value::Dict(Vec::new()), Value::None, " ".into()];
        let begin = Value::tuple([number()].into_iter().chain(metadata));
        self.link.tell("tpc_begin", &begin)?;
        for (known, serial) in self.chosen.iter().zip(&self.replaced) {
            let data = self.content.data(known.oid, known.count);
            let store = [known.oid.into(), (*serial).into(), Value::from(&data[..]), number()];
            self.link.tell("storea", &Value::tuple(store))?;
        }
        Ok(())
    }

    fn acknowledge(&mut self, tid: &Value<'_>) -> Result<()> {
        let tid = tid.as_tid().context("a commit was answered with something else than a tid")?;
        ensure!(tid > self.last_tid, "a commit got {tid} after {}", self.last_tid);
        self.last_tid = tid;
        for known in &mut self.chosen {
            known.serial = tid;
            self.journal.note(*known);
            if self.mode == Mode::Update
                && let Some(own) = self.own.iter_mut().find(|own| own.oid == known.oid)
            {
                *own = *known;
            }
        }
        Ok(())
    }

    fn argument(&self) -> Value<'static> {
        Value::tuple([Value::Int(self.number.into())])
    }
}

impl ClientMetrics {
    fn new() -> Result<ClientMetrics> {
        let operations = [Latencies::new()?, Latencies::new()?, Latencies::new()?];
        Ok(ClientMetrics { commits: 0, conflicts: 0, operations })
    }

    fn record(&mut self, operation: usize, began: Instant, ended: Instant) {
        if let Some(latencies) = self.operations.get_mut(operation) {
            latencies.record(ended.saturating_duration_since(began));
        }
    }
}
