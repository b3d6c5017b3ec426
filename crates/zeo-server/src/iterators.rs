//! The open iterators of a client.
//!
//! Both kinds share one sequence of numbers for each connection. During a step on a blocking
//! thread the job owns the iterator, and further requests for it wait: a client may read ahead.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use zodium_pickle::Value;
use zodium_storage::{RecordCursor, Transaction, TransactionCursor, TransactionRecord};
use zodium_types::Tid;

use crate::call::Arguments;
use crate::exception::{Exception, oid_value, tid_value};
use crate::log_chunk::{chunk_bytes, read_log_chunk};
use crate::peer::Peer;
use crate::replies::{Reply, ReplyTo};
use crate::undo_log::extension_entries;

/// Most open iterators of a connection; a client that never closes its iterators gets an error.
const ITERATORS_MAX: usize = 1000;

/// The iterators of a session.
pub(crate) struct Iterators {
    peer: Rc<Peer>,
    places: RefCell<Places>,
}

#[derive(Default)]
struct Places {
    next: i64,
    open: FxHashMap<i64, Place>,
    /// The number of waiting requests, of all iterators.
    waiting: usize,
}

#[derive(Default)]
struct Place {
    /// `None`: a job has it.
    iterator: Option<Iterator>,
    /// Requests that wait for it, in order.
    waiting: VecDeque<Request>,
}

enum Iterator {
    Transactions { place: Box<dyn TransactionCursor>, last: Option<Tid> },
    Records(Box<dyn RecordCursor>),
}

struct Request {
    step: Step,
    reply_to: ReplyTo,
}

/// The operations on iterators.
enum Step {
    Transaction,
    /// Opens an iterator over the records of the transaction that it gave last.
    Records(Option<Tid>),
    Record,
    Read {
        bytes_max: usize,
        with_records: bool,
    },
}

impl Iterators {
    pub(crate) fn new(peer: Rc<Peer>) -> Rc<Iterators> {
        Rc::new(Iterators { peer, places: RefCell::default() })
    }

    /// Closes all iterators: the connection has ended.
    pub(crate) fn clear(&self) {
        let mut places = self.places.borrow_mut();
        places.open.clear();
        places.waiting = 0;
    }

    /// The number of open iterators.
    pub(crate) fn len(&self) -> usize {
        self.places.borrow().open.len()
    }

    /// The number of requests that wait for others of the same iterator.
    pub(crate) fn waiting(&self) -> usize {
        self.places.borrow().waiting
    }

    pub(crate) fn start(
        self: &Rc<Self>,
        to: &ReplyTo,
        arguments: &mut Arguments<'_>,
    ) -> Result<Reply, Exception> {
        let (start, stop) = (arguments.optional_tid()?, arguments.optional_tid()?);
        self.places.borrow().check_room()?;
        let (iterators, storage) = (Rc::clone(self), Arc::clone(self.peer.storage()));
        let to = to.clone();
        let job = move || storage.reader().iterate(start, stop);
        self.peer.jobs.spawn(job, move |started| {
            let reply = started.map_err(Exception::from).and_then(|place| {
                // Checked again, since others may have been opened meanwhile.
                iterators.places.borrow_mut().add(Iterator::Transactions { place, last: None })
            });
            iterators.peer.replies.reply_result(&to, reply);
        });
        Ok(Reply::Later)
    }

    pub(crate) fn next(
        self: &Rc<Self>,
        to: &ReplyTo,
        arguments: &mut Arguments<'_>,
    ) -> Result<Reply, Exception> {
        let number = arguments.integer()?;
        self.ask(to, number, Step::Transaction)
    }

    pub(crate) fn record_start(
        self: &Rc<Self>,
        to: &ReplyTo,
        arguments: &mut Arguments<'_>,
    ) -> Result<Reply, Exception> {
        let (number, tid) = (arguments.integer()?, arguments.value().as_tid());
        self.ask(to, number, Step::Records(tid))
    }

    pub(crate) fn record_next(
        self: &Rc<Self>,
        to: &ReplyTo,
        arguments: &mut Arguments<'_>,
    ) -> Result<Reply, Exception> {
        let number = arguments.integer()?;
        self.ask(to, number, Step::Record)
    }

    pub(crate) fn read(
        self: &Rc<Self>,
        to: &ReplyTo,
        arguments: &mut Arguments<'_>,
    ) -> Result<Reply, Exception> {
        let (number, bytes_max) = (arguments.integer()?, chunk_bytes(arguments)?);
        let with_records = arguments.value().is_truthy();
        self.ask(to, number, Step::Read { bytes_max, with_records })
    }

    pub(crate) fn close(&self, arguments: &mut Arguments<'_>) -> Result<Reply, Exception> {
        let numbers = arguments.value();
        let Some(numbers) = numbers.as_sequence() else {
            return Err(Exception::type_error("iterator_gc(): expected a list of numbers"));
        };
        for number in numbers.iter().filter_map(Value::as_int) {
            if let Ok(number) = i64::try_from(number) {
                self.forget(number);
            }
        }
        Ok(Reply::Value(Value::None))
    }

    fn ask(self: &Rc<Self>, to: &ReplyTo, number: i64, step: Step) -> Result<Reply, Exception> {
        let request = Request { step, reply_to: to.clone() };
        let iterator = self.places.borrow_mut().queue(number, request)?;
        if let Some(iterator) = iterator {
            self.go_on(number, iterator);
        }
        Ok(Reply::Later)
    }

    /// Performs the requests of an iterator, until a job takes it or none is left.
    fn go_on(self: &Rc<Self>, number: i64, mut iterator: Iterator) {
        loop {
            let next = self.places.borrow_mut().next(number, iterator);
            let Some((request, taken)) = next else { return };
            match self.step(number, taken, request) {
                Some(kept) => iterator = kept,
                None => return,
            }
        }
    }

    /// Performs one step. Gives the iterator back, unless a job has taken it.
    fn step(
        self: &Rc<Self>,
        number: i64,
        iterator: Iterator,
        Request { step, reply_to }: Request,
    ) -> Option<Iterator> {
        let (iterators, jobs) = (Rc::clone(self), &self.peer.jobs);
        match (step, iterator) {
            (Step::Transaction, Iterator::Transactions { mut place, .. }) => {
                let job = move || {
                    let step = place.step();
                    (place, step)
                };
                jobs.spawn(job, move |(place, step)| {
                    let (reply, last) = match step {
                        Ok(None) => (Ok(Value::None), None),
                        Ok(Some(one)) => (transaction_value(&one), Some(one.tid)),
                        Err(error) => (Err(error.into()), None),
                    };
                    let kept = last.map(|one| Iterator::Transactions { place, last: Some(one) });
                    iterators.stepped(number, &reply_to, reply, kept);
                });
                None
            }
            (Step::Record, Iterator::Records(mut place)) => {
                let job = move || {
                    let step = place.step();
                    (place, step)
                };
                jobs.spawn_answer(job, move |(place, step)| {
                    let is_over = !matches!(step, Ok(Some(_)));
                    let reply = match step {
                        Ok(None) => Ok(Value::None),
                        Ok(Some(record)) => Ok(record_value(record)),
                        Err(error) => Err(error.into()),
                    };
                    let kept = (!is_over).then_some(Iterator::Records(place));
                    iterators.stepped(number, &reply_to, reply, kept);
                });
                None
            }
            (Step::Read { bytes_max, with_records }, Iterator::Transactions { mut place, .. }) => {
                let job = move || {
                    let read = read_log_chunk(place.as_mut(), bytes_max, with_records);
                    (place, read)
                };
                jobs.spawn_answer(job, move |(place, read)| {
                    let kept = Iterator::Transactions { place, last: None };
                    let kept = read.is_ok().then_some(kept);
                    iterators.stepped(number, &reply_to, read, kept);
                });
                None
            }
            (Step::Records(asked), Iterator::Transactions { place, last }) => {
                let reply = self.start_records(number, place.as_ref(), last, asked);
                self.peer.replies.reply_result(&reply_to, reply);
                Some(Iterator::Transactions { place, last })
            }
            (_, iterator) => {
                self.peer.replies.reply_error(&reply_to, &no_such_attribute());
                Some(iterator)
            }
        }
    }

    /// Answers a step, and takes its iterator back from the job; `None` closes it.
    fn stepped(
        self: &Rc<Self>,
        number: i64,
        to: &ReplyTo,
        reply: Result<Value<'static>, Exception>,
        kept: Option<Iterator>,
    ) {
        self.peer.replies.reply_result(to, reply);
        match kept {
            Some(iterator) => self.go_on(number, iterator),
            None => self.forget(number),
        }
    }

    fn forget(&self, number: i64) {
        let waiting = self.places.borrow_mut().remove(number);
        for request in waiting {
            self.peer.replies.reply_error(&request.reply_to, &missing_iterator(number));
        }
    }

    fn start_records(
        &self,
        number: i64,
        place: &dyn TransactionCursor,
        last: Option<Tid>,
        asked: Option<Tid>,
    ) -> Result<Value<'static>, Exception> {
        // The iterator has given no transaction yet.
        let records = place.records().ok_or_else(|| missing_iterator(number))?;
        if last != asked {
            return Err(Exception::new(
                "builtins.Exception",
                "Out-of-order request for the records of a transaction",
            ));
        }
        self.places.borrow_mut().add(Iterator::Records(records))
    }
}

impl Places {
    fn check_room(&self) -> Result<(), Exception> {
        if self.open.len() < ITERATORS_MAX {
            return Ok(());
        }
        Err(Exception::value_error(format!("more than {ITERATORS_MAX} iterators are open")))
    }

    /// Adds an iterator, if there is room; gives its number.
    fn add(&mut self, iterator: Iterator) -> Result<Value<'static>, Exception> {
        self.check_room()?;
        Ok(self.insert(iterator))
    }

    fn insert(&mut self, iterator: Iterator) -> Value<'static> {
        let number = self.next;
        self.next += 1;
        let iterator = Some(iterator);
        self.open.insert(number, Place { iterator, waiting: VecDeque::new() });
        Value::Int(number.into())
    }

    /// Adds a request for an iterator. Gives the iterator, unless a job has it.
    fn queue(&mut self, number: i64, request: Request) -> Result<Option<Iterator>, Exception> {
        let place = self.open.get_mut(&number);
        let place = place.ok_or_else(|| missing_iterator(number))?;
        place.waiting.push_back(request);
        self.waiting += 1;
        Ok(place.iterator.take())
    }

    /// The next request for an iterator, with the iterator. Without a request the iterator is put
    /// back.
    fn next(&mut self, number: i64, iterator: Iterator) -> Option<(Request, Iterator)> {
        // The client may have closed the iterator, or the session may have ended.
        let place = self.open.get_mut(&number)?;
        let Some(request) = place.waiting.pop_front() else {
            place.iterator = Some(iterator);
            return None;
        };
        self.waiting -= 1;
        Some((request, iterator))
    }

    /// Removes a place; gives the requests that wait for it.
    fn remove(&mut self, number: i64) -> VecDeque<Request> {
        let waiting = self.open.remove(&number).map(|place| place.waiting).unwrap_or_default();
        self.waiting -= waiting.len();
        waiting
    }
}

fn transaction_value(transaction: &Transaction) -> Result<Value<'static>, Exception> {
    let status = char::from(transaction.status.to_byte()).to_string();
    let metadata = &transaction.metadata;
    Ok(Value::tuple([
        tid_value(transaction.tid),
        Value::Str(status.into()),
        Value::Bytes(metadata.user.clone().into()),
        Value::Bytes(metadata.description.clone().into()),
        Value::Dict(extension_entries(transaction)?),
    ]))
}

fn record_value(record: TransactionRecord) -> Value<'static> {
    Value::tuple([
        oid_value(record.oid),
        tid_value(record.tid),
        record.data.map_or(Value::None, |data| Value::Bytes(Vec::from(data).into())),
        record.data_tid.map_or(Value::None, tid_value),
    ])
}

fn missing_iterator(number: i64) -> Exception {
    Exception { name: "builtins.KeyError", payload: Value::tuple([Value::Int(number.into())]) }
}

fn no_such_attribute() -> Exception {
    Exception::new("builtins.AttributeError", "this iterator is of the other kind")
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::call::Method;
    use crate::testing::storage;

    fn request(bytes_max: usize) -> Request {
        let reply_to = ReplyTo { id: None, method: Method::IteratorRead, asked: Instant::now() };
        Request { step: Step::Read { bytes_max, with_records: true }, reply_to }
    }

    #[test]
    fn requests_wait_in_order_while_a_job_has_their_iterator() {
        let storage = storage();
        let place = storage.reader().iterate(None, None).unwrap();
        let mut places = Places::default();
        let number = places.add(Iterator::Transactions { place, last: None }).unwrap();
        let number = i64::try_from(number.as_int().unwrap()).unwrap();
        let place = storage.reader().iterate(None, None).unwrap();
        let next = places.add(Iterator::Transactions { place, last: None }).unwrap();
        assert_eq!((number, next), (0, Value::Int(1)));
        let iterator = places.queue(number, request(1)).unwrap().unwrap();
        let (first, iterator) = places.next(number, iterator).unwrap();
        assert!(matches!(first.step, Step::Read { bytes_max: 1, .. }));
        // A job has the iterator.
        assert!(places.queue(number, request(2)).unwrap().is_none());
        assert!(places.queue(number, request(3)).unwrap().is_none());
        assert_eq!(places.waiting, 2);
        let (second, _) = places.next(number, iterator).unwrap();
        assert!(matches!(second.step, Step::Read { bytes_max: 2, .. }));
        let left = places.remove(number);
        assert!(left.iter().all(|left| matches!(left.step, Step::Read { bytes_max: 3, .. })));
        assert_eq!((left.len(), places.waiting), (1, 0));
        assert!(places.queue(number, request(4)).is_err(), "it is closed");
    }
}
