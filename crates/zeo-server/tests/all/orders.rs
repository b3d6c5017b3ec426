//! Calls in any order: before registration, repeated, for unknown transactions, after a failed
//! vote, or by the wrong client.
//!
//! Each sequence continues where the previous one on its connection ended, or on a new connection
//! if that was closed. Afterwards exactly the committed data can be loaded.

mod model;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use zodium_pickle::Value;
use zodium_types::{Oid, Tid};
use zodium_zeo::codec::{Encoding, MessageId};

use crate::support::client::{Answer, Client};
use crate::support::server::InProcess;
use crate::support::{Difference, same};
use model::{Call, CallKind, Connection, Expected};

const CONNECTIONS: usize = 4;
const CALLS_MAX: usize = 12;
/// Added to the oid of a connection's first object: an object that is never stored. Each
/// connection has its own, or a vote would wait for one that met conflicts and holds its locks.
const MISSING: u64 = 1 << 40;
/// Number of sequences after which the server is replaced.
const SEQUENCES_EACH: u64 = 20_000;

/// Runs this many sequences of calls; returns the number of calls.
///
/// # Errors
///
/// The first deviation from the model, with what is needed to replay it.
pub(crate) fn play(seed: u64, sequences: u64) -> Result<u64, Difference> {
    let mut calls = 0;
    let mut left = sequences;
    let mut round = 0;
    while left > 0 {
        let count = left.min(SEQUENCES_EACH);
        let seed = seed.wrapping_add(round);
        let mut orders = Orders::start(seed)?;
        for sequence in 0..count {
            orders.sequence().map_err(|Difference { what }| {
                let what = format!("sequence {sequence} of seed {seed}: {what}");
                Difference { what }
            })?;
        }
        calls += orders.calls;
        orders.observe(true)?;
        drop(orders.players);
        orders.server.close()?;
        left -= count;
        round += 1;
    }
    Ok(calls)
}

struct Orders {
    random: SmallRng,
    server: InProcess,
    observer: Client,
    players: Vec<Player>,
    last_tid: Tid,
    calls: u64,
    /// Number of connections so far; each one has its own objects.
    connections: u64,
}

struct Player {
    client: Client,
    model: Connection,
    /// The oid of its first object.
    first_oid: u64,
    serials: [Tid; 2],
    data: [Vec<u8>; 2],
}

/// A call that was sent, with its expected result.
struct Sent {
    call: Call,
    id: Option<MessageId>,
    expected: Expected,
}

impl Orders {
    fn start(seed: u64) -> Result<Orders, Difference> {
        let random = SmallRng::seed_from_u64(seed);
        let encoding = if seed.is_multiple_of(2) { Encoding::Pickle } else { Encoding::Msgpack };
        let server = InProcess::start(encoding, None)?;
        let observer = Client::register(server.socket())?;
        let last_tid = server.last_tid();
        let mut orders = Orders {
            random,
            server,
            observer,
            players: Vec::new(),
            last_tid,
            calls: 0,
            connections: 0,
        };
        for _ in 0..CONNECTIONS {
            let player = orders.player()?;
            orders.players.push(player);
        }
        Ok(orders)
    }

    fn player(&mut self) -> Result<Player, Difference> {
        self.connections += 1;
        Ok(Player {
            client: Client::connect(self.server.socket())?,
            model: Connection::default(),
            first_oid: self.connections * 2,
            serials: [Tid::ZERO; 2],
            data: [Vec::new(), Vec::new()],
        })
    }

    fn sequence(&mut self) -> Result<(), Difference> {
        let index = self.random.random_range(0..self.players.len());
        let mut left = self.random.random_range(1..=CALLS_MAX);
        while left > 0 {
            let mut sent = Vec::new();
            let player = &mut self.players[index];
            while left > 0 {
                left -= 1;
                let call = player.choose(&mut self.random);
                let expected = player.model.clone().play(call);
                let ends = matches!(call.kind, CallKind::Vote | CallKind::Finish);
                if ends && !call.waits && expected != Expected::Closed {
                    // The end of a vote or commit without a reply cannot be observed.
                    continue;
                }
                self.calls += 1;
                sent.push(player.send(call)?);
                // A call after a vote or commit could find it still running, if it has to wait for
                // the disk.
                if ends || expected == Expected::Closed {
                    break;
                }
            }
            player.client.send()?;
            for one in sent {
                let closed = one.expected == Expected::Closed;
                self.judge(index, one)?;
                if closed {
                    self.players[index] = self.player()?;
                    left = 0;
                }
            }
        }
        if self.random.random_ratio(1, 50) { self.observe(false) } else { Ok(()) }
    }

    fn judge(&mut self, index: usize, sent: Sent) -> Result<(), Difference> {
        let Sent { call, id, expected } = sent;
        let player = &mut self.players[index];
        if expected == Expected::Closed {
            player.client.wait_closed().map_err(|Difference { what }| {
                let what = format!("{} does not end the connection: {what}", call_text(call));
                Difference { what }
            })?;
            return same(call_text(call), player.client.has_unasked(), false);
        }
        let Some(id) = id else { return Ok(()) };
        let found = player.client.answer(&id)?;
        let fits = match (&found, &expected) {
            (Answer::Value(Value::None), Expected::None) => true,
            (Answer::Value(value), Expected::Some) => *value != Value::None,
            (Answer::Value(value), Expected::Conflicts(count)) => {
                value.as_sequence().is_some_and(|conflicts| conflicts.len() == *count)
            }
            (Answer::Value(value), Expected::Committed(stores)) => {
                let tid = value.as_tid().unwrap_or(Tid::ZERO);
                let grows = tid > self.last_tid;
                self.last_tid = tid;
                for (object, number) in stores {
                    player.serials[*object] = tid;
                    player.data[*object] = data_of(player.first_oid, *number);
                }
                grows
            }
            (Answer::Error(name), Expected::Error(expected)) => name == expected,
            _ => false,
        };
        same(format!("{}: found {found:?}, expected {expected:?}", call_text(call)), fits, true)
    }

    /// Checks from another client that exactly the committed data are visible.
    fn observe(&mut self, all: bool) -> Result<(), Difference> {
        let last = self.observer.ask("lastTransaction", [])?;
        same("the last transaction", last, Answer::Value(self.last_tid.into()))?;
        self.observer.invalidations.clear();
        let count = if all { self.players.len() } else { 1 };
        for player in self.players.iter().take(count) {
            for object in 0..2 {
                let oid = Oid(player.first_oid + object as u64);
                let expected = if player.model.committed[object] {
                    let data = Value::from(player.data[object].clone());
                    let serial = player.serials[object];
                    Answer::Value(Value::tuple([data, serial.into(), Value::None]))
                } else {
                    Answer::Error("ZODB.POSException.POSKeyError".to_owned())
                };
                let id = self.observer.load(oid, Tid::MAX);
                self.observer.send()?;
                same(format!("object {oid}"), self.observer.answer(&id)?, expected)?;
            }
        }
        Ok(())
    }
}

impl Player {
    fn choose(&self, random: &mut SmallRng) -> Call {
        let kind = match random.random_range(0..40) {
            0..4 => CallKind::Register { read_only: random.random_ratio(1, 8) },
            4..11 => CallKind::Begin,
            11..18 => CallKind::Store {
                object: random.random_range(0..2),
                fits: random.random_ratio(4, 5),
            },
            18 => CallKind::CheckMissing,
            19 => CallKind::DeleteMissing,
            20 => CallKind::UndoGarbage,
            21..28 => CallKind::Vote,
            28..34 => CallKind::Finish,
            34..36 => CallKind::Abort,
            36..38 => CallKind::Ping,
            38 => CallKind::LoadMissing,
            _ => CallKind::UnknownMethod,
        };
        // Most sequences use one transaction number and register once, or little else would happen.
        let kind = match kind {
            CallKind::Register { .. }
                if self.model.is_registered() && random.random_ratio(9, 10) =>
            {
                CallKind::Begin
            }
            _ if !self.model.is_registered() && random.random_ratio(9, 10) => {
                CallKind::Register { read_only: random.random_ratio(1, 8) }
            }
            kind => kind,
        };
        let transaction = if random.random_ratio(9, 10) { 1 } else { 2 };
        Call { kind, waits: random.random_ratio(2, 3), transaction }
    }

    fn send(&mut self, call: Call) -> Result<Sent, Difference> {
        let number = self.model.next_store();
        let expected = self.model.play(call);
        let id = self.put(call, number)?;
        Ok(Sent { call, id, expected })
    }

    fn put(&mut self, call: Call, number: u64) -> Result<Option<MessageId>, Difference> {
        let transaction = Value::from(call.transaction);
        let missing = Value::from(Oid(MISSING + self.first_oid));
        match call.kind {
            CallKind::Register { read_only } => {
                self.put_call(call, "register", ["1".into(), read_only.into()])
            }
            CallKind::Begin => {
                let empty = || Value::from(&b""[..]);
                let extension = Value::Dict(Vec::new());
                let arguments = [transaction, empty(), empty(), extension, Value::None, " ".into()];
                self.put_call(call, "tpc_begin", arguments)
            }
            CallKind::Store { object, fits } => {
                let serial = if fits { self.serials[object] } else { Tid(1) };
                let data = Value::from(data_of(self.first_oid, number));
                let oid = Oid(self.first_oid + object as u64);
                self.put_call(call, "storea", [oid.into(), serial.into(), data, transaction])
            }
            CallKind::CheckMissing => {
                let arguments = [missing, Tid(1).into(), transaction];
                self.put_call(call, "checkCurrentSerialInTransaction", arguments)
            }
            CallKind::DeleteMissing => {
                self.put_call(call, "deleteObject", [missing, Tid(1).into(), transaction])
            }
            CallKind::UndoGarbage => {
                self.put_call(call, "undoa", [Value::from(&b"?"[..]), transaction])
            }
            CallKind::Vote => self.put_call(call, "vote", [transaction]),
            CallKind::Finish => self.put_call(call, "tpc_finish", [transaction]),
            CallKind::Abort => self.put_call(call, "tpc_abort", [transaction]),
            CallKind::Ping => self.put_call(call, "ping", []),
            CallKind::LoadMissing => self.put_call(call, "loadBefore", [missing, Tid::MAX.into()]),
            CallKind::UnknownMethod => self.put_call(call, "no_such_method", []),
        }
    }

    fn put_call<const N: usize>(
        &mut self,
        call: Call,
        name: &str,
        arguments: [Value<'_>; N],
    ) -> Result<Option<MessageId>, Difference> {
        if call.waits {
            return self.client.call(name, arguments).map(Some);
        }
        self.client.tell(name, arguments).map(|()| None)
    }
}

/// Data that no other store has.
fn data_of(first_oid: u64, number: u64) -> Vec<u8> {
    format!("store {number} of the client of {first_oid}").into_bytes()
}

fn call_text(call: Call) -> String {
    format!("{call:?}")
}
