//! The open iterators of a client.
//!
//! Both kinds share one sequence of numbers for each connection. During a step on a blocking
//! thread the job owns the iterator, and further requests for it wait: a client may read ahead.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;
use zodium_pickle::Value;
use zodium_storage::{RecordCursor, Transaction, TransactionCursor, TransactionRecord};
use zodium_types::Tid;

use super::call::Arguments;
use super::exception::{Exception, oid_value, tid_value};
use super::log_chunk::{chunk_bytes, read_log_chunk};
use super::session::{Context, Reply, ReplyTo, Session, SessionHandle};
use super::undo_log::extension_entries;

/// Most open iterators of a connection; a client that never closes its iterators gets an error.
const ITERATORS_MAX: usize = 1000;

#[derive(Default)]
pub(crate) struct Iterators {
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
    pub(crate) fn clear(&mut self) {
        self.open.clear();
        self.waiting = 0;
    }

    /// The number of open iterators.
    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    /// The number of requests that wait for others of the same iterator.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    fn check_room(&self) -> Result<(), Exception> {
        if self.open.len() < ITERATORS_MAX {
            return Ok(());
        }
        Err(Exception::value_error(format!("more than {ITERATORS_MAX} iterators are open")))
    }

    fn add(&mut self, iterator: Iterator) -> i64 {
        let number = self.next;
        self.next += 1;
        let iterator = Some(iterator);
        self.open.insert(number, Place { iterator, waiting: VecDeque::new() });
        number
    }

    /// Removes a place; gives the requests that wait for it.
    fn remove(&mut self, number: i64) -> VecDeque<Request> {
        let waiting = self.open.remove(&number).map(|place| place.waiting).unwrap_or_default();
        self.waiting -= waiting.len();
        waiting
    }
}

impl Session {
    pub(crate) fn iterator_start(
        &mut self,
        context: &Context<'_>,
        arguments: &mut Arguments<'_>,
    ) -> Result<Reply, Exception> {
        let (start, stop) = (arguments.optional_tid()?, arguments.optional_tid()?);
        self.iterators.check_room()?;
        let Some(storage) = self.storage() else { return Ok(Reply::Later) };
        let reply_to = context.reply_to.clone();
        let job = move || storage.reader().iterate(start, stop);
        context.handle.spawn(self, job, move |_, session, started| {
            // Checked again, since others may have been opened meanwhile.
            let room = session.iterators.check_room();
            let reply = started.map_err(Exception::from).and_then(|place| room.map(|()| place));
            let reply = reply.map(|place| {
                let iterator = Iterator::Transactions { place, last: None };
                Value::Int(session.iterators.add(iterator).into())
            });
            session.reply_result(&reply_to, reply);
        });
        Ok(Reply::Later)
    }

    pub(crate) fn iterator_next(
        &mut self,
        context: &Context<'_>,
        arguments: &mut Arguments<'_>,
    ) -> Result<Reply, Exception> {
        let number = arguments.integer()?;
        self.ask_iterator(context, number, Step::Transaction)
    }

    pub(crate) fn iterator_record_start(
        &mut self,
        context: &Context<'_>,
        arguments: &mut Arguments<'_>,
    ) -> Result<Reply, Exception> {
        let (number, tid) = (arguments.integer()?, arguments.value().as_tid());
        self.ask_iterator(context, number, Step::Records(tid))
    }

    pub(crate) fn iterator_record_next(
        &mut self,
        context: &Context<'_>,
        arguments: &mut Arguments<'_>,
    ) -> Result<Reply, Exception> {
        let number = arguments.integer()?;
        self.ask_iterator(context, number, Step::Record)
    }

    pub(crate) fn iterator_read(
        &mut self,
        context: &Context<'_>,
        arguments: &mut Arguments<'_>,
    ) -> Result<Reply, Exception> {
        let (number, bytes_max) = (arguments.integer()?, chunk_bytes(arguments)?);
        let with_records = arguments.value().is_truthy();
        self.ask_iterator(context, number, Step::Read { bytes_max, with_records })
    }

    fn ask_iterator(
        &mut self,
        context: &Context<'_>,
        number: i64,
        step: Step,
    ) -> Result<Reply, Exception> {
        let place = self.iterators.open.get_mut(&number);
        let place = place.ok_or_else(|| missing_iterator(number))?;
        place.waiting.push_back(Request { step, reply_to: context.reply_to.clone() });
        self.iterators.waiting += 1;
        if let Some(iterator) = place.iterator.take() {
            self.go_on(context.handle, number, iterator);
        }
        Ok(Reply::Later)
    }

    /// Performs the requests of an iterator, until a job takes it or none is left.
    fn go_on(&mut self, handle: &SessionHandle, number: i64, mut iterator: Iterator) {
        loop {
            // The client may have closed the iterator, or the session may have ended.
            let Some(place) = self.iterators.open.get_mut(&number) else { return };
            let Some(request) = place.waiting.pop_front() else {
                place.iterator = Some(iterator);
                return;
            };
            self.iterators.waiting -= 1;
            match self.step(handle, number, iterator, request) {
                Some(kept) => iterator = kept,
                None => return,
            }
        }
    }

    /// Performs one step. Gives the iterator back, unless a job has taken it.
    fn step(
        &mut self,
        handle: &SessionHandle,
        number: i64,
        iterator: Iterator,
        Request { step, reply_to }: Request,
    ) -> Option<Iterator> {
        match (step, iterator) {
            (Step::Transaction, Iterator::Transactions { mut place, .. }) => {
                let job = move || {
                    let step = place.step();
                    (place, step)
                };
                handle.spawn(self, job, move |handle, session, (place, step)| {
                    let (reply, last) = match step {
                        Ok(None) => (Ok(Value::None), None),
                        Ok(Some(one)) => (transaction_value(&one), Some(one.tid)),
                        Err(error) => (Err(error.into()), None),
                    };
                    session.reply_result(&reply_to, reply);
                    let kept = last.map(|one| Iterator::Transactions { place, last: Some(one) });
                    session.stepped(handle, number, kept);
                });
                None
            }
            (Step::Record, Iterator::Records(mut place)) => {
                let job = move || {
                    let step = place.step();
                    (place, step)
                };
                handle.spawn_answer(self, job, move |handle, session, (place, step)| {
                    let is_over = !matches!(step, Ok(Some(_)));
                    let reply = match step {
                        Ok(None) => Ok(Value::None),
                        Ok(Some(record)) => Ok(record_value(record)),
                        Err(error) => Err(error.into()),
                    };
                    session.reply_result(&reply_to, reply);
                    session.stepped(handle, number, (!is_over).then_some(Iterator::Records(place)));
                });
                None
            }
            (Step::Read { bytes_max, with_records }, Iterator::Transactions { mut place, .. }) => {
                let job = move || {
                    let read = read_log_chunk(place.as_mut(), bytes_max, with_records);
                    (place, read)
                };
                handle.spawn_answer(self, job, move |handle, session, (place, read)| {
                    let kept = Iterator::Transactions { place, last: None };
                    let kept = read.is_ok().then_some(kept);
                    session.reply_result(&reply_to, read);
                    session.stepped(handle, number, kept);
                });
                None
            }
            (Step::Records(asked), Iterator::Transactions { place, last }) => {
                let reply = self.start_records(number, place.as_ref(), last, asked);
                self.reply_result(&reply_to, reply);
                Some(Iterator::Transactions { place, last })
            }
            (_, iterator) => {
                self.reply_error(&reply_to, &no_such_attribute());
                Some(iterator)
            }
        }
    }

    /// Takes an iterator back from a job; `None` closes it.
    fn stepped(&mut self, handle: &SessionHandle, number: i64, kept: Option<Iterator>) {
        match kept {
            Some(iterator) => self.go_on(handle, number, iterator),
            None => self.forget_iterator(number),
        }
    }

    fn forget_iterator(&mut self, number: i64) {
        for request in self.iterators.remove(number) {
            self.reply_error(&request.reply_to, &missing_iterator(number));
        }
    }

    fn start_records(
        &mut self,
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
        self.iterators.check_room()?;
        Ok(Value::Int(self.iterators.add(Iterator::Records(records)).into()))
    }

    pub(crate) fn iterator_gc(
        &mut self,
        arguments: &mut Arguments<'_>,
    ) -> Result<Reply, Exception> {
        let numbers = arguments.value();
        let Some(numbers) = numbers.as_sequence() else {
            return Err(Exception::type_error("iterator_gc(): expected a list of numbers"));
        };
        for number in numbers.iter().filter_map(Value::as_int) {
            if let Ok(number) = i64::try_from(number) {
                self.forget_iterator(number);
            }
        }
        Ok(Reply::Value(Value::None))
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
