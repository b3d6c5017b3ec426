//! A storage on a ZEO server.

use std::fs::File;

use bytes::Bytes;
use zodium_client::{
    Client, ClientError, CommittedRecord, CurrentObject, LogReader, Outcome, Revision, Transaction,
    TransactionHead, TransactionOptions, Unfinished, Voted,
};
use zodium_pickle::Value;
use zodium_types::{Oid, Tid};

use super::{Backend, Loads, Log, OpenTransaction, Then};

impl Backend for Client {
    fn wait(&self) -> Result<(), ClientError> {
        Client::wait(self)
    }

    fn close(&self) {
        Client::close(self);
    }

    fn after_fork_in_child(&self) -> Result<(), ClientError> {
        Client::after_fork_in_child(self)
    }

    fn is_connected(&self) -> bool {
        Client::is_connected(self)
    }

    fn is_read_only(&self) -> bool {
        Client::is_read_only(self)
    }

    fn clear_cache(&self) {
        Client::clear_cache(self);
    }

    fn last_tid(&self) -> Result<Tid, ClientError> {
        Client::last_tid_of_server(self)
    }

    fn last_tid_at_once(&self) -> Option<Tid> {
        Client::last_tid_at_once(self)
    }

    fn load_cached(&self, oid: Oid, before: Tid) -> Option<Revision> {
        Client::load_cached(self, oid, before)
    }

    fn load_uncached(&self, oid: Oid, before: Tid) -> Result<Option<Revision>, ClientError> {
        Client::load_uncached(self, oid, before)
    }

    fn prefetch(&self, oids: &[Oid], before: Tid) {
        Client::prefetch(self, oids, before);
    }

    fn load_many(&self, oids: &[Oid], before: Tid) -> Result<Loads, ClientError> {
        Client::load_many(self, oids, before)
    }

    fn next_object(&self, from: Option<Oid>) -> Result<CurrentObject, ClientError> {
        Client::next_object(self, from)
    }

    fn read_log(&self, start: Option<Tid>, stop: Option<Tid>) -> Result<Box<dyn Log>, ClientError> {
        Ok(Box::new(Client::read_log(self, start, stop)?))
    }

    fn new_oid(&self) -> Result<Oid, ClientError> {
        Client::new_oid(self)
    }

    fn outcome(&self, unfinished: &Unfinished) -> Result<Outcome, ClientError> {
        Client::outcome(self, unfinished)
    }

    fn call(&self, method: &str, arguments: Value<'_>) -> Result<Value<'static>, ClientError> {
        Client::call(self, method, &arguments)
    }

    fn begin(&self, options: &TransactionOptions) -> Result<Box<dyn OpenTransaction>, ClientError> {
        Ok(Box::new(Client::begin(self, options)?))
    }
}

impl Log for LogReader {
    fn number(&self) -> i128 {
        LogReader::number(self)
    }

    fn next_transaction(&mut self) -> Result<Option<TransactionHead>, ClientError> {
        LogReader::next_transaction(self)
    }

    fn next_records(&mut self, count: usize) -> Result<Vec<CommittedRecord>, ClientError> {
        LogReader::next_records(self, count)
    }

    fn position(&self) -> Option<(Tid, usize)> {
        LogReader::position(self)
    }
}

impl OpenTransaction for Transaction {
    fn store(&mut self, oid: Oid, serial: Tid, data: Bytes) -> Result<(), ClientError> {
        Transaction::store(self, oid, serial, data)
    }

    fn store_blob(
        &mut self,
        oid: Oid,
        serial: Tid,
        data: Bytes,
        blob: &mut File,
    ) -> Result<(), ClientError> {
        Transaction::store_blob(self, oid, serial, data, blob)
    }

    fn store_shared_blob(
        &mut self,
        oid: Oid,
        serial: Tid,
        data: Bytes,
        name: &str,
    ) -> Result<(), ClientError> {
        Transaction::store_shared_blob(self, oid, serial, data, name)
    }

    fn delete(&mut self, oid: Oid, serial: Tid) -> Result<(), ClientError> {
        Transaction::delete(self, oid, serial)
    }

    fn check_current(&mut self, oid: Oid, serial: Tid) -> Result<(), ClientError> {
        Transaction::check_current(self, oid, serial)
    }

    fn undo(&mut self, undo_id: &[u8]) -> Result<(), ClientError> {
        Transaction::undo(self, undo_id)
    }

    fn restore(
        &mut self,
        oid: Oid,
        serial: Tid,
        data: Option<&[u8]>,
        previous: Option<Tid>,
    ) -> Result<(), ClientError> {
        Transaction::restore(self, oid, serial, data, previous)
    }

    fn vote(&mut self) -> Result<Voted, ClientError> {
        Transaction::vote(self)
    }

    fn finish(self: Box<Self>, then: Then) -> Result<Tid, ClientError> {
        Transaction::finish_or_tell_again(*self, then)
    }

    fn abort(self: Box<Self>) -> Result<(), ClientError> {
        Transaction::abort(*self)
    }
}
