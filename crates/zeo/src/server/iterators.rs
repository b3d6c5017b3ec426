//! The iterators that a client has open.
//!
//! Their numbers count up per connection and are shared by both kinds. While a step is under way
//! on a blocking thread the iterator is with the job.

use rustc_hash::FxHashMap;
use zodium_filestorage::{RecordIterator, Transaction, TransactionIterator};
use zodium_pickle::Value;
use zodium_types::Tid;

use super::call::Arguments;
use super::exception::{Exception, oid_value, tid_value};
use super::session::{Context, Reply, Session};
use super::undo_log::extension_entries;

/// Iterators that one connection may have open; a client that forgets them is told so.
const ITERATORS_MAX: usize = 1000;

#[derive(Default)]
pub(crate) struct Iterators {
    next: i64,
    open: FxHashMap<i64, Iterator>,
}

enum Iterator {
    Transactions { place: Box<TransactionIterator>, last: Option<Box<Transaction>> },
    Records(Box<RecordIterator>),
}

impl Iterators {
    pub(crate) fn clear(&mut self) {
        self.open.clear();
    }

    /// How many are open.
    pub(crate) fn len(&self) -> usize {
        self.open.len()
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
        self.open.insert(number, iterator);
        number
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
        let job = move || storage.file().iterate(start, stop);
        context.handle.spawn(self, job, move |_, session, started| {
            // Once more: others may have been started meanwhile.
            let room = session.iterators.check_room();
            let reply = started.map_err(Exception::from).and_then(|place| room.map(|()| place));
            let reply = reply.map(|place| {
                let place = Box::new(place);
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
        let (number, iterator) = self.take_iterator(arguments)?;
        let mut place = match iterator {
            Iterator::Transactions { place, .. } => place,
            other => return Err(self.wrong_kind(number, other)),
        };
        let reply_to = context.reply_to.clone();
        let job = move || {
            let step = place.step();
            (place, step)
        };
        context.handle.spawn(self, job, move |_, session, (place, step)| {
            let reply = match step {
                Ok(None) => Ok(Value::None),
                Ok(Some(transaction)) => {
                    let value = transaction_value(&transaction);
                    let last = Some(Box::new(transaction));
                    session.put_iterator(number, Iterator::Transactions { place, last });
                    value
                }
                Err(error) => Err(error.into()),
            };
            session.reply_result(&reply_to, reply);
        });
        Ok(Reply::Later)
    }

    pub(crate) fn iterator_record_start(
        &mut self,
        arguments: &mut Arguments<'_>,
    ) -> Result<Reply, Exception> {
        let (number, iterator) = self.take_iterator(arguments)?;
        let asked: Option<Tid> = arguments.value().as_tid();
        let records = match &iterator {
            Iterator::Transactions { place, last: Some(last) } if Some(last.tid) == asked => {
                Ok(place.records(last))
            }
            Iterator::Transactions { last: Some(_), .. } => Err(Exception::new(
                "builtins.Exception",
                "Out-of-order request for the records of a transaction",
            )),
            // No transaction was given yet.
            Iterator::Transactions { last: None, .. } => Err(missing_iterator(number)),
            Iterator::Records(_) => Err(no_such_attribute()),
        };
        let room = self.iterators.check_room();
        self.put_iterator(number, iterator);
        room?;
        let number = self.iterators.add(Iterator::Records(Box::new(records?)));
        Ok(Reply::Value(Value::Int(number.into())))
    }

    pub(crate) fn iterator_record_next(
        &mut self,
        context: &Context<'_>,
        arguments: &mut Arguments<'_>,
    ) -> Result<Reply, Exception> {
        let (number, iterator) = self.take_iterator(arguments)?;
        let mut place = match iterator {
            Iterator::Records(place) => place,
            other => return Err(self.wrong_kind(number, other)),
        };
        let reply_to = context.reply_to.clone();
        let job = move || {
            let step = place.step();
            (place, step)
        };
        context.handle.spawn_answer(self, job, move |_, session, (place, step)| {
            let reply = match step {
                Ok(None) => Ok(Value::None),
                Ok(Some(record)) => {
                    session.put_iterator(number, Iterator::Records(place));
                    Ok(Value::tuple([
                        oid_value(record.oid),
                        tid_value(record.tid),
                        record.data.map_or(Value::None, |d| Value::Bytes(Vec::from(d).into())),
                        record.data_tid.map_or(Value::None, tid_value),
                    ]))
                }
                Err(error) => Err(error.into()),
            };
            session.reply_result(&reply_to, reply);
        });
        Ok(Reply::Later)
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
                self.iterators.open.remove(&number);
            }
        }
        Ok(Reply::Value(Value::None))
    }

    fn take_iterator(
        &mut self,
        arguments: &mut Arguments<'_>,
    ) -> Result<(i64, Iterator), Exception> {
        let number = arguments.integer()?;
        let found = self.iterators.open.remove(&number);
        found.map(|iterator| (number, iterator)).ok_or_else(|| missing_iterator(number))
    }

    fn put_iterator(&mut self, number: i64, iterator: Iterator) {
        if !self.is_closed() {
            self.iterators.open.insert(number, iterator);
        }
    }

    fn wrong_kind(&mut self, number: i64, iterator: Iterator) -> Exception {
        self.put_iterator(number, iterator);
        no_such_attribute()
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

fn missing_iterator(number: i64) -> Exception {
    Exception { name: "builtins.KeyError", payload: Value::tuple([Value::Int(number.into())]) }
}

fn no_such_attribute() -> Exception {
    Exception::new("builtins.AttributeError", "this iterator is of the other kind")
}
