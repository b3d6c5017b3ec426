//! A client like ZODB's: it has a cache, reads in views, commits with conflicts, and may disconnect
//! at any moment. It checks everything it is told against the history.

mod commit;
mod ending;
mod refusal;
mod registration;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use zodium_pickle::Value;
use zodium_types::{Oid, Tid};
use zodium_zeo::codec::frame::{HEADER_LENGTH, Peek, peek_frame};
use zodium_zeo::codec::{
    CodecError, MessageId, RemoteError, Reply, ServerMessage, decode_server_message,
    encode_load_before_request, encode_load_reply, encode_oneway, encode_request,
};

use crate::counts::Counts;
use crate::fault_injector::FaultInjector;
use crate::history::{History, Tried};
use crate::pipe::Pipe;
use crate::plan::{InjectedBug, Plan};
use crate::random::Chance;
use crate::record::{Attempt, record, values};
use crate::trace::Digest;
use crate::workload::{Seen, Step, Task};

const FRAME_BYTES_MAX: u32 = 1 << 24;

/// What a client needs from outside in each of its steps.
pub(crate) struct Surroundings<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) chance: &'a Chance,
    pub(crate) history: &'a mut History,
    pub(crate) counts: &'a mut Counts,
    /// The newest transaction that any client has been told of.
    pub(crate) known: &'a mut Tid,
    /// The monotonic clock.
    pub(crate) now: Duration,
}

/// One client.
pub(crate) struct Client {
    number: usize,
    pipe: Option<Pipe>,
    input: BytesMut,
    output: BytesMut,
    session: Session,
    last_id: u64,
    /// The last transaction told on this connection.
    told: Tid,
    /// The last transaction told on any connection.
    highest: Tid,
    /// Current revisions as of `told`.
    cache: BTreeMap<Oid, (Tid, Bytes)>,
    doing: Option<Doing>,
    scratch: BytesMut,
    fault_injector: FaultInjector,
    /// Digest of all bytes received.
    heard: Digest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Session {
    Away,
    Greeting,
    /// `floor`: the newest transaction known to any client when the request was sent.
    Registering {
        floor: Tid,
    },
    Verifying {
        id: u64,
        since: Tid,
    },
    Ready,
}

/// The client's current task.
struct Doing {
    task: Task,
    /// What has been read, by the `before` tid of its view.
    views: BTreeMap<Tid, Seen>,
    loads: Vec<(Oid, Tid)>,
    phase: Phase,
    /// When its transaction was sent.
    begun: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Asks for the last transaction, which must include all that any client knew by then.
    Syncing {
        id: u64,
        floor: Tid,
    },
    Reading,
    Voting {
        id: u64,
        attempt: Attempt,
    },
    /// Loads the current revision of a counter, to add to it.
    Resolving {
        attempt: Attempt,
        oid: Oid,
        committed: Tid,
    },
    Finishing {
        id: u64,
        attempt: Attempt,
    },
    Aborting {
        id: u64,
    },
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
            fault_injector: FaultInjector::default(),
            heard: Digest::default(),
        }
    }

    pub(crate) fn pipe(&self) -> Option<&Pipe> {
        self.pipe.as_ref()
    }

    /// Whether it is connected and has no task.
    pub(crate) fn is_idle(&self) -> bool {
        self.session == Session::Ready && self.doing.is_none()
    }

    /// The id of the vote whose reply it waits for.
    fn vote_id(&self) -> Option<u64> {
        match self.doing.as_ref()?.phase {
            Phase::Voting { id, .. } => Some(id),
            _ => None,
        }
    }

    fn is_finishing(&self) -> bool {
        let phase = self.doing.as_ref().map(|doing| doing.phase);
        matches!(phase, Some(Phase::Finishing { .. }))
    }

    /// Describes its task for people.
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
        self.fault_injector = FaultInjector::default();
    }

    /// Ends or abandons the connection; returns it.
    pub(crate) fn disconnect(&mut self, with: &mut Surroundings<'_>) -> Option<Pipe> {
        with.counts.unknown += u64::from(self.is_finishing());
        self.doing = None;
        if let Session::Verifying { since, .. } = self.session {
            // Its cache is as of then.
            self.told = since;
        }
        self.session = Session::Away;
        if with.chance.permille(200) {
            // As if the client had been restarted.
            self.cache.clear();
        }
        self.pipe.take()
    }

    /// Digest of all bytes received.
    pub(crate) fn heard(&self) -> u64 {
        self.heard.0
    }

    /// The last transaction that it was told of.
    pub(crate) fn told(&self) -> Tid {
        self.told
    }

    /// Handles bytes that have arrived.
    pub(crate) fn receive(&mut self, bytes: usize, with: &mut Surroundings<'_>) -> Outcome {
        let Some(pipe) = self.pipe.clone() else { return Ok(()) };
        let before = self.input.len();
        pipe.deliver_replies(bytes, &mut self.input);
        self.heard.add(&self.input[before..]);
        let mut input = std::mem::take(&mut self.input);
        while let Ok(Peek::Complete(payload)) = peek_frame(&input, FRAME_BYTES_MAX) {
            let length = HEADER_LENGTH + payload.len();
            let frame = &input[..length];
            if with.plan.bug == InjectedBug::None {
                self.handle_frame(frame, with)?;
            } else {
                let vote = self.vote_id();
                let Plan { bug, encoding, .. } = *with.plan;
                let changed = self.fault_injector.change(frame, bug, encoding, vote, with.chance);
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

    /// Begins a random task.
    pub(crate) fn begin(&mut self, with: &mut Surroundings<'_>) -> Outcome {
        if !self.is_idle() {
            return Ok(());
        }
        let task = Task::choose(with.plan, with.chance);
        let (views, loads) = (BTreeMap::new(), Vec::new());
        let mut doing = Doing { task, views, loads, phase: Phase::Reading, begun: None };
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

    /// Loads the objects that a task reads, in the present view; a read-only task also uses other
    /// views.
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

    /// Compares the reply to the oldest load with the expected one, which is fast. `false` only
    /// means that it must be decoded.
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
                    // This view is no longer available.
                    doing.views.remove(&before);
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
                if with.plan.bug == InjectedBug::NoCatchUp {
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
                self.finished(doing.task, attempt, result, with)
            }
            Phase::Aborting { id: asked } if asked == id => match result {
                Ok(_) => Ok(()),
                Err(error) => Err(format!("an abort failed: {error:?}")),
            },
            phase => Err(format!("{id} is answered in {phase:?}")),
        }
    }

    /// Continues until a reply is needed.
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

/// Checks a reply against the history. `told` is the last transaction told before it on its
/// connection.
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
