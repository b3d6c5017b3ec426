//! One interleaving: a few clients, a log writer and a clock, all moved by one seed.

use std::collections::VecDeque;
use std::fmt::Arguments;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use zodium_engine::commit::{
    AbortOutcome, CommitError, CommitMachine, CommitState, Conflict, ConflictKind, LockAnswer,
    ObjectRead, ObjectWrite, TransactionNumber, WriteKind, check,
};
use zodium_types::{Oid, Tid};

use super::client::Client;
use super::coverage::{Coverage, Situation};
use super::database::{Database, FIRST_TID, OIDS};

const TIMEOUT: Duration = Duration::from_millis(60);

/// How long a reservation lasts, for each time that the locks were held before, and its limits.
const RESERVATION_SHARE: u32 = 8;
const RESERVATION_MIN: Duration = Duration::from_millis(10);
const RESERVATION_MAX: Duration = Duration::from_millis(100);

/// More rounds than this to end what is open means that something hangs.
const DRAIN_ROUNDS_MAX: usize = 200;

pub(crate) struct Interleaving<'a> {
    rng: SmallRng,
    /// Each transaction carries its own number.
    machine: CommitMachine<TransactionNumber>,
    database: Database,
    clients: Vec<Client>,
    numbers: u64,
    arrivals: u64,
    now: Duration,
    ready: VecDeque<TransactionNumber>,
    writing: VecDeque<Written>,
    last_given: Tid,
    last_published: Tid,
    coverage: &'a mut Coverage,
}

/// A transaction that the log writer took.
struct Written {
    number: TransactionNumber,
    tid: Tid,
    /// Durable and visible, but its locks are not yet free.
    applied: bool,
}

impl<'a> Interleaving<'a> {
    pub(crate) fn new(seed: u64, coverage: &'a mut Coverage) -> Interleaving<'a> {
        let mut interleaving = Interleaving {
            rng: SmallRng::seed_from_u64(seed),
            machine: CommitMachine::new(FIRST_TID),
            database: Database::new(),
            clients: Vec::new(),
            numbers: 0,
            arrivals: 0,
            now: Duration::from_secs(1),
            ready: VecDeque::new(),
            writing: VecDeque::new(),
            last_given: FIRST_TID,
            last_published: FIRST_TID,
            coverage,
        };
        for _ in 0..interleaving.rng.random_range(2..=8) {
            let client = interleaving.begin();
            interleaving.clients.push(client);
        }
        interleaving
    }

    pub(crate) fn run(mut self) {
        for _ in 0..self.rng.random_range(20..=140) {
            self.now += Duration::from_millis(self.rng.random_range(0..3));
            self.step();
            self.check_rules();
        }
        self.drain();
    }

    fn step(&mut self) {
        let client = self.rng.random_range(0..self.clients.len());
        match self.rng.random_range(0..1000) {
            0..700 => self.client_step(client),
            700..790 => self.take_batch(),
            790..870 => self.apply(),
            870..950 => self.publish(),
            950..960 => self.expire(),
            960..970 => self.end_reservations(),
            970..998 => self.call_wrongly(client),
            _ => self.fail_write(),
        }
    }

    fn client_step(&mut self, client: usize) {
        let luck = self.rng.random_range(0..100);
        match self.clients[client].state {
            None => match luck {
                0..60 => self.write_or_read(client),
                60..98 => self.vote(client),
                _ => self.abort(client),
            },
            Some(CommitState::Checking) if luck < 97 => self.check(client),
            Some(CommitState::Voted) if luck < 92 => self.finish(client),
            Some(CommitState::Resolving) => match luck {
                0..10 => self.write_or_read(client),
                10..70 => self.vote_again(client),
                70..92 => self.reserve(client),
                _ => self.abort(client),
            },
            Some(CommitState::Reserved) if luck < 30 => self.resume(client),
            Some(CommitState::Checking | CommitState::Voted) => self.abort(client),
            _ if luck < 6 => self.abort(client),
            _ => {}
        }
    }

    fn begin(&mut self) -> Client {
        self.numbers += 1;
        let brings_tid = self.rng.random_range(0..100) < 12;
        let explicit_tid = brings_tid.then(|| self.some_tid());
        Client::new(TransactionNumber(self.numbers), explicit_tid)
    }

    /// A tid around the last one, sometimes too old.
    fn some_tid(&mut self) -> Tid {
        Tid(self.last_given.0 - 3 + self.rng.random_range(0..20))
    }

    /// The time that a caller read, perhaps a little before it got into the machine.
    fn moment(&mut self) -> Duration {
        self.now - Duration::from_millis(self.rng.random_range(0..2))
    }

    fn write_or_read(&mut self, client: usize) {
        let oid = Oid(self.rng.random_range(0..OIDS));
        let serial = match self.database.revisions(oid) {
            0 => Tid(self.rng.random_range(0..2)),
            count if self.rng.random_bool(0.1) => {
                self.database.serial(oid, self.rng.random_range(0..count))
            }
            count => self.database.serial(oid, count - 1),
        };
        let luck = self.rng.random_range(0..100);
        let value = self.database.value_after(oid, serial);
        let transaction = &mut self.clients[client];
        if luck < 12 {
            transaction.reads.push(ObjectRead { oid, serial });
            return;
        }
        let kind = match luck {
            _ if transaction.explicit_tid.is_some() => WriteKind::Restore,
            12..17 => WriteKind::Delete,
            17..22 => WriteKind::Restore,
            _ => WriteKind::Store,
        };
        transaction.writes.push(ObjectWrite { oid, serial, kind });
        transaction.values.push(value);
    }

    fn vote(&mut self, client: usize) {
        let now = self.moment();
        let (number, explicit_tid) =
            (self.clients[client].number, self.clients[client].explicit_tid);
        let keys = self.clients[client].keys();
        let answer = self.machine.vote(number, keys, explicit_tid, number, now);
        let Client { writes, reads, .. } = &self.clients[client];
        self.trace(format_args!("{number:?} votes {writes:?} {reads:?}: {answer:?}"));
        self.enter(client, answer.unwrap(), now);
        if !self.writing.is_empty() {
            self.coverage.count(Situation::VotedWhileWriting);
        }
    }

    /// Votes with the locks it kept; needing more, it gives up its place and asks anew.
    fn vote_again(&mut self, client: usize) {
        let number = self.clients[client].number;
        let (held, needed) = (self.clients[client].locks, self.clients[client].all_locks());
        let again =
            self.machine.vote_again(number, &self.clients[client].keys(), self.now).unwrap();
        self.trace(format_args!("{number:?} votes again: {again}"));
        assert_eq!(again, held.cover(needed), "what was kept and the model disagree");
        if again {
            self.coverage.count(Situation::VotedWithKeptLocks);
            self.clients[client].verdict = None;
            self.clients[client].state = Some(CommitState::Checking);
            self.clients[client].checking_since = self.now;
            return;
        }
        self.coverage.count(Situation::NeededMoreLocks);
        let now = self.moment();
        let AbortOutcome::Aborted { granted } = self.machine.abort(number, now) else {
            panic!("{number:?} could not be aborted while it resolved");
        };
        self.clients[client].state = None;
        self.granted(&granted, now);
        self.numbers += 1;
        self.clients[client].number = TransactionNumber(self.numbers);
        self.vote(client);
    }

    /// The client gives its transaction up. Its locks wait for its next one.
    fn reserve(&mut self, client: usize) {
        let (number, now) = (self.clients[client].number, self.moment());
        let held = now.saturating_sub(self.clients[client].granted_at);
        let until = now + (held * RESERVATION_SHARE).clamp(RESERVATION_MIN, RESERVATION_MAX);
        let brings_tid = self.clients[client].explicit_tid.is_some();
        let reserved = self.machine.reserve(number, now);
        self.trace(format_args!("{number:?} is reserved until {until:?}: {reserved:?}"));
        assert_eq!(reserved.is_err(), brings_tid, "a tid and locks are brought together");
        if brings_tid {
            return self.abort(client);
        }
        self.coverage.count(Situation::Reserved);
        self.clients[client].reserved_until = Some(until);
        self.clients[client].state = Some(CommitState::Reserved);
    }

    /// The client's next transaction, with the objects of the one before or others, gets its locks,
    /// or frees them and asks anew.
    fn resume(&mut self, client: usize) {
        let mut next = Client::new(self.clients[client].number, None);
        std::mem::swap(&mut next, &mut self.clients[client]);
        let before = next;
        for write in &before.writes {
            let (oid, count) = (write.oid, self.database.revisions(write.oid));
            let serial = match count {
                0 => Tid::ZERO,
                count => self.database.serial(oid, count - 1),
            };
            let value = self.database.value_after(oid, serial);
            let transaction = &mut self.clients[client];
            transaction.writes.push(ObjectWrite { oid, serial, kind: WriteKind::Store });
            transaction.values.push(value);
        }
        if self.rng.random_bool(0.3) {
            self.write_or_read(client);
        }
        let (now, number, needed) =
            (self.moment(), before.number, self.clients[client].all_locks());
        let resumed = self.machine.resume(number, &self.clients[client].keys(), now).unwrap();
        self.trace(format_args!("{number:?} goes on: {resumed}"));
        assert_eq!(resumed, before.locks.cover(needed), "what was kept and the model disagree");
        if resumed {
            self.coverage.count(Situation::Resumed);
            let transaction = &mut self.clients[client];
            (transaction.locks, transaction.arrival) = (before.locks, before.arrival);
            transaction.note_grant(now);
            transaction.state = Some(CommitState::Checking);
            return;
        }
        self.coverage.count(Situation::ResumedWithOthers);
        let AbortOutcome::Aborted { granted } = self.machine.abort(number, now) else {
            panic!("{number:?} could not be aborted while it was reserved");
        };
        self.granted(&granted, now);
        self.numbers += 1;
        self.clients[client].number = TransactionNumber(self.numbers);
        self.vote(client);
    }

    /// Those end whose time is over, and no others.
    fn end_reservations(&mut self) {
        let now = self.moment();
        let granted = self.machine.end_reservations(now);
        self.trace(format_args!("reservations end, grant {granted:?}"));
        for client in 0..self.clients.len() {
            if self.clients[client].reserved_until.is_some_and(|until| until <= now) {
                self.coverage.count(Situation::ReservationOver);
                self.end(client);
            }
        }
        self.granted(&granted, now);
    }

    fn enter(&mut self, client: usize, answer: LockAnswer, now: Duration) {
        self.arrivals += 1;
        let waits = answer == LockAnswer::Waiting;
        let transaction = &mut self.clients[client];
        transaction.locks = transaction.all_locks();
        transaction.arrival = self.arrivals;
        transaction.note_grant(now);
        transaction.verdict = None;
        transaction.state = Some(if waits { CommitState::Waiting } else { CommitState::Checking });
        if waits {
            self.coverage.count(Situation::Waited);
        }
    }

    /// First looks at the serials, then, in a later step, acts on what it saw: what it saw must
    /// still be true.
    fn check(&mut self, client: usize) {
        let transaction = &self.clients[client];
        let found =
            check(&transaction.writes, &transaction.reads, |oid| self.database.current(oid));
        let admitted = self.database.admits(&transaction.writes, &transaction.reads);
        assert_eq!(found.is_ok(), admitted, "the conflict check and the model disagree");
        let Some(verdict) = &transaction.verdict else {
            self.clients[client].verdict = Some(found);
            return;
        };
        assert_eq!(*verdict, found, "what the check saw changed while the locks were held");
        self.trace(format_args!("{:?} was checked: {found:?}", self.clients[client].number));
        match found {
            Err(conflicts) => self.refuse_conflict(client, &conflicts),
            Ok(()) if self.rng.random_bool(0.02) => {
                self.coverage.count(Situation::NoSpace);
                self.refuse(client);
                self.abort(client);
            }
            Ok(()) => self.voted(client),
        }
    }

    fn refuse_conflict(&mut self, client: usize, conflicts: &[Conflict]) {
        if conflicts.iter().any(|conflict| conflict.kind != ConflictKind::Store) {
            self.refuse(client);
            self.coverage.count(Situation::OtherConflict);
            return self.abort(client);
        }
        self.coverage.count(Situation::StoreConflict);
        if self.rng.random_bool(0.8) {
            let number = self.clients[client].number;
            self.trace(format_args!("{number:?} keeps its locks to resolve"));
            self.machine.resolve(number, self.now).unwrap();
            self.clients[client].end_check(CommitState::Resolving, self.now);
        } else {
            self.refuse(client);
        }
        if self.rng.random_bool(0.1) {
            return self.abort(client);
        }
        for conflict in conflicts {
            let (oid, serial) = (conflict.oid, conflict.committed);
            let value = self.database.value_after(oid, serial);
            let transaction = &mut self.clients[client];
            transaction.writes.push(ObjectWrite { oid, serial, kind: WriteKind::Store });
            transaction.values.push(value);
        }
        self.coverage.count(Situation::Resolved);
    }

    fn refuse(&mut self, client: usize) {
        let now = self.moment();
        let number = self.clients[client].number;
        let granted = self.machine.refuse(number, now).unwrap();
        self.trace(format_args!("{number:?} is refused, grants {granted:?}"));
        self.clients[client].state = None;
        self.granted(&granted, now);
    }

    fn voted(&mut self, client: usize) {
        let number = self.clients[client].number;
        let answer = self.machine.voted(number, self.now);
        self.trace(format_args!("{number:?} is voted: {answer:?}"));
        let last = self.last_given;
        match self.clients[client].explicit_tid {
            Some(tid) if tid <= last => {
                assert_eq!(answer, Err(CommitError::TidNotNewer { tid, last }));
                self.coverage.count(Situation::OwnTidTooOld);
                self.refuse(client);
                let explicit_tid = Some(self.some_tid());
                self.clients[client].explicit_tid = explicit_tid;
            }
            _ => {
                assert_eq!(answer, Ok(()));
                self.clients[client].end_check(CommitState::Voted, self.now);
            }
        }
    }

    fn finish(&mut self, client: usize) {
        let number = self.clients[client].number;
        self.trace(format_args!("{number:?} finishes"));
        self.machine.finish(number).unwrap();
        self.clients[client].state = Some(CommitState::Ready);
        self.ready.push_back(number);
    }

    /// An abort, a disconnect or a timeout: all the same to the machine.
    fn abort(&mut self, client: usize) {
        let now = self.moment();
        let (number, state) = (self.clients[client].number, self.clients[client].state);
        let outcome = self.machine.abort(number, now);
        self.trace(format_args!("{number:?}, {state:?}, aborts: {outcome:?}"));
        match (state, outcome) {
            (None, AbortOutcome::Unknown) => self.end(client),
            (Some(CommitState::Ready | CommitState::Writing), AbortOutcome::TooLate) => {
                self.coverage.count(Situation::AbortTooLate);
            }
            (
                Some(
                    CommitState::Waiting
                    | CommitState::Checking
                    | CommitState::Resolving
                    | CommitState::Reserved
                    | CommitState::Voted,
                ),
                AbortOutcome::Aborted { granted },
            ) => {
                match state {
                    Some(CommitState::Waiting) => self.coverage.count(Situation::AbortedWaiting),
                    Some(CommitState::Checking) => self.coverage.count(Situation::AbortedChecking),
                    Some(CommitState::Voted) => self.coverage.count(Situation::AbortedVoted),
                    _ => {}
                }
                self.end(client);
                self.granted(&granted, now);
            }
            (state, outcome) => panic!("abort in {state:?} gave {outcome:?}"),
        }
    }

    fn expire(&mut self) {
        self.now += Duration::from_millis(self.rng.random_range(0..80));
        let mut expected: Vec<_> = self
            .clients
            .iter()
            .filter(|client| {
                matches!(client.state, Some(CommitState::Resolving | CommitState::Voted))
            })
            .filter(|client| self.now - client.client_since > TIMEOUT)
            .map(|client| (client.granted_at, client.number))
            .collect();
        expected.sort_unstable();
        let expected: Vec<_> = expected.into_iter().map(|(_, number)| number).collect();
        let expired = self.machine.expired(self.now, TIMEOUT);
        assert_eq!(expired, expected);
        for number in expired {
            self.coverage.count(Situation::Expired);
            self.abort(self.client_of(number));
        }
    }

    fn take_batch(&mut self) {
        let max = self.rng.random_range(1..=4);
        let clock = Tid((self.last_given.0 + self.rng.random_range(0..12)).saturating_sub(4));
        let batch = self.machine.next_batch(max, clock);
        self.trace(format_args!("{batch:?} are taken"));
        assert_eq!(batch.len(), max.min(self.ready.len()));
        if batch.len() > 1 {
            self.coverage.count(Situation::BatchOfSeveral);
        }
        if !batch.is_empty() && !self.writing.is_empty() {
            self.coverage.count(Situation::BatchesOverlapping);
        }
        for (number, tid) in batch {
            assert_eq!(Some(number), self.ready.pop_front());
            let client = self.client_of(number);
            let next = clock.max(Tid(self.last_given.0 + 1));
            assert_eq!(tid, self.clients[client].explicit_tid.unwrap_or(next));
            assert!(tid > self.last_given);
            self.last_given = tid;
            self.clients[client].state = Some(CommitState::Writing);
            self.writing.push_back(Written { number, tid, applied: false });
        }
    }

    /// The log writer made some durable and visible; their locks stay.
    fn apply(&mut self) {
        let unapplied = self.writing.iter().filter(|written| !written.applied).count();
        let applied = self.writing.len() - unapplied;
        let count = self.rng.random_range(0..=unapplied);
        for index in applied..applied + count {
            let (number, tid) = (self.writing[index].number, self.writing[index].tid);
            self.trace(format_args!("{number:?} becomes visible"));
            let client = self.client_of(number);
            let Client { writes, values, reads, .. } = &self.clients[client];
            self.database.apply(tid, writes, values, reads);
            self.writing[index].applied = true;
        }
    }

    /// The log writer drops the locks of some that are visible.
    fn publish(&mut self) {
        let applied = self.writing.iter().filter(|written| written.applied).count();
        let count = self.rng.random_range(0..=applied);
        self.publish_first(count);
    }

    fn publish_first(&mut self, count: usize) {
        let now = self.moment();
        let published: Vec<_> = self.writing.drain(..count).collect();
        let numbers: Vec<_> = published.iter().map(|written| written.number).collect();
        let granted = self.machine.published(&numbers, now).unwrap();
        self.trace(format_args!("{numbers:?} are published, grant {granted:?}"));
        for written in published {
            self.last_published = written.tid;
            let client = self.client_of(written.number);
            self.coverage.count(Situation::Published);
            if self.clients[client].explicit_tid.is_some() {
                self.coverage.count(Situation::OwnTidPublished);
            }
            self.end(client);
        }
        self.granted(&granted, now);
    }

    /// After it, all has to be aborted, and a new machine goes on from what is durable.
    fn fail_write(&mut self) {
        self.publish_first(self.writing.iter().filter(|written| written.applied).count());
        let now = self.moment();
        let failure = self.machine.write_failed(now);
        self.trace(format_args!("a write fails: {failure:?}"));
        self.coverage.count(Situation::WriteFailed);
        let writing = self.writing.drain(..).map(|written| written.number);
        let asked: Vec<_> = writing.chain(self.ready.drain(..)).collect();
        let ended: Vec<_> = asked.into_iter().map(|number| (number, number)).collect();
        assert_eq!(failure.ended, ended);
        for (number, _) in ended {
            self.end(self.client_of(number));
        }
        self.granted(&failure.granted, now);
        let mut order: Vec<_> = (0..self.clients.len()).collect();
        order.shuffle(&mut self.rng);
        for client in order {
            self.check_rules();
            self.commit_after_failure(client);
            self.abort(client);
        }
        self.assert_idle();
        self.machine = CommitMachine::new(self.database.last());
        self.last_given = self.database.last();
    }

    fn commit_after_failure(&mut self, client: usize) {
        let now = self.moment();
        let transaction = &self.clients[client];
        let number = transaction.number;
        let (keys, failed) = (transaction.keys(), Err(CommitError::StorageFailed));
        assert_eq!(self.machine.vote(number, keys, None, number, now).map(|_| ()), failed);
        assert_eq!(self.machine.voted(number, now), failed);
        assert_eq!(self.machine.finish(number), failed);
        assert_eq!(self.machine.next_batch(9, Tid::MAX), []);
    }

    /// Every call that does not fit the state names the state and changes nothing.
    fn call_wrongly(&mut self, client: usize) {
        let now = self.moment();
        let (number, state) = (self.clients[client].number, self.clients[client].state);
        let keys = self.clients[client].keys();
        let machine = &mut self.machine;
        let refused = match self.rng.random_range(0..4) {
            0 if state.is_some() => machine.vote(number, keys, None, number, now).map(|_| ()),
            1 if state != Some(CommitState::Checking) => machine.voted(number, now),
            2 if state != Some(CommitState::Checking) => machine.refuse(number, now).map(|_| ()),
            3 if state != Some(CommitState::Voted) => machine.finish(number),
            _ => return,
        };
        match (refused, state) {
            (Err(CommitError::WrongState { number: found, state: named, .. }), Some(state)) => {
                assert_eq!((found, named), (number, state));
            }
            (Err(CommitError::UnknownTransaction { number: found, .. }), None) => {
                assert_eq!(found, number);
            }
            (refused, state) => panic!("a wrong call in {state:?} gave {refused:?}"),
        }
        let stranger = TransactionNumber(u64::MAX);
        let published = self.machine.published(&[stranger], now);
        assert_eq!(published, Err(CommitError::OutOfOrder { number: stranger }));
        self.coverage.count(Situation::WrongCallRefused);
    }

    fn granted(&mut self, numbers: &[TransactionNumber], now: Duration) {
        let mut arrival = 0;
        for &number in numbers {
            let client = self.client_of(number);
            let client = &mut self.clients[client];
            assert_eq!(client.state, Some(CommitState::Waiting), "{number:?} granted");
            assert!(client.arrival > arrival, "granted out of order: {numbers:?}");
            arrival = client.arrival;
            client.state = Some(CommitState::Checking);
            client.note_grant(now);
            self.coverage.count(Situation::GrantedLater);
        }
    }

    /// The transaction is over; its client begins another one.
    fn end(&mut self, client: usize) {
        self.clients[client] = self.begin();
    }

    fn client_of(&self, number: TransactionNumber) -> usize {
        let client = self.clients.iter().position(|client| client.number == number);
        client.unwrap_or_else(|| panic!("no client has transaction {number:?}"))
    }

    /// The rule of the lock table said for all at once: a request waits if and only if one that
    /// came before it and is not yet over conflicts with it.
    fn check_rules(&mut self) {
        let requests = || self.clients.iter().filter(|client| client.state.is_some());
        for client in requests() {
            let obstacle = requests().find(|other| {
                other.arrival < client.arrival && other.locks.conflict_with(client.locks)
            });
            let waits = client.state == Some(CommitState::Waiting);
            assert!(waits || obstacle.is_none(), "{client:?} passed {obstacle:?}");
            assert!(
                !waits || obstacle.is_some(),
                "lost wake-up: {client:?} waits without an obstacle"
            );
        }
        for client in &self.clients {
            assert_eq!(self.machine.state(client.number), client.state, "{:?}", client.number);
            let carried = client.state.map(|_| &client.number);
            assert_eq!(self.machine.payload(client.number), carried);
        }
        self.check_status();
        if self.rng.random_ratio(1, 16) {
            self.machine.check_consistency().unwrap();
        }
    }

    fn check_status(&self) {
        let status = self.machine.status();
        let waits = |client: &&Client| client.state == Some(CommitState::Waiting);
        let waiting = self.clients.iter().filter(waits).count();
        let with_state = self.clients.iter().filter(|client| client.state.is_some()).count();
        assert_eq!(status.waiting, waiting);
        assert!(waiting == 0 || waiting < with_state, "all wait, and no transaction holds a lock");
        let locking = self.clients.iter().filter(|client| client.state.is_some() && !waits(client));
        let oldest = locking.clone().map(|client| client.granted_at).min();
        assert_eq!((status.locking, status.oldest_grant), (locking.count(), oldest));
        assert_eq!((status.ready, status.writing), (self.ready.len(), self.writing.len()));
        let ends = self.clients.iter().filter_map(|client| client.reserved_until);
        assert_eq!(self.machine.first_reservation_end(), ends.min());
        assert_eq!(status.last_given, self.last_given);
        assert_eq!(status.last_published, self.last_published);
    }

    /// Lets all clients come to an end; that it takes more than so many rounds means a hang.
    fn drain(&mut self) {
        for _ in 0..DRAIN_ROUNDS_MAX {
            if self.clients.iter().all(|client| client.state.is_none()) {
                return self.assert_idle();
            }
            for client in 0..self.clients.len() {
                match self.clients[client].state {
                    Some(CommitState::Checking) => self.check(client),
                    Some(CommitState::Resolving) => self.vote_again(client),
                    Some(CommitState::Voted) => self.finish(client),
                    _ => {}
                }
                self.check_rules();
            }
            self.now += Duration::from_millis(1);
            self.end_reservations();
            self.take_batch();
            self.apply();
            self.publish();
            self.check_rules();
        }
        panic!("it does not come to an end: {:?}", self.clients);
    }

    fn assert_idle(&self) {
        assert!(self.machine.is_idle(), "something is left: {:?}", self.machine);
        self.machine.check_consistency().unwrap();
    }

    fn trace(&self, what: Arguments<'_>) {
        if self.coverage.trace {
            eprintln!("{what}");
        }
    }
}
