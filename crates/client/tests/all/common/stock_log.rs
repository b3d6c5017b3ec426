//! The log of a stock server, which answers each request for one record.

use zodium_pickle::Value;
use zodium_types::{Oid, Tid};
use zodium_zeo::codec::{Message, decode_message};

use super::peer::{ENCODING, PATIENCE, Peer};

/// A transaction; its tid is its place in the log, from one on.
pub(crate) struct Logged {
    pub(crate) extension: Value<'static>,
    /// How many records it has, of objects from one on.
    pub(crate) records: u64,
    /// The record that the server fails to read.
    pub(crate) damaged: Option<u64>,
}

impl Default for Logged {
    fn default() -> Logged {
        Logged { extension: Value::dict::<&str>([]), records: 1, damaged: None }
    }
}

/// The metadata of a transaction, as it is sent.
pub(crate) fn head(tid: Tid, extension: Value<'static>) -> Value<'static> {
    let empty = || Value::from(b"");
    Value::tuple([tid.into(), " ".into(), empty(), empty(), extension])
}

/// A record, as it is sent.
pub(crate) fn record(oid: Oid, tid: Tid) -> Value<'static> {
    Value::tuple([oid.into(), tid.into(), Value::from(b"data"), Value::None])
}

/// What a client has asked for.
#[derive(Default)]
pub(crate) struct Served {
    /// How many times it began to read the log.
    pub(crate) begun: usize,
    /// The iterators that it released, with one message each time.
    pub(crate) released: Vec<Vec<u64>>,
    /// How many transactions it had requested when it had read the first one.
    pub(crate) ahead: usize,
    /// The same, at each call of `mark`.
    pub(crate) marked: Vec<usize>,
}

/// The id of the iterator over the records of the first transaction; those of further ones follow.
pub(crate) const FIRST_RECORDS: u64 = 100;

/// Sends the log to a client until it pings.
pub(crate) fn serve_log(peer: &mut Peer, log: &[Logged]) -> Served {
    serve_log_from(peer, 1, log)
}

/// As [`serve_log`]; the tids begin with `first`.
pub(crate) fn serve_log_from(peer: &mut Peer, first: u64, log: &[Logged]) -> Served {
    let mut served = Served::default();
    // The tids that an iterator has left, and the transaction and next object of one of records.
    let (mut walks, mut records) = (Vec::new(), Vec::new());
    let mut requested = 0;
    loop {
        let frame = peer.frame(PATIENCE).expect("the client says when it is done");
        let Message { id, name, arguments, .. } = decode_message(ENCODING, &frame).unwrap();
        let arguments = arguments.unwrap_or_default();
        let number = |place: usize| arguments[place].as_u64().unwrap() as usize;
        match &*name {
            "ping" => {
                peer.reply(&id, Value::None);
                return Served { begun: walks.len(), ..served };
            }
            "mark" => {
                served.marked.push(requested);
                peer.reply(&id, Value::None);
            }
            "iterator_gc" => {
                let ids = arguments[0].as_sequence().unwrap().iter();
                served.released.push(ids.map(|id| id.as_u64().unwrap()).collect());
            }
            "iterator_start" => {
                let start = arguments[0].as_tid().map_or(first, |tid| tid.0);
                let stop = arguments[1].as_tid().map_or(u64::MAX, |tid| tid.0);
                peer.reply(&id, (walks.len() as u64).into());
                walks.push(start..=stop.min(first - 1 + log.len() as u64));
            }
            "iterator_next" => {
                let answer = match walks[number(0)].next() {
                    Some(tid) => {
                        requested += 1;
                        head(Tid(tid), log[(tid - first) as usize].extension.clone())
                    }
                    None => Value::None,
                };
                peer.reply(&id, answer);
            }
            "iterator_record_start" => {
                peer.reply(&id, (FIRST_RECORDS + records.len() as u64).into());
                records.push((arguments[1].as_tid().unwrap(), 1));
            }
            "iterator_record_next" => {
                let place = number(0) - FIRST_RECORDS as usize;
                let (tid, oid) = &mut records[place];
                let logged = &log[(tid.0 - first) as usize];
                if logged.damaged == Some(*oid) {
                    peer.fail(&id, "builtins.OSError");
                    continue;
                }
                let is_over = *oid > logged.records;
                if is_over && place == 0 && served.ahead == 0 {
                    served.ahead = requested;
                }
                peer.reply(&id, if is_over { Value::None } else { record(Oid(*oid), *tid) });
                *oid += 1;
            }
            other => panic!("{other}"),
        }
    }
}
