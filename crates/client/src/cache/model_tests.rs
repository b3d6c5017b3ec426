//! Checks the cache against a model server's whole history: every answer must be true.
//!
//! The server commits, announces commits some time later, and answers loads as of any moment
//! between its last announcement and its last commit. The protocol's ordering contract allows all
//! of that. Messages wait in a stream until they are delivered. The connection is lost at any time,
//! and its undelivered messages arrive late.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;

use super::*;

const OBJECTS: u64 = 6;
/// Room for about twenty objects with overhead, so that most steps evict one.
const CACHE_BYTES: usize = 24 << 10;
/// Objects that are never looked up; they evict others.
const OTHERS: u64 = 1000;

/// What the server has committed, and what it has announced.
#[derive(Default)]
struct Server {
    last: u64,
    /// The tids that wrote each object.
    serials: BTreeMap<u64, Vec<u64>>,
    announced: u64,
    unannounced: VecDeque<(u64, Vec<u64>)>,
}

enum Message {
    Loaded { oid: u64, serial: u64, end: Option<u64> },
    Invalidated { tid: u64, oids: Vec<u64> },
    Finished { tid: u64, oids: Vec<u64> },
}

struct World {
    server: Server,
    cache: Cache,
    stream: Stream,
    /// Sent, but not applied yet.
    sent: VecDeque<Message>,
    /// Undelivered messages of an older connection.
    late: VecDeque<(Stream, Message)>,
    others: u64,
}

#[derive(Clone, Debug)]
enum Step {
    Commit(u8),
    CommitOurs(u8),
    Announce(u8),
    /// A load as of so many transactions before the last one committed, or announced.
    Load(u64, u64, bool),
    Deliver(u8),
    Reconnect(bool),
    DeliverLate(u8),
    Evict(u8),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => any::<u8>().prop_map(Step::Commit),
        2 => any::<u8>().prop_map(Step::CommitOurs),
        4 => (1..3_u8).prop_map(Step::Announce),
        9 => (0..OBJECTS, 0..6_u64, any::<bool>())
            .prop_map(|(oid, back, is_fresh)| Step::Load(oid, back, is_fresh)),
        9 => (1..6_u8).prop_map(Step::Deliver),
        1 => any::<bool>().prop_map(Step::Reconnect),
        2 => (1..6_u8).prop_map(Step::DeliverLate),
        1 => (1..9_u8).prop_map(Step::Evict),
    ]
}

/// The objects in a bit set.
fn oids(set: u8) -> Vec<u64> {
    (0..OBJECTS).filter(|oid| set >> oid & 1 == 1).collect()
}

fn data(oid: u64, serial: u64) -> Vec<u8> {
    let length = 100 + (oid * 37 + serial * 101) % 900;
    [oid.to_be_bytes(), serial.to_be_bytes()].concat().repeat(length as usize / 16)
}

impl Server {
    fn commit(&mut self, oids: &[u64]) -> u64 {
        self.last += 1;
        for &oid in oids {
            self.serials.entry(oid).or_default().push(self.last);
        }
        self.last
    }

    /// Serial and end of the revision that was current before `before`, considering transactions up
    /// to `now`.
    fn load(&self, oid: u64, before: u64, now: u64) -> Option<(u64, Option<u64>)> {
        let serials = self.serials.get(&oid)?;
        let known = &serials[..serials.partition_point(|&serial| serial <= now)];
        let place = known.partition_point(|&serial| serial < before);
        Some((known[place.checked_sub(1)?], known.get(place).copied()))
    }

    fn announce(&mut self) -> Option<Message> {
        let (tid, oids) = self.unannounced.pop_front()?;
        self.announced = tid;
        Some(Message::Invalidated { tid, oids })
    }
}

impl World {
    fn new() -> World {
        let cache = Cache::new(CACHE_BYTES);
        let stream = cache.begin_stream();
        let (sent, late) = (VecDeque::new(), VecDeque::new());
        World { server: Server::default(), cache, stream, sent, late, others: OTHERS }
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Commit(set) => {
                let oids = oids(set);
                let tid = self.server.commit(&oids);
                self.server.unannounced.push_back((tid, oids));
            }
            Step::CommitOurs(set) => self.commit_ours(oids(set)),
            Step::Announce(count) => {
                let notices = (0..count).map_while(|_| self.server.announce());
                self.sent.extend(notices);
            }
            Step::Load(oid, back, is_fresh) => self.load(oid, back, is_fresh),
            Step::Deliver(count) => {
                for _ in 0..count {
                    let Some(message) = self.sent.pop_front() else { break };
                    apply(&self.cache, self.stream, message);
                }
            }
            Step::Reconnect(is_verified) => self.reconnect(is_verified),
            Step::DeliverLate(count) => {
                for _ in 0..count {
                    let Some((stream, message)) = self.late.pop_front() else { break };
                    apply(&self.cache, stream, message);
                }
            }
            Step::Evict(count) => {
                for _ in 0..count {
                    self.others += 1;
                    self.cache.insert(
                        self.stream,
                        Oid(self.others),
                        Tid(1),
                        Some(Tid(2)),
                        &[0; 2000],
                    );
                }
            }
        }
    }

    fn commit_ours(&mut self, oids: Vec<u64>) {
        let tid = self.server.commit(&oids);
        self.sent.extend(std::iter::from_fn(|| self.server.announce()));
        self.server.announced = tid;
        self.sent.push_back(Message::Finished { tid, oids });
    }

    fn load(&mut self, oid: u64, back: u64, is_fresh: bool) {
        let server = &self.server;
        let now = if is_fresh { server.last } else { server.announced };
        let before = if back == 0 { Tid::MAX.0 } else { (now + 1).saturating_sub(back) };
        if let Some((serial, end)) = server.load(oid, before, now) {
            self.sent.push_back(Message::Loaded { oid, serial, end });
        }
    }

    fn reconnect(&mut self, is_verified: bool) {
        let stream = self.stream;
        self.late.extend(self.sent.drain(..).map(|message| (stream, message)));
        self.server.unannounced.clear();
        self.server.announced = self.server.last;
        self.stream = self.cache.begin_stream();
        let (seen, last) = (self.cache.last_tid().0, Tid(self.server.last));
        if is_verified {
            let is_changed = |serials: &Vec<u64>| serials.iter().any(|&serial| serial > seen);
            let changed = self.server.serials.iter().filter(|(_, serials)| is_changed(serials));
            self.cache.verified(self.stream, last, changed.map(|(&oid, _)| Oid(oid)));
        } else {
            self.cache.clear(self.stream, last);
        }
    }

    /// Every cached revision is what the server has, for any moment up to the cache's last
    /// transaction; for later moments it is not older than that.
    fn check(&self) -> Result<(), TestCaseError> {
        let known = self.cache.last_tid().0;
        for oid in 0..OBJECTS {
            for before in (1..self.server.last + 3).chain([Tid::MAX.0]) {
                let Some(found) = self.cache.lookup(Oid(oid), Tid(before)) else { continue };
                let (serial, end) = (found.serial.0, found.end.map(|end| end.0));
                prop_assert_eq!(&found.data[..], &data(oid, serial)[..]);
                let truth = self.server.load(oid, serial + 1, self.server.last);
                let Some((true_serial, true_end)) = truth else {
                    return Err(TestCaseError::fail("never written"));
                };
                prop_assert_eq!(serial, true_serial);
                prop_assert!(end.is_none() || end == true_end, "{end:?} for {true_end:?}");
                let is_current = true_end.is_none_or(|end| end > known);
                prop_assert!(end.is_some() || is_current, "{serial} is not current at {known}");
                prop_assert!(serial < before && end.is_none_or(|end| before <= end));
            }
        }
        let metrics = self.cache.metrics();
        prop_assert!(metrics.bytes <= metrics.bytes_max, "{:?}", metrics);
        Ok(())
    }
}

fn apply(cache: &Cache, stream: Stream, message: Message) {
    match message {
        Message::Loaded { oid, serial, end } => {
            let data = data(oid, serial);
            cache.insert(stream, Oid(oid), Tid(serial), end.map(Tid), &data);
        }
        Message::Invalidated { tid, oids } => {
            cache.invalidate(stream, Tid(tid), oids.into_iter().map(Oid));
        }
        Message::Finished { tid, oids } => {
            let written: Vec<_> = oids.iter().map(|&oid| (Oid(oid), data(oid, tid))).collect();
            let written = written.iter().map(|(oid, data)| (*oid, Some(&data[..])));
            cache.finish(stream, Tid(tid), written);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn nothing_wrong_is_ever_found(steps in prop::collection::vec(any_step(), 1..120)) {
        let mut world = World::new();
        for step in &steps {
            world.take(step);
            world.check()?;
        }
    }
}
