//! The commands: what each is called, what it takes, and what it does.

mod algebra;
mod bit_fields;
mod bits;
mod chosen_clients;
mod config;
mod connection;
mod counters;
mod diagnostics;
mod dumping;
mod encoding;
mod expiring;
mod hashes;
mod info;
mod introspection;
mod keys;
mod lcs;
mod list_moves;
mod lists;
mod numbering;
mod positions;
mod publishing;
mod ranges;
mod scans;
mod score_algebra;
mod score_ranges;
mod scripts;
mod serving;
mod sets;
mod sort;
mod sorted_sets;
mod stream_claims;
mod stream_groups;
mod stream_info;
mod stream_options;
mod stream_reads;
mod streams;
mod strings;
mod substrings;
mod table;
mod tracking;
mod tying;

pub(crate) use dumping::payload_of;
pub(crate) use numbering::{all, count, groups, numbered_names};
pub(crate) use strings::check_set;
pub(crate) use tying::{check_ztie, hexadecimal};

use std::rc::Rc;
use std::sync::LazyLock;

use rustc_hash::FxHashMap;
use zodium_keyspace::{Keyspace, Stripes};
use zodium_resp::{Arguments, parse_integer};

use crate::call::Call;
use crate::fail::{Fail, Outcome};
use crate::reply::Reply;
use crate::{After, Client, LocalServer};

pub(crate) use info::{REDIS_VERSION, VERSION};

/// A command, or a subcommand of one.
#[derive(Debug)]
pub(crate) struct Command {
    /// Its place among all commands and subcommands, below [`count`].
    pub(crate) number: usize,
    /// In lower case.
    pub(crate) name: &'static str,
    /// With that of the command that it is a subcommand of: `client|list`.
    pub(crate) full_name: &'static str,
    /// Number of arguments with the name; if negative, at least so many.
    pub(crate) arity: i32,
    pub(crate) flags: u32,
    pub(crate) keys: Keys,
    pub(crate) run: Run,
    pub(crate) awaits: Awaits,
    pub(crate) subcommands: Vec<Command>,
}

/// Which arguments are keys.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Keys {
    /// None.
    None,
    /// From the first to the last, each so many steps after the other. A negative last one counts
    /// from the end: -1 is the last argument.
    Range(usize, i32, usize),
    /// As many as the argument at this place says, behind it.
    Counted(usize),
    /// The first argument, and as many as the second one says.
    FirstAndCounted,
    /// The same for scripts, which may touch any others too.
    CountedOfAll(usize),
    /// The first half of the words behind `STREAMS`, which stands at this place or later.
    Streams(usize),
    /// The first argument; it may touch any others too.
    FirstOfAll,
    /// None that the arguments name: it may touch any.
    All,
    /// Those that the client watches.
    Watched,
}

/// What has to come into being for a command that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaits {
    /// A list, at any of its keys.
    List,
    /// A list at its first key: it moves an element to the other one.
    SourceList,
    /// A sorted set, at any of its keys.
    SortedSet,
    /// A stream, at any of its keys.
    Stream,
    /// Any change of any of its keys: a reader of a group of a stream is told of all.
    Any,
}

/// What executes a command.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Run {
    /// It touches its keys, and executes under their locks.
    Data(fn(&mut Call) -> Outcome),
    /// It touches the connection only, or locks by itself.
    Connection(fn(Request) -> Result<After, Fail>),
}

/// A request for a command of the connection, which writes the answer, and says what follows.
pub(crate) struct Request<'a, 'r> {
    pub(crate) local: &'a Rc<LocalServer>,
    pub(crate) client: &'a Rc<Client>,
    pub(crate) arguments: Arguments<'a>,
    pub(crate) reply: &'a mut Reply<'r>,
}

/// What is to be known of commands.
pub(crate) mod flags {
    pub(crate) const WRITE: u32 = 1;
    pub(crate) const READONLY: u32 = 1 << 1;
    pub(crate) const DENY_OOM: u32 = 1 << 2;
    pub(crate) const ADMIN: u32 = 1 << 3;
    pub(crate) const PUBSUB: u32 = 1 << 4;
    pub(crate) const NO_SCRIPT: u32 = 1 << 5;
    pub(crate) const BLOCKING: u32 = 1 << 6;
    pub(crate) const LOADING: u32 = 1 << 7;
    pub(crate) const STALE: u32 = 1 << 8;
    pub(crate) const SKIP_MONITOR: u32 = 1 << 9;
    pub(crate) const FAST: u32 = 1 << 10;
    pub(crate) const NO_AUTH: u32 = 1 << 11;
    pub(crate) const NO_MULTI: u32 = 1 << 12;
    pub(crate) const MOVABLE_KEYS: u32 = 1 << 13;
    /// Not queued within a transaction.
    pub(crate) const CONTROL: u32 = 1 << 14;
    /// Allowed to subscribers in RESP2.
    pub(crate) const SUBSCRIBED: u32 = 1 << 15;
    /// Allowed while a script takes long.
    pub(crate) const ALLOW_BUSY: u32 = 1 << 16;
    /// Writes, and answers what it has read: the keys that it finds are counted.
    pub(crate) const READS: u32 = 1 << 17;

    /// The names of the flags in answers.
    pub(crate) const NAMES: [(u32, &str); 15] = [
        (WRITE, "write"),
        (READONLY, "readonly"),
        (DENY_OOM, "denyoom"),
        (ADMIN, "admin"),
        (PUBSUB, "pubsub"),
        (NO_SCRIPT, "noscript"),
        (BLOCKING, "blocking"),
        (LOADING, "loading"),
        (STALE, "stale"),
        (SKIP_MONITOR, "skip_monitor"),
        (FAST, "fast"),
        (NO_AUTH, "no_auth"),
        (NO_MULTI, "no_multi"),
        (MOVABLE_KEYS, "movablekeys"),
        (ALLOW_BUSY, "allow_busy"),
    ];
}

/// Longest name of a command.
const NAME_BYTES_MAX: usize = 32;
/// Bytes of arguments that the error of an unknown command repeats.
const REPEATED_BYTES_MAX: usize = 128;

static BY_NAME: LazyLock<FxHashMap<&'static [u8], &'static Command>> =
    LazyLock::new(|| all().map(|command| (command.name.as_bytes(), command)).collect());

/// The command of a request, if the number of its arguments is right.
pub(crate) fn find(arguments: Arguments) -> Result<&'static Command, Fail> {
    let command = named(arguments.word(0)).ok_or_else(|| unknown(arguments))?;
    if command.subcommands.is_empty() || arguments.len() == 1 {
        return match command.takes(arguments.len()) {
            true => Ok(command),
            false => Err(Fail::arity(command.name)),
        };
    }
    let Some(subcommand) = command.subcommand(arguments.word(1)) else {
        let (name, parent) = (shown(arguments.word(1)), command.name.to_ascii_uppercase());
        return Err(Fail::text(format!("ERR unknown subcommand '{name}'. Try {parent} HELP.")));
    };
    match subcommand.takes(arguments.len()) {
        true => Ok(subcommand),
        false => Err(Fail::arity(&format!("{}|{}", command.name, subcommand.name))),
    }
}

/// The command that a request means, whatever the number of its arguments.
pub(crate) fn meant(arguments: Arguments) -> Option<&'static Command> {
    let command = named(arguments.word(0))?;
    match command.subcommands.is_empty() || arguments.len() == 1 {
        true => Some(command),
        false => command.subcommand(arguments.word(1)),
    }
}

/// The command of a name in any case.
pub(crate) fn named(name: &[u8]) -> Option<&'static Command> {
    let mut lower = [0; NAME_BYTES_MAX];
    let lower = lower.get_mut(..name.len())?;
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    BY_NAME.get(&*lower).copied()
}

/// The keys behind the word `STREAMS`.
pub(crate) fn after_streams(arguments: Arguments, first: usize) -> std::ops::Range<usize> {
    let is_word = |place: &usize| arguments.word(*place).eq_ignore_ascii_case(b"streams");
    match (first..arguments.len()).find(is_word) {
        Some(place) => place + 1..place + 1 + (arguments.len() - place - 1) / 2,
        None => 0..0,
    }
}

fn unknown(arguments: Arguments) -> Fail {
    let mut repeated = String::new();
    for word in arguments.from(1).iter() {
        if repeated.len() >= REPEATED_BYTES_MAX {
            break;
        }
        let left = REPEATED_BYTES_MAX - repeated.len();
        repeated.push_str(&format!("'{}' ", shown(&word[..word.len().min(left)])));
    }
    let name = arguments.word(0);
    let name = shown(&name[..name.len().min(REPEATED_BYTES_MAX)]);
    Fail::text(format!("ERR unknown command '{name}', with args beginning with: {repeated}"))
}

/// A word for an error's text.
fn shown(word: &[u8]) -> String {
    String::from_utf8_lossy(word).into_owned()
}

impl Command {
    pub(crate) fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Whether it changes no key. Of a script that is known only while it runs.
    pub(crate) fn only_reads(&self) -> bool {
        self.has(flags::READONLY) && !self.is_script()
    }

    /// Whether it may take more memory, by itself or by what a script of it does.
    pub(crate) fn may_add(&self) -> bool {
        self.has(flags::DENY_OOM) || self.is_script()
    }

    pub(crate) fn is_script(&self) -> bool {
        matches!(self.keys, Keys::CountedOfAll(_))
    }

    pub(crate) fn subcommand(&self, name: &[u8]) -> Option<&Command> {
        self.subcommands.iter().find(|sub| sub.name.as_bytes().eq_ignore_ascii_case(name))
    }

    fn takes(&self, arguments: usize) -> bool {
        let arity = self.arity.unsigned_abs() as usize;
        if self.arity < 0 { arguments >= arity } else { arguments == arity }
    }

    /// The stripes that a request locks. Those of watched keys the client knows; without a client
    /// all are locked.
    pub(crate) fn stripes(&self, keyspace: &Keyspace, arguments: Arguments) -> Stripes {
        match self.keys {
            Keys::All | Keys::FirstOfAll | Keys::CountedOfAll(_) | Keys::Watched => Stripes::ALL,
            _ => keyspace.stripes(self.keys_of(arguments)),
        }
    }

    /// The keys of a request. If their number makes no sense there are none: then the command
    /// answers an error before it touches any.
    pub(crate) fn keys_of<'a>(&self, arguments: Arguments<'a>) -> impl Iterator<Item = &'a [u8]> {
        let counted = |place: usize| {
            let count = parse_integer(arguments.word(place));
            let count = count.and_then(|count| usize::try_from(count).ok());
            let count = count.filter(|count| *count < arguments.len() - place.min(arguments.len()));
            place + 1..place + 1 + count.unwrap_or(0)
        };
        let (first, rest, step) = match self.keys {
            Keys::None | Keys::All | Keys::Watched => (None, 0..0, 1),
            Keys::Range(first, last, step) => {
                let length = arguments.len();
                let end = match usize::try_from(last) {
                    Ok(last) => (last + 1).min(length),
                    Err(_) => (length + 1).saturating_sub(last.unsigned_abs() as usize),
                };
                (None, first..end.max(first), step)
            }
            Keys::Counted(place) | Keys::CountedOfAll(place) => (None, counted(place), 1),
            Keys::FirstAndCounted => (Some(1), counted(2), 1),
            Keys::FirstOfAll => (Some(1), 0..0, 1),
            Keys::Streams(first) => (None, after_streams(arguments, first), 1),
        };
        first.into_iter().chain(rest.step_by(step)).map(move |place| arguments.word(place))
    }
}
