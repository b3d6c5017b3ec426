//! The shape of a run. Each seed leaves some of what happens out, as that hides other things.

use crate::random::Chance;

/// A mistake that is made on purpose, to check that the simulation notices it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RespBug {
    /// None.
    #[default]
    None,
    /// Some published messages and invalidations are not sent.
    LostMessages,
    /// Some are sent twice.
    RepeatedMessages,
    /// Invalidations are sent after the next answer.
    LateInvalidations,
    /// A byte of an answer is changed.
    WrongBytes,
    /// What a pop has answered stays in its list.
    TakesTwice,
    /// Watched keys are forgotten.
    ForgetsWatches,
    /// A pause stops no commands.
    IgnoresPauses,
    /// Keys expire late.
    ExpiresLate,
    /// Waiting has no end.
    WaitsForEver,
    /// Clients that wait are served in another order.
    ServesLastFirst,
    /// `CLIENT REPLY OFF` is for one command only.
    AnswersAgain,
    /// Some commits are not announced.
    LosesCommits,
}

/// What a run is about besides commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    /// Nothing.
    Commands,
    /// Keys expire. The model does not tell when their memory is freed, so no client is told.
    Expiry,
    /// Clients have caches.
    Caches,
    /// Keys are tied to objects.
    Ties,
}

/// The parameters of a run, from its seed.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) clients: usize,
    pub(super) workers: usize,
    pub(super) subject: Subject,
    /// Whether changes of keys are published.
    pub(super) has_events: bool,
    pub(super) has_pauses: bool,
    /// Most bytes in transit from the server.
    pub(super) window: usize,
    pub(super) output_bytes_high: usize,
    pub(super) push_bytes_max: usize,
    /// Most bytes that arrive at once.
    pub(super) chunk_bytes: u64,
    /// Longest value.
    pub(super) value_bytes: u64,
    /// Steps per thousand that end a connection.
    pub(super) disconnects: u64,
    /// Of a thousand pipelines, those that end a connection of another client or its waiting.
    pub(super) interferences: u64,
    pub(super) bug: RespBug,
}

/// Most bytes that wait for a client, if that is not what a run is about.
pub(super) const PUSH_BYTES_USUAL: usize = 16 << 20;

impl Plan {
    pub(super) fn new(chance: &Chance, bug: RespBug) -> Plan {
        let sometimes = |number: u64| if chance.permille(500) { number } else { 0 };
        let or = |rare: u64, usual: u64| if chance.permille(300) { rare } else { usual };
        let subjects = [Subject::Commands, Subject::Expiry, Subject::Caches, Subject::Ties];
        Plan {
            clients: chance.number(2..=9) as usize,
            workers: chance.number(1..=3) as usize,
            subject: subjects[chance.place(subjects.len())],
            has_events: chance.permille(500),
            has_pauses: chance.permille(400),
            window: or(chance.number(50..=2000), 1 << 24) as usize,
            output_bytes_high: or(chance.number(100..=4000), 1 << 20) as usize,
            push_bytes_max: or(chance.number(500..=5000), PUSH_BYTES_USUAL as u64) as usize,
            chunk_bytes: or(chance.number(1..=60), chance.number(1000..=1 << 16)),
            value_bytes: or(8000, or(300, 8)),
            disconnects: sometimes(chance.number(1..=40)),
            interferences: sometimes(chance.number(1..=200)),
            bug,
        }
    }
}
