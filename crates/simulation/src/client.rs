//! A client as ZODB's are: it has a cache, reads in views, commits with conflicts, and is lost at
//! any moment. It holds what it is told against the history.

use std::collections::BTreeMap;
use std::fmt;

use bytes::{Buf, Bytes, BytesMut};
use zodium_pickle::Value;
use zodium_types::{Oid, Tid};
use zodium_zeo::codec::frame::{HEADER_LENGTH, Peek, encode_frame, peek_frame};
use zodium_zeo::codec::{
    CodecError, MessageId, RemoteError, Reply, ServerMessage, decode_server_message,
    encode_load_before_request, encode_load_reply, encode_oneway, encode_request,
};

use crate::history::{History, Tried};
use crate::pipe::Pipe;
use crate::plan::{Objects, Plan, Sabotage};
use crate::random::Chance;
use crate::record::{Attempt, record, values};
use crate::server::STORAGE_NAME;
use crate::tampering::Tampering;
use crate::workload::{Seen, Step, Task};

const FRAME_BYTES_MAX: u32 = 1 << 24;

/// What a client needs from outside at each of its steps.
pub(crate) struct Surroundings<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) chance: &'a Chance,
    pub(crate) history: &'a mut History,
    pub(crate) counts: &'a mut Counts,
    /// The newest transaction that any client has been told of.
    pub(crate) known: &'a mut Tid,
}

/// What clients have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Revisions that were read and found right.
    pub reads: u64,
    /// Of these, those that the client still had.
    pub cached_reads: u64,
    /// Views in which an invariant of the workload was checked.
    pub views: u64,
    /// Commits that were acknowledged.
    pub commits: u64,
    /// Conflicts that were resolved by clients.
    pub resolved: u64,
    /// Votes that were refused.
    pub refused: u64,
    /// Invalidations that came as they should.
    pub invalidations: u64,
    /// Commits of which the client does not know whether they were made.
    pub unknown: u64,
}

impl Counts {
    /// Adds another run's.
    pub(crate) fn add(&mut self, other: &Counts) {
        self.reads += other.reads;
        self.cached_reads += other.cached_reads;
        self.views += other.views;
        self.commits += other.commits;
        self.resolved += other.resolved;
        self.refused += other.refused;
        self.invalidations += other.invalidations;
        self.unknown += other.unknown;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { reads, cached_reads, views, commits, resolved, .. } = self;
        let Counts { refused, invalidations, unknown, .. } = self;
        write!(
            f,
            "{reads} reads checked ({cached_reads} of caches) in {views} views, {commits} commits \
             acknowledged, {unknown} of unknown outcome, {refused} votes refused, {resolved} \
             conflicts resolved, {invalidations} invalidations"
        )
    }
}

/// One client.
pub(crate) struct Client {
    number: usize,
    pipe: Option<Pipe>,
    input: BytesMut,
    output: BytesMut,
    session: Session,
    last_id: u64,
    /// The last transaction told of on this connection.
    told: Tid,
    /// The last one told of on any.
    highest: Tid,
    /// What is current as of `told`.
    cache: BTreeMap<Oid, (Tid, Bytes)>,
    doing: Option<Doing>,
    scratch: BytesMut,
    tampering: Tampering,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Session {
    Away,
    Greeting,
    /// `floor`: what was known to anybody when it was asked.
    Registering { floor: Tid },
    Verifying { id: u64, since: Tid },
    Ready,
}

/// What a client is about.
struct Doing {
    task: Task,
    /// What has been read, by the tid before which it was.
    views: BTreeMap<Tid, Seen>,
    loads: Vec<(Oid, Tid)>,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Asks for the last transaction, to see at least what anybody knew by then.
    Syncing { id: u64, floor: Tid },
    Reading,
    Voting { id: u64, attempt: Attempt },
    /// Reads what is current of a counter, to add to that.
    Resolving { attempt: Attempt, oid: Oid, committed: Tid },
    Finishing { id: u64, attempt: Attempt },
    Aborting { id: u64 },
}

type Outcome = Result<(), String>;

impl Client {
    pub(crate) fn new(number: usize) -> Client {
        Client {
            number,
            pipe: None,
            input: BytesMut::new(),
            output: BytesMut::new(),
            session: Session::Away,
            last_id: 0,
            told: Tid::ZERO,
            highest: Tid::ZERO,
            cache: BTreeMap::new(),
            doing: None,
            scratch: BytesMut::new(),
            tampering: Tampering::default(),
        }
    }

    pub(crate) fn pipe(&self) -> Option<&Pipe> {
        self.pipe.as_ref()
    }

    /// Whether it is connected and has nothing to do.
    pub(crate) fn is_idle(&self) -> bool {
        self.session == Session::Ready && self.doing.is_none()
    }

    /// The request to finish whose answer it waits for.
    fn finish_id(&self) -> Option<u64> {
        match self.doing.as_ref()?.phase {
            Phase::Finishing { id, .. } => Some(id),
            _ => None,
        }
    }

    /// What it is about, for people.
    pub(crate) fn describe(&self) -> String {
        let doing = self.doing.as_ref();
        let doing = doing.map(|d| format!("{:?} {:?}, {} loads", d.task, d.phase, d.loads.len()));
        format!("client {} {:?} {}", self.number, self.session, doing.unwrap_or_default())
    }

    pub(crate) fn connect(&mut self, pipe: Pipe) {
        self.pipe = Some(pipe);
        self.session = Session::Greeting;
        self.input.clear();
        self.output.clear();
        self.last_id = 0;
        self.tampering = Tampering::default();
    }

    /// The connection is gone, or given up; gives it back.
    pub(crate) fn disconnect(&mut self, with: &mut Surroundings<'_>) -> Option<Pipe> {
        with.counts.unknown += u64::from(self.finish_id().is_some());
        self.doing = None;
        self.session = Session::Away;
        if with.chance.permille(200) {
            // As after a restart of the client.
            self.cache.clear();
        }
        self.pipe.take()
    }

    /// The last transaction that it was told of.
    pub(crate) fn told(&self) -> Tid {
        self.told
    }

    /// Takes what has arrived, and answers.
    pub(crate) fn receive(&mut self, bytes: usize, with: &mut Surroundings<'_>) -> Outcome {
        let Some(pipe) = self.pipe.clone() else { return Ok(()) };
        pipe.deliver_replies(bytes, &mut self.input);
        let mut input = std::mem::take(&mut self.input);
        while let Ok(Peek::Complete(payload)) = peek_frame(&input, FRAME_BYTES_MAX) {
            let length = HEADER_LENGTH + payload.len();
            let frame = &input[..length];
            if with.plan.sabotage == Sabotage::None {
                self.handle_frame(frame, with)?;
            } else {
                let finish = self.finish_id();
                let Plan { sabotage, encoding, .. } = *with.plan;
                let changed =
                    self.tampering.change(frame, sabotage, encoding, finish, with.chance);
                changed.iter().try_for_each(|frame| self.handle_frame(frame, with))?;
            }
            input.advance(length);
        }
        self.input = input;
        self.go_on(with)?;
        self.flush();
        Ok(())
    }

    fn handle_frame(&mut self, frame: &[u8], with: &mut Surroundings<'_>) -> Outcome {
        if self.is_expected_load(frame, with)? {
            return Ok(());
        }
        self.handle(&frame[HEADER_LENGTH..], with)
    }

    /// Begins something.
    pub(crate) fn begin(&mut self, with: &mut Surroundings<'_>) -> Outcome {
        if !self.is_idle() {
            return Ok(());
        }
        let task = Task::choose(with.plan, with.chance);
        let mut doing =
            Doing { task, views: BTreeMap::new(), loads: Vec::new(), phase: Phase::Reading };
        if with.chance.permille(100) {
            let id = self.next_id();
            doing.phase = Phase::Syncing { id, floor: *with.known };
            self.request(id, "lastTransaction", &Value::tuple([]), with)?;
        } else {
            self.read(&mut doing, with)?;
        }
        self.doing = Some(doing);
        self.go_on(with)?;
        self.flush();
        Ok(())
    }

    fn flush(&mut self) {
        if let Some(pipe) = &self.pipe {
            pipe.send(&self.output);
        }
        self.output.clear();
    }

    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    fn request(
        &mut self,
        id: u64,
        name: &str,
        arguments: &Value<'_>,
        with: &Surroundings<'_>,
    ) -> Outcome {
        encode_request(with.plan.encoding, &mut self.output, id, name, arguments).map_err(encoding)
    }

    fn tell(&mut self, name: &str, arguments: &Value<'_>, with: &Surroundings<'_>) -> Outcome {
        encode_oneway(with.plan.encoding, &mut self.output, name, arguments).map_err(encoding)
    }

    /// Asks for the objects that a task reads, in the present view, and when it only reads in
    /// others too.
    fn read(&mut self, doing: &mut Doing, with: &mut Surroundings<'_>) -> Outcome {
        let oids = doing.task.reads(&with.plan.objects);
        doing.views.insert(self.told.next(), Seen::new());
        if doing.task.is_reading() {
            let since = with.history.packed.max(Tid(1));
            let past = with.history.between(since, self.told);
            for _ in 0..with.chance.number(0..=30).min(past.len() as u64) {
                let recent = past.len().min(40);
                let place = past.len() - 1 - with.chance.place(recent);
                doing.views.insert(past[place].tid.next(), Seen::new());
            }
        }
        for before in doing.views.keys().copied().collect::<Vec<_>>() {
            self.load(doing, &oids, before, with)?;
        }
        Ok(())
    }

    fn load(
        &mut self,
        doing: &mut Doing,
        oids: &[Oid],
        before: Tid,
        with: &mut Surroundings<'_>,
    ) -> Outcome {
        for oid in oids {
            let is_current = before == self.told.next() && with.chance.permille(400);
            if let Some((start, data)) = self.cache.get(oid).filter(|_| is_current) {
                check_load(with.history, *oid, before, (*start, data, None), self.told)
                    .map_err(|error| format!("{error} (from the cache)"))?;
                with.counts.cached_reads += 1;
                with.counts.reads += 1;
                doing.see(*oid, before, *start, data)?;
            } else if !doing.loads.contains(&(*oid, before)) {
                encode_load_before_request(with.plan.encoding, &mut self.output, *oid, before);
                doing.loads.push((*oid, before));
            }
        }
        Ok(())
    }

    /// Recognises the answer to the oldest load by what it must be, which is quick. False only
    /// means that it must be looked at.
    fn is_expected_load(
        &mut self,
        frame: &[u8],
        with: &mut Surroundings<'_>,
    ) -> Result<bool, String> {
        let Some(doing) = &mut self.doing else { return Ok(false) };
        let Some((oid, before)) = doing.loads.first().copied() else { return Ok(false) };
        let Some((start, data, next)) = with.history.before(oid, before) else { return Ok(false) };
        let end = next.filter(|next| *next <= self.told);
        let id = MessageId::Load { oid, before };
        self.scratch.clear();
        encode_load_reply(with.plan.encoding, &mut self.scratch, &id, data, start, end)
            .map_err(encoding)?;
        if self.scratch != frame {
            return Ok(false);
        }
        if end.is_none() {
            self.cache.insert(oid, (start, data.clone()));
        }
        doing.loads.remove(0);
        doing.see(oid, before, start, data)?;
        with.counts.reads += 1;
        Ok(true)
    }

    fn handle(&mut self, payload: &[u8], with: &mut Surroundings<'_>) -> Outcome {
        if self.session == Session::Greeting {
            return self.greet(payload, with);
        }
        let message = decode_server_message(with.plan.encoding, payload).map_err(encoding)?;
        match message {
            ServerMessage::Notice(notice) => {
                let arguments = notice.arguments.unwrap_or_default();
                match &notice.name[..] {
                    "invalidateTransaction" => self.invalidated(&arguments, with),
                    "info" => Ok(()),
                    other => Err(format!("an unexpected notice {other}")),
                }
            }
            ServerMessage::Reply(Reply { id: MessageId::Load { oid, before }, result }) => {
                self.loaded(oid, before, result, with)
            }
            ServerMessage::Reply(Reply { id: MessageId::Number(id), result }) => {
                self.answered(id, result, with)
            }
            ServerMessage::Reply(reply) => Err(format!("a reply to {:?}", reply.id)),
        }
    }

    fn greet(&mut self, payload: &[u8], with: &mut Surroundings<'_>) -> Outcome {
        if payload != with.plan.encoding.announcement() {
            return Err(format!("the server announces {payload:?}"));
        }
        encode_frame(&mut self.output, payload).map_err(encoding)?;
        let id = self.next_id();
        self.session = Session::Registering { floor: *with.known };
        self.request(id, "register", &Value::tuple([STORAGE_NAME.into(), false.into()]), with)
    }

    fn invalidated(&mut self, arguments: &[Value<'_>], with: &mut Surroundings<'_>) -> Outcome {
        let [tid, oids] = arguments else { return Err("an odd invalidation".to_owned()) };
        let tid = tid.as_tid().ok_or("an invalidation without a tid")?;
        let oids = oids.as_sequence().ok_or("an invalidation without oids")?;
        let mut oids: Vec<Oid> = oids.iter().filter_map(Value::as_oid).collect();
        oids.sort_unstable();
        let expected = with.history.next_after(self.told);
        if expected.is_none_or(|expected| expected.tid != tid || expected.oids != oids) {
            let expected = expected.map(|expected| (expected.tid, &expected.oids));
            let told = self.told;
            return Err(format!("after {told} comes {tid} of {oids:?}, and not {expected:?}"));
        }
        for oid in &oids {
            self.cache.remove(oid);
        }
        self.hear(tid, with);
        with.counts.invalidations += 1;
        Ok(())
    }

    fn hear(&mut self, tid: Tid, with: &mut Surroundings<'_>) {
        self.told = tid;
        self.highest = self.highest.max(tid);
        *with.known = (*with.known).max(tid);
    }

    fn loaded(
        &mut self,
        oid: Oid,
        before: Tid,
        result: Result<Value<'_>, RemoteError<'_>>,
        with: &mut Surroundings<'_>,
    ) -> Outcome {
        let told = self.told;
        let Some(doing) = &mut self.doing else { return Err(format!("a load of {oid} unasked")) };
        let place = doing.loads.iter().position(|load| *load == (oid, before));
        let place = place.ok_or_else(|| format!("a load of {oid} before {before} unasked"))?;
        doing.loads.remove(place);
        match result {
            Ok(Value::Tuple(parts) | Value::List(parts)) if parts.len() == 3 => {
                let data = parts[0].as_bytes().ok_or("a load without data")?;
                let start = parts[1].as_tid().ok_or("a load without a start")?;
                let end = parts[2].as_tid();
                check_load(with.history, oid, before, (start, data, end), told)?;
                with.counts.reads += 1;
                if end.is_none() {
                    self.cache.insert(oid, (start, Bytes::copy_from_slice(data)));
                }
                doing.see(oid, before, start, data)
            }
            other => {
                let next = with.history.before(oid, before).and_then(|(_, _, next)| next);
                let is_packed = next.is_some_and(|next| next <= with.history.packed);
                let missing = match &other {
                    Ok(Value::None) => true,
                    Err(error) => error.name.ends_with("POSKeyError"),
                    Ok(_) => false,
                };
                let may_fail = other.is_err() && !missing && with.plan.faults > 0;
                if may_fail || missing && is_packed {
                    // This view cannot be had.
                    doing.views.remove(&before);
                    doing.loads.retain(|(_, b)| *b != before);
                    return Ok(());
                }
                Err(format!("a load of {oid} before {before} is answered {other:?}"))
            }
        }
    }

    fn answered(
        &mut self,
        id: u64,
        result: Result<Value<'_>, RemoteError<'_>>,
        with: &mut Surroundings<'_>,
    ) -> Outcome {
        match self.session {
            Session::Registering { floor } => return self.registered(floor, result, with),
            Session::Verifying { id: asked, since } if asked == id => {
                return self.verified(since, result, with);
            }
            _ => {}
        }
        let Some(mut doing) = self.doing.take() else { return Err(format!("{id} is unasked")) };
        match doing.phase {
            Phase::Syncing { id: asked, floor } if asked == id => {
                let mut tid = result.ok().and_then(|value| value.as_tid());
                if with.plan.sabotage == Sabotage::NoCatchUp {
                    tid = Some(self.told);
                }
                if tid != Some(self.told) || self.told < floor {
                    let told = self.told;
                    return Err(format!("last is {tid:?}, told {told}, known before {floor}"));
                }
                doing.phase = Phase::Reading;
                self.read(&mut doing, with)?;
                self.doing = Some(doing);
                Ok(())
            }
            Phase::Voting { id: asked, attempt } if asked == id => {
                self.voted(doing, attempt, result, with)
            }
            Phase::Finishing { id: asked, attempt } if asked == id => {
                self.finished(attempt, result, with)
            }
            Phase::Aborting { id: asked } if asked == id => match result {
                Ok(_) => Ok(()),
                Err(error) => Err(format!("an abort failed: {error:?}")),
            },
            phase => Err(format!("{id} is answered in {phase:?}")),
        }
    }

    fn registered(
        &mut self,
        floor: Tid,
        result: Result<Value<'_>, RemoteError<'_>>,
        with: &mut Surroundings<'_>,
    ) -> Outcome {
        let tid = result.map_err(|error| format!("cannot register: {error:?}"))?;
        let tid = tid.as_tid().ok_or("register() gives no tid")?;
        if tid < floor {
            return Err(format!("register() gives {tid}, but {floor} was known before"));
        }
        let since = std::mem::replace(&mut self.told, tid);
        self.hear(tid, with);
        if self.cache.is_empty() || since == tid {
            self.session = Session::Ready;
            return Ok(());
        }
        let id = self.next_id();
        self.session = Session::Verifying { id, since };
        self.request(id, "getInvalidations", &Value::tuple([since.into()]), with)
    }

    fn verified(
        &mut self,
        since: Tid,
        result: Result<Value<'_>, RemoteError<'_>>,
        with: &mut Surroundings<'_>,
    ) -> Outcome {
        self.session = Session::Ready;
        let result = match result {
            Ok(result) => result,
            Err(_) if with.plan.faults > 0 => Value::None,
            Err(error) => return Err(format!("getInvalidations() fails: {error:?}")),
        };
        let Some([tid, oids]) = result.as_sequence() else {
            self.cache.clear();
            return if result.is_none() { Ok(()) } else { Err(format!("odd: {result:?}")) };
        };
        let tid = tid.as_tid().ok_or("getInvalidations() without a tid")?;
        if tid != self.told {
            return Err(format!("getInvalidations() is up to {tid}, told {}", self.told));
        }
        let oids: Vec<Oid> =
            oids.as_sequence().unwrap_or_default().iter().filter_map(Value::as_oid).collect();
        let changed = with.history.between(since, tid).iter().flat_map(|c| &c.oids);
        if let Some(missing) = changed.clone().find(|oid| !oids.contains(oid)) {
            return Err(format!("getInvalidations({since}) up to {tid} lacks object {missing}"));
        }
        for oid in oids {
            self.cache.remove(&oid);
        }
        Ok(())
    }

    /// Does what can be done without an answer.
    fn go_on(&mut self, with: &mut Surroundings<'_>) -> Outcome {
        while let Some(mut doing) = self.doing.take_if(|doing| doing.loads.is_empty()) {
            match doing.phase {
                Phase::Reading => {
                    if let Some(doing) = self.step(doing, with)? {
                        self.doing = Some(doing);
                    }
                }
                Phase::Resolving { attempt, oid, committed } => {
                    self.resolve(&mut doing, attempt, oid, committed, with)?;
                    self.doing = Some(doing);
                    return Ok(());
                }
                _ => {
                    self.doing = Some(doing);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn step(
        &mut self,
        mut doing: Doing,
        with: &mut Surroundings<'_>,
    ) -> Result<Option<Doing>, String> {
        let objects = with.plan.objects;
        if doing.task.is_reading() {
            for (before, seen) in &doing.views {
                let step = doing.task.step(&objects, self.number, seen, with.chance);
                step.map_err(|error| format!("{error}, seen before {before}: {seen:?}"))?;
                with.counts.views += 1;
            }
            return Ok(None);
        }
        let Some((before, seen)) = doing.views.pop_last() else { return Ok(None) };
        match doing.task.step(&objects, self.number, &seen, with.chance)? {
            Step::Done => Ok(None),
            Step::Read(oids) => {
                doing.views.insert(before, seen);
                self.load(&mut doing, &oids, before, with)?;
                Ok(Some(doing))
            }
            Step::Write(writes, current) => {
                let serial = |oid: &Oid| seen.get(oid).map_or(Tid::ZERO, |(tid, _)| *tid);
                let attempt = Attempt(with.history.attempts.len() as u64);
                let write = |(oid, values): (Oid, Vec<u64>)| {
                    let filling = with.chance.size(with.plan.filling_bytes) as usize;
                    (oid, (serial(&oid), record(oid, attempt, &values, filling)))
                };
                let tried = Tried {
                    client: self.number,
                    writes: writes.into_iter().map(write).collect(),
                    current: current.iter().map(|oid| (*oid, serial(oid))).collect(),
                    ..Tried::default()
                };
                with.history.attempts.push(tried);
                self.send_transaction(&mut doing, attempt, with)?;
                Ok(Some(doing))
            }
        }
    }

    fn send_transaction(
        &mut self,
        doing: &mut Doing,
        attempt: Attempt,
        with: &mut Surroundings<'_>,
    ) -> Outcome {
        let name = Value::from(attempt.0);
        let description = attempt.0.to_string().into_bytes();
        let begin = [
            name.clone(),
            Value::Bytes(b"".into()),
            Value::Bytes(description.into()),
            Value::dict::<&str>([]),
            Value::None,
            " ".into(),
        ];
        self.tell("tpc_begin", &Value::tuple(begin), with)?;
        let tried = with.history.attempts.get(attempt.place()).ok_or("no such attempt")?;
        let (writes, current) = (tried.writes.clone(), tried.current.clone());
        for (oid, (serial, data)) in &writes {
            let mut serial = serial;
            let current = with.history.before(*oid, Tid::MAX).map(|(tid, ..)| tid);
            if let (Sabotage::NoConflicts, Some(current)) = (with.plan.sabotage, &current) {
                serial = current;
            }
            let store = [(*oid).into(), (*serial).into(), Value::Bytes((&data[..]).into()), name.clone()];
            self.tell("storea", &Value::tuple(store), with)?;
        }
        for (oid, serial) in &current {
            let check = [(*oid).into(), (*serial).into(), name.clone()];
            self.tell("checkCurrentSerialInTransaction", &Value::tuple(check), with)?;
        }
        self.vote(doing, attempt, with)
    }

    fn vote(
        &mut self,
        doing: &mut Doing,
        attempt: Attempt,
        with: &mut Surroundings<'_>,
    ) -> Outcome {
        let id = self.next_id();
        doing.phase = Phase::Voting { id, attempt };
        self.request(id, "vote", &Value::tuple([attempt.0.into()]), with)
    }

    fn voted(
        &mut self,
        mut doing: Doing,
        attempt: Attempt,
        result: Result<Value<'_>, RemoteError<'_>>,
        with: &mut Surroundings<'_>,
    ) -> Outcome {
        let found = match result {
            Ok(found) => found,
            Err(error) => {
                with.counts.refused += 1;
                let is_usual = error.name.contains("Conflict") || with.plan.faults > 0;
                // The server has ended the transaction; stock clients abort it all the same.
                let aborted = self.abort(doing, attempt, with);
                return if is_usual { aborted } else { Err(format!("a vote fails: {error:?}")) };
            }
        };
        let found = found.as_sequence().ok_or("a vote is answered with no list")?;
        let Some(conflict) = found.first() else {
            if with.chance.permille(50) {
                return self.abort(doing, attempt, with);
            }
            let id = self.next_id();
            let tried = with.history.attempts.get_mut(attempt.place()).ok_or("no such attempt")?;
            tried.asked = true;
            doing.phase = Phase::Finishing { id, attempt };
            self.doing = Some(doing);
            return self.request(id, "tpc_finish", &Value::tuple([attempt.0.into()]), with);
        };
        let oid = conflict.entry("oid").and_then(Value::as_oid).ok_or("a conflict of nothing")?;
        let committed = conflict.entry("serials").and_then(Value::as_sequence);
        let committed = committed.and_then(|serials| serials.first()?.as_tid());
        let committed = committed.ok_or("a conflict without serials")?;
        with.counts.refused += 1;
        if found.len() > 1 || !Objects::is_counter(oid) || with.chance.permille(200) {
            return self.abort(doing, attempt, with);
        }
        doing.views.clear();
        doing.views.insert(committed.next(), Seen::new());
        doing.phase = Phase::Resolving { attempt, oid, committed };
        self.load(&mut doing, &[oid], committed.next(), with)?;
        self.doing = Some(doing);
        Ok(())
    }

    fn resolve(
        &mut self,
        doing: &mut Doing,
        attempt: Attempt,
        oid: Oid,
        committed: Tid,
        with: &mut Surroundings<'_>,
    ) -> Outcome {
        let seen = doing.views.pop_last().and_then(|(_, mut seen)| seen.remove(&oid));
        let Some((_, now)) = seen else {
            let id = self.next_id();
            doing.phase = Phase::Aborting { id };
            return self.request(id, "tpc_abort", &Value::tuple([attempt.0.into()]), with);
        };
        let count = now.first().copied().unwrap_or_default() + 1;
        let data = record(oid, attempt, &[count], 0);
        let tried = with.history.attempts.get_mut(attempt.place()).ok_or("no such attempt")?;
        tried.writes.insert(oid, (committed, data.clone()));
        with.counts.resolved += 1;
        let store = [oid.into(), committed.into(), Value::Bytes((&data[..]).into()), attempt.0.into()];
        self.tell("storea", &Value::tuple(store), with)?;
        self.vote(doing, attempt, with)
    }

    fn abort(
        &mut self,
        mut doing: Doing,
        attempt: Attempt,
        with: &mut Surroundings<'_>,
    ) -> Outcome {
        let id = self.next_id();
        doing.phase = Phase::Aborting { id };
        self.doing = Some(doing);
        self.request(id, "tpc_abort", &Value::tuple([attempt.0.into()]), with)
    }

    fn finished(
        &mut self,
        attempt: Attempt,
        result: Result<Value<'_>, RemoteError<'_>>,
        with: &mut Surroundings<'_>,
    ) -> Outcome {
        let tid = match result {
            Ok(tid) => tid.as_tid().ok_or("a finish is answered with no tid")?,
            Err(_) if with.plan.faults > 0 => {
                with.counts.unknown += 1;
                return Ok(());
            }
            Err(error) => return Err(format!("a finish fails: {error:?}")),
        };
        let next = with.history.next_after(self.told);
        if next.is_none_or(|next| next.tid != tid || next.attempt != attempt) {
            let told = self.told;
            return Err(format!("{} is finished as {tid} after {told}, not {next:?}", attempt.0));
        }
        let tried = with.history.attempts.get_mut(attempt.place()).ok_or("no such attempt")?;
        tried.acknowledged = Some(tid);
        for (oid, (_, data)) in &tried.writes {
            self.cache.insert(*oid, (tid, data.clone()));
        }
        self.hear(tid, with);
        with.counts.commits += 1;
        Ok(())
    }
}

impl Doing {
    fn see(&mut self, oid: Oid, before: Tid, start: Tid, data: &[u8]) -> Outcome {
        let found = values(oid, data).ok_or_else(|| format!("{oid} has data of another object"))?;
        if let Some(seen) = self.views.get_mut(&before) {
            seen.insert(oid, (start, found));
        }
        Ok(())
    }
}

/// Holds an answer against the history. `told` is what came before it on its connection.
fn check_load(
    history: &History,
    oid: Oid,
    before: Tid,
    (start, data, end): (Tid, &[u8], Option<Tid>),
    told: Tid,
) -> Outcome {
    let wrong = |what: String| Err(format!("object {oid} before {before}: {what}"));
    let Some((tid, stored, next)) = history.before(oid, before) else {
        return wrong(format!("{start} is loaded, but there was none"));
    };
    if start != tid || data != stored {
        return wrong(format!("{start} is loaded, {tid} was stored; or other bytes"));
    }
    match end {
        None if next.is_some_and(|next| next <= told) => {
            wrong(format!("said to be current, after {next:?} was told of"))
        }
        Some(_) if end != next => wrong(format!("ends at {end:?}, not {next:?}")),
        _ => Ok(()),
    }
}

fn encoding(error: CodecError) -> String {
    format!("cannot be encoded or decoded: {error}")
}
