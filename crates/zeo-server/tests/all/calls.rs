//! Random valid calls of eight clients, each answer checked against a model of the storage.
//!
//! Reads of all clients are sent at once, while no commit is running. Calls of commits are sent one
//! at a time, so that the model knows their order. Before any later answer, every client must have
//! been told of the others' commits, once and in order.

mod locks;
mod model;
mod reads;
mod writer;

use std::collections::{BTreeSet, VecDeque};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use zodium_pickle::Value;
use zodium_types::{Oid, Tid};
use zodium_zeo::codec::{Encoding, MessageId};

use crate::support::client::{Answer, Client};
use crate::support::server::{InProcess, Setup};
use crate::support::{Difference, same};
use locks::Locks;
use model::{StorageModel, Undone};
use writer::{Conflict, Kind, Outcome, Phase, Write, Writer};

const CLIENTS: usize = 8;
/// Few enough that clients conflict.
const OBJECTS: u64 = 24;
/// Number of calls after which the server is replaced.
const CALLS_EACH: u64 = 100_000;
/// Long enough for a frame buffer of its own, and to be sent without a copy.
const LONG_DATA_BYTES: usize = 80_000;

/// Counters of what has happened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// Calls of all kinds.
    pub(crate) calls: u64,
    /// Finished transactions.
    pub(crate) commits: u64,
    /// Those that undo another one.
    pub(crate) undos: u64,
    /// Votes that waited for locks.
    pub(crate) waits: u64,
    /// Votes that gave conflicts to resolve.
    pub(crate) conflicts: u64,
    /// Failed votes.
    pub(crate) refusals: u64,
    /// Packs that freed something.
    pub(crate) packs: u64,
}

/// Makes this many calls, or a few more.
///
/// # Errors
///
/// The first answer that differs from the model's, with what is needed to replay it.
///
/// Each server has this `setup`.
pub(crate) fn play(seed: u64, calls: u64, setup: &Setup) -> Result<Seen, Difference> {
    let (mut seen, mut round) = (Seen::default(), 0);
    while seen.calls < calls {
        let seed = seed.wrapping_add(round);
        let mut play = Play::start(seed, seen, setup.clone())?;
        let enough = calls.min(seen.calls + CALLS_EACH);
        while play.seen.calls < enough {
            let at = play.seen.calls - seen.calls;
            play.step().map_err(|Difference { what }| {
                let what = format!("seed {seed}, after {at} calls: {what}");
                Difference { what }
            })?;
        }
        round += 1;
        seen = play.seen;
        play.close()?;
    }
    Ok(seen)
}

struct Play {
    random: SmallRng,
    server: InProcess,
    clients: Vec<Player>,
    model: StorageModel,
    locks: Locks,
    seen: Seen,
    /// Makes all data and descriptions different.
    count: u64,
    given_oids: BTreeSet<Oid>,
}

struct Player {
    client: Client,
    writer: Writer,
    vote: Option<MessageId>,
    /// Whether the server may keep locks for its next transaction.
    may_have_locks: bool,
    /// Invalidations that it has not received yet.
    untold: VecDeque<(Tid, BTreeSet<Oid>)>,
}

impl Player {
    fn connect(server: &InProcess) -> Result<Player, Difference> {
        let client = Client::register(server.socket())?;
        let (writer, untold) = (Writer::default(), VecDeque::new());
        Ok(Player { client, writer, vote: None, may_have_locks: false, untold })
    }
}

impl Play {
    fn start(seed: u64, seen: Seen, setup: Setup) -> Result<Play, Difference> {
        let encoding = if seed.is_multiple_of(2) { Encoding::Pickle } else { Encoding::Msgpack };
        let server = InProcess::start_with(encoding, setup)?;
        let clients = (0..CLIENTS).map(|_| Player::connect(&server)).collect::<Result<_, _>>()?;
        let model = StorageModel::new(server.last_tid());
        Ok(Play {
            random: SmallRng::seed_from_u64(seed),
            server,
            clients,
            model,
            locks: Locks::default(),
            seen,
            count: 0,
            given_oids: BTreeSet::new(),
        })
    }

    fn close(mut self) -> Result<(), Difference> {
        self.read_all()?;
        drop(self.clients);
        self.server.close()
    }

    fn step(&mut self) -> Result<(), Difference> {
        let client = self.random.random_range(0..CLIENTS);
        match self.random.random_range(0..200) {
            0..8 => self.read_all(),
            8..10 => self.iterate(client),
            10 => self.new_oids(client),
            11 | 12 => self.pack(client),
            13 => self.reconnect(client),
            _ => self.write(client),
        }
    }

    fn write(&mut self, client: usize) -> Result<(), Difference> {
        match self.clients[client].writer.phase {
            Phase::Idle => self.begin(client),
            Phase::Open if self.random.random_ratio(1, 10) => self.abort(client),
            Phase::Open => self.vote(client),
            Phase::Waiting if self.random.random_ratio(1, 20) => self.abort(client),
            Phase::Waiting => Ok(()),
            Phase::Conflicted if self.random.random_ratio(1, 3) => self.abort(client),
            Phase::Conflicted => self.resolve(client),
            Phase::Voted if self.random.random_ratio(1, 10) => self.abort(client),
            Phase::Voted => self.finish(client),
        }
    }

    fn oid(&mut self) -> Oid {
        let number = self.random.random_range(0..OBJECTS);
        // Some oids are far apart.
        Oid(if number < OBJECTS - 2 { number } else { number << 40 })
    }

    /// A tid close to one that exists.
    fn tid(&mut self) -> Tid {
        let last = self.model.last_tids(60);
        if last.is_empty() || self.random.random_ratio(1, 4) {
            return Tid::MAX;
        }
        let tid = last[self.random.random_range(0..last.len())];
        if self.random.random() { tid } else { tid.next() }
    }

    fn data(&mut self) -> Vec<u8> {
        self.count += 1;
        let mut data = format!("data {} ", self.count).into_bytes();
        let length = match self.random.random_range(0..200) {
            0 => LONG_DATA_BYTES,
            1..10 => 5_000,
            _ => self.random.random_range(0..100),
        };
        data.resize(data.len() + length, b'.');
        data
    }

    fn begin(&mut self, client: usize) -> Result<(), Difference> {
        if std::mem::take(&mut self.clients[client].may_have_locks) {
            self.end_reservation(client)?;
        }
        self.count += 1;
        let description = format!("transaction {} of client {client}", self.count).into_bytes();
        let number = self.count;
        let mut writer = Writer { phase: Phase::Open, number, description, ..Writer::default() };
        if self.random.random_ratio(1, 12) {
            self.choose_undone(&mut writer);
        }
        if writer.undoes.is_none() {
            self.choose_writes(&mut writer);
        }
        let sent = send_writes(&mut self.clients[client].client, &writer)?;
        self.seen.calls += sent;
        self.clients[client].writer = writer;
        if self.random.random_ratio(3, 4) { self.vote(client) } else { Ok(()) }
    }

    /// Votes without an object: what the server kept for the client is free after the abort.
    ///
    /// Whether a vote would get these locks before those that wait depends on the time, which the
    /// model does not know.
    fn end_reservation(&mut self, client: usize) -> Result<(), Difference> {
        self.count += 1;
        self.seen.calls += 3;
        let client = &mut self.clients[client].client;
        client.begin(self.count)?;
        let voted = client.ask("vote", [self.count.into()])?;
        same("vote without an object", list_length(&voted), Some(0))?;
        let aborted = client.ask("tpc_abort", [self.count.into()])?;
        same("abort of it", aborted, Answer::Value(Value::None))
    }

    fn choose_undone(&mut self, writer: &mut Writer) {
        let last: Vec<Tid> = self.model.undoable(6).iter().map(|one| one.tid).collect();
        if last.is_empty() {
            return;
        }
        writer.undoes = Some(last[self.random.random_range(0..last.len())]);
    }

    fn choose_writes(&mut self, writer: &mut Writer) {
        for _ in 0..self.random.random_range(1..=4) {
            let oid = self.oid();
            if writer.writes.iter().any(|(written, _)| *written == oid) {
                continue;
            }
            let serial = self.serial(oid);
            let kind = match self.random.random_range(0..20) {
                0 => Kind::Delete,
                1 => Kind::Restore,
                _ => Kind::Store,
            };
            let data = (kind != Kind::Delete).then(|| self.data());
            writer.writes.push((oid, Write { kind, serial, data }));
        }
        if self.random.random_ratio(1, 5) {
            let oid = self.oid();
            writer.checks.push((oid, self.serial(oid)));
        }
    }

    /// Usually the current serial.
    fn serial(&mut self, oid: Oid) -> Tid {
        if self.random.random_ratio(1, 15) {
            return self.tid();
        }
        self.model.current_serial(oid).unwrap_or(Tid::ZERO)
    }

    fn vote(&mut self, client: usize) -> Result<(), Difference> {
        let writer = &self.clients[client].writer;
        let wanted = writer.wanted(&self.model);
        if let Some(undone) = writer.undoes {
            // The undo's target may be looked up before or after other commits.
            let unsure = matches!(self.model.undo(undone), Some(Undone::Unsure));
            if unsure || !self.locks.are_free(&wanted) {
                return self.abort(client);
            }
        }
        let granted = self.locks.request(client, wanted);
        let number = Value::from(writer.number);
        let player = &mut self.clients[client];
        let vote = player.client.call("vote", [number])?;
        player.vote = Some(vote);
        self.seen.calls += 1;
        if granted {
            player.client.send()?;
            return self.voted(client);
        }
        player.writer.phase = Phase::Waiting;
        self.seen.waits += 1;
        self.seen.calls += 1;
        // Sent after the vote, so its reply shows that the vote has been handled.
        let ping = player.client.ask("ping", [])?;
        same("ping behind a vote that waits", ping, Answer::Value(Value::None))
    }

    /// Checks the result of a vote that has its locks, and of the votes that waited for it.
    fn voted(&mut self, client: usize) -> Result<(), Difference> {
        let mut granted = VecDeque::from([client]);
        while let Some(client) = granted.pop_front() {
            let player = &mut self.clients[client];
            let Some(vote) = player.vote.take() else { continue };
            let found = player.client.answer(&vote)?;
            let writer = &mut player.writer;
            let outcome = writer.outcome(&self.model);
            let what = format!("vote of client {client}: {writer:?}");
            match outcome {
                Outcome::Voted(records) => {
                    // The client does not know the data of an undo.
                    let undone = writer.undoes.map(|_| records.keys().copied().collect());
                    same(what, oids_of(&found), Some(undone.unwrap_or_default()))?;
                    writer.voted = records;
                    writer.phase = Phase::Voted;
                }
                Outcome::Conflicts(conflicts) => {
                    same(what, conflicts_of(&found), Some(conflicts))?;
                    writer.phase = Phase::Conflicted;
                    self.seen.conflicts += 1;
                }
                Outcome::Error(name) => {
                    same(what, found, Answer::Error(name.to_owned()))?;
                    *writer = Writer::default();
                    self.seen.refusals += 1;
                    granted.extend(self.locks.release(client));
                }
            }
        }
        Ok(())
    }

    /// Stores conflicting objects again, upon their current revisions.
    fn resolve(&mut self, client: usize) -> Result<(), Difference> {
        let Outcome::Conflicts(conflicts) = self.clients[client].writer.outcome(&self.model) else {
            return self.abort(client);
        };
        for Conflict { oid, current, .. } in conflicts {
            let data = self.data();
            self.seen.calls += 1;
            let Player { client, writer, .. } = &mut self.clients[client];
            let number = Value::from(writer.number);
            let sent = Value::from(&data[..]);
            client.tell("storea", [oid.into(), current.into(), sent, number])?;
            // The last store of an object counts.
            let write = Write { kind: Kind::Store, serial: current, data: Some(data) };
            writer.writes.retain(|(written, _)| *written != oid);
            writer.writes.push((oid, write));
        }
        self.seen.calls += 1;
        let player = &mut self.clients[client];
        player.vote = Some(player.client.call("vote", [player.writer.number.into()])?);
        player.client.send()?;
        self.voted(client)
    }

    fn finish(&mut self, client: usize) -> Result<(), Difference> {
        let player = &mut self.clients[client];
        let writer = std::mem::take(&mut player.writer);
        self.seen.calls += 1;
        let found = player.client.ask("tpc_finish", [writer.number.into()])?;
        let Answer::Value(value) = &found else {
            return Err(Difference { what: format!("finish: {found:?}") });
        };
        let tid = value.as_tid().unwrap_or(Tid::ZERO);
        same("a tid is later than the last", tid > self.model.last_tid, true)?;
        let oids: BTreeSet<Oid> = writer.voted.keys().copied().collect();
        for (other, player) in self.clients.iter_mut().enumerate() {
            if other != client {
                player.untold.push_back((tid, oids.clone()));
            }
        }
        self.seen.commits += 1;
        self.seen.undos += u64::from(writer.undoes.is_some());
        self.model.commit(tid, writer.description, writer.voted);
        self.release(client)
    }

    fn abort(&mut self, client: usize) -> Result<(), Difference> {
        let player = &mut self.clients[client];
        let writer = std::mem::take(&mut player.writer);
        player.may_have_locks = writer.phase == Phase::Conflicted;
        player.vote = None;
        self.seen.calls += 1;
        let found = player.client.ask("tpc_abort", [writer.number.into()])?;
        same("abort", found, Answer::Value(Value::None))?;
        self.release(client)
    }

    fn release(&mut self, client: usize) -> Result<(), Difference> {
        for granted in self.locks.release(client) {
            self.voted(granted)?;
        }
        Ok(())
    }

    /// Disconnects a client without locks, and connects another.
    fn reconnect(&mut self, client: usize) -> Result<(), Difference> {
        if !matches!(self.clients[client].writer.phase, Phase::Idle | Phase::Open) {
            return Ok(());
        }
        self.seen.calls += 1;
        self.clients[client] = Player::connect(&self.server)?;
        Ok(())
    }

    fn new_oids(&mut self, client: usize) -> Result<(), Difference> {
        let count = self.random.random_range(1..=20_u64);
        self.seen.calls += 1;
        let found = self.clients[client].client.ask("new_oids", [count.into()])?;
        let oids: Vec<Oid> = match &found {
            Answer::Value(value) => {
                value.as_sequence().unwrap_or_default().iter().filter_map(Value::as_oid).collect()
            }
            _ => Vec::new(),
        };
        same("how many new oids", oids.len() as u64, count)?;
        for oid in oids {
            let is_new = self.given_oids.insert(oid) && self.model.current_serial(oid).is_none();
            same(format!("{oid} is new"), is_new, true)?;
        }
        Ok(())
    }

    /// Packs up to now, while no client undoes or restores: those would make the pack wait.
    fn pack(&mut self, client: usize) -> Result<(), Difference> {
        let points_back = |player: &Player| {
            let writer = &player.writer;
            writer.phase != Phase::Idle
                && (writer.undoes.is_some()
                    || writer.writes.iter().any(|(_, write)| write.kind == Kind::Restore))
        };
        if self.clients.iter().any(points_back) {
            return Ok(());
        }
        self.seen.calls += 2;
        let player = &mut self.clients[client];
        // A time after all tids.
        let time = Value::from(self.model.last_tid.to_unix_nanos() as f64 / 1e9 + 100.0);
        let packed = player.client.ask("pack", [time, true.into()])?;
        same("pack", packed, Answer::Value(Value::None))?;
        let log = player.client.ask("undoLog", [0.into(), 1.into()])?;
        let is_packed = list_length(&log) == Some(0);
        if !is_packed {
            return Ok(());
        }
        let already = self.model.undoable(1).is_empty();
        if self.model.pack() {
            self.seen.packs += 1;
            return Ok(());
        }
        same("nothing could be freed, yet it was packed", already, true)
    }
}

fn send_writes(client: &mut Client, writer: &Writer) -> Result<u64, Difference> {
    let number = || Value::from(writer.number);
    let (user, description) = (Value::from(&b"user"[..]), Value::from(&writer.description[..]));
    let begin = [number(), user, description, Value::Dict(Vec::new()), Value::None, " ".into()];
    client.tell("tpc_begin", begin)?;
    let mut calls = 1;
    for (oid, Write { kind, serial, data }) in &writer.writes {
        let (oid, serial) = (Value::from(*oid), Value::from(*serial));
        let data = Value::from(data.as_deref());
        match kind {
            Kind::Store => client.tell("storea", [oid, serial, data, number()])?,
            Kind::Delete => client.tell("deleteObject", [oid, serial, number()])?,
            Kind::Restore => {
                client.tell("restorea", [oid, serial, data, Value::None, number()])?;
            }
        }
        calls += 1;
    }
    for (oid, serial) in &writer.checks {
        let arguments = [(*oid).into(), (*serial).into(), number()];
        client.tell("checkCurrentSerialInTransaction", arguments)?;
        calls += 1;
    }
    if let Some(tid) = writer.undoes {
        let id = STANDARD.encode(tid.to_bytes()).into_bytes();
        client.tell("undoa", [id.into(), number()])?;
        calls += 1;
    }
    client.send()?;
    Ok(calls)
}

fn list_length(answer: &Answer) -> Option<usize> {
    match answer {
        Answer::Value(value) => value.as_sequence().map(<[Value<'_>]>::len),
        _ => None,
    }
}

fn oids_of(answer: &Answer) -> Option<BTreeSet<Oid>> {
    let Answer::Value(value) = answer else { return None };
    value.as_sequence()?.iter().map(Value::as_oid).collect()
}

fn conflicts_of(answer: &Answer) -> Option<Vec<Conflict>> {
    let Answer::Value(value) = answer else { return None };
    let conflict = |value: &Value<'_>| {
        let serials = value.entry("serials")?.as_sequence()?;
        let (current, sent) = (serials.first()?.as_tid()?, serials.get(1)?.as_tid()?);
        let Value::Bytes(data) = value.entry("data")? else { return None };
        let oid = value.entry("oid")?.as_oid()?;
        Some(Conflict { oid, current, sent, data: data.to_vec() })
    };
    value.as_sequence()?.iter().map(conflict).collect()
}
