//! Models the stock server's answers to the calls of one connection, in any order.
//!
//! Answers are modelled by kind: a value, the name of an exception, or a closed connection. The
//! end-to-end tests have seen each rule in a stock server.

use std::collections::BTreeMap;

/// A call, and how it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) kind: CallKind,
    /// Whether a reply is requested.
    pub(super) waits: bool,
    /// The transaction's number, if the call names one.
    pub(super) transaction: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallKind {
    Register {
        read_only: bool,
    },
    Begin,
    /// Stores the connection's object of this number, with a matching serial or not.
    Store {
        object: usize,
        fits: bool,
    },
    CheckMissing,
    DeleteMissing,
    UndoGarbage,
    Vote,
    Finish,
    Abort,
    Ping,
    LoadMissing,
    UnknownMethod,
}

/// The expected result of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    Nothing,
    None,
    /// Any value but none.
    Some,
    /// A list of this many conflicts.
    Conflicts(usize),
    /// The tid of a commit of these objects, by the number of the store.
    Committed(BTreeMap<usize, u64>),
    Error(&'static str),
    Closed,
}

const WRONG_TRANSACTION: Expected = Expected::Error("ZODB.POSException.StorageTransactionError");
const MISSING: Expected = Expected::Error("ZODB.POSException.POSKeyError");

/// The state of one connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Connection {
    /// `None` before registration, then whether it is read-only.
    registered: Option<bool>,
    transaction: Option<Transaction>,
    /// Which of its objects are committed.
    pub(super) committed: [bool; 2],
    stores: u64,
}

#[derive(Clone, Debug)]
struct Transaction {
    number: i64,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    Open(Pending),
    Unfit,
    Voted(BTreeMap<usize, u64>),
}

/// What a transaction has sent before its vote.
#[derive(Clone, Debug, Default)]
struct Pending {
    /// The last write of each object, in the order sent.
    writes: Vec<Write>,
    /// Whether it reads an object that does not exist.
    misses: bool,
}

#[derive(Clone, Copy, Debug)]
enum Write {
    Store { object: usize, fits: bool, number: u64 },
    DeleteMissing,
}

impl Pending {
    fn write(&mut self, write: Write) {
        self.writes.retain(|earlier| earlier.object() != write.object());
        self.writes.push(write);
    }

    /// Conflicts of stores before anything that no client can resolve. The client resolves them
    /// first; the next vote finds the rest.
    fn leading_conflicts(&self) -> usize {
        let leading = self.writes.iter().take_while(|write| write.object().is_some());
        leading.filter(|write| matches!(write, Write::Store { fits: false, .. })).count()
    }

    fn misses(&self) -> bool {
        self.misses || self.writes.iter().any(|write| write.object().is_none())
    }

    fn stores(&self) -> BTreeMap<usize, u64> {
        let stored = |write: &Write| match write {
            Write::Store { object, number, .. } => Some((*object, *number)),
            Write::DeleteMissing => None,
        };
        self.writes.iter().filter_map(stored).collect()
    }
}

impl Write {
    /// The connection's object that it writes, or none: the missing one.
    fn object(self) -> Option<usize> {
        match self {
            Write::Store { object, .. } => Some(object),
            Write::DeleteMissing => None,
        }
    }
}

impl Connection {
    pub(super) fn is_registered(&self) -> bool {
        self.registered.is_some()
    }

    /// The number of the next store; its data contain it.
    pub(super) fn next_store(&self) -> u64 {
        self.stores
    }

    pub(super) fn play(&mut self, call: Call) -> Expected {
        let expected = self.answer(call);
        match expected {
            // A call without a reply can report an error only by closing the connection.
            Expected::Error(_) if !call.waits => Expected::Closed,
            Expected::Closed => Expected::Closed,
            _ if !call.waits => Expected::Nothing,
            expected => expected,
        }
    }

    fn answer(&mut self, call: Call) -> Expected {
        let Some(read_only) = self.registered else {
            let CallKind::Register { read_only } = call.kind else { return Expected::Closed };
            self.registered = Some(read_only);
            return Expected::Some;
        };
        match call.kind {
            CallKind::Register { .. } | CallKind::UnknownMethod => Expected::Closed,
            CallKind::Ping => Expected::None,
            CallKind::LoadMissing if call.waits => MISSING,
            CallKind::LoadMissing => Expected::None,
            _ if read_only => Expected::Error("ZODB.POSException.ReadOnlyError"),
            CallKind::Begin => self.begin(call.transaction),
            CallKind::Vote => self.vote(call.transaction),
            CallKind::Finish => self.finish(call.transaction),
            CallKind::Abort => {
                if self.own(call.transaction).is_some() {
                    self.transaction = None;
                }
                Expected::None
            }
            _ => self.collect(call),
        }
    }

    fn own(&mut self, number: i64) -> Option<&mut State> {
        let open = self.transaction.as_mut().filter(|open| open.number == number);
        open.map(|open| &mut open.state)
    }

    fn begin(&mut self, number: i64) -> Expected {
        match &self.transaction {
            Some(open) if open.number == number => Expected::None,
            Some(_) => WRONG_TRANSACTION,
            None => {
                let state = State::Open(Pending::default());
                self.transaction = Some(Transaction { number, state });
                Expected::None
            }
        }
    }

    fn collect(&mut self, call: Call) -> Expected {
        let (next, exists) = (self.stores, self.committed);
        let stored = matches!(call.kind, CallKind::Store { .. });
        self.stores += u64::from(stored);
        let Some(state) = self.own(call.transaction) else { return WRONG_TRANSACTION };
        let State::Open(pending) = state else { return Expected::None };
        match call.kind {
            CallKind::Store { object, fits } => {
                // Any serial is accepted for an object that does not exist yet.
                let fits = fits || !exists[object];
                pending.write(Write::Store { object, fits, number: next });
            }
            CallKind::UndoGarbage => *state = State::Unfit,
            CallKind::DeleteMissing => pending.write(Write::DeleteMissing),
            _ => pending.misses = true,
        }
        Expected::None
    }

    fn vote(&mut self, number: i64) -> Expected {
        let Some(state) = self.own(number) else { return WRONG_TRANSACTION };
        match state {
            State::Voted(_) => WRONG_TRANSACTION,
            State::Unfit => {
                self.transaction = None;
                Expected::Error("ZODB.POSException.UndoError")
            }
            State::Open(pending) => match pending.leading_conflicts() {
                0 if pending.misses() => {
                    self.transaction = None;
                    MISSING
                }
                0 => {
                    *state = State::Voted(pending.stores());
                    Expected::Conflicts(0)
                }
                conflicts => Expected::Conflicts(conflicts),
            },
        }
    }

    fn finish(&mut self, number: i64) -> Expected {
        match self.own(number) {
            None => Expected::None,
            Some(State::Open(_) | State::Unfit) => Expected::Error("builtins.AssertionError"),
            Some(State::Voted(stores)) => {
                let stores = std::mem::take(stores);
                self.transaction = None;
                stores.keys().for_each(|object| self.committed[*object] = true);
                Expected::Committed(stores)
            }
        }
    }
}
