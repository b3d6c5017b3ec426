//! A client that commits again and again, driven by answers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use zodium_neo::Packet;
use zodium_types::{Oid, Tid};

use super::super::ids::Ids;
use super::super::socket::Socket;
use super::super::transaction::{NewRecord, is_done, put_vote};
use crate::commit::content::Content;

/// Number of transactions after which a client writes the same objects again.
const OWN_TRANSACTIONS: usize = 8;

/// The last acknowledged revision of an object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    pub(super) oid: Oid,
    /// Zero before the first write.
    pub(super) serial: Tid,
    /// How many times it was written.
    pub(super) count: u64,
}

/// Where a partition is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Homes {
    pub(super) partitions: u64,
    pub(super) storages: usize,
}

/// A client, connected with every storage node.
#[derive(Debug)]
pub(super) struct Committer {
    pub(super) sockets: Vec<Socket>,
    homes: Homes,
    content: Arc<Content>,
    /// Its objects, `chunk` for each transaction.
    pub(super) objects: Vec<Written>,
    chunk: usize,
    transaction: Option<Transaction>,
    number: usize,
}

/// The transaction in progress.
#[derive(Debug)]
struct Transaction {
    ttid: Tid,
    began: Instant,
    /// Whether each storage node takes part.
    involved: Vec<bool>,
    /// Answers to wait for.
    left: usize,
    is_voting: bool,
}

/// A transaction that all its storage nodes have voted.
#[derive(Clone, Debug)]
pub(super) struct Voted {
    pub(super) ttid: Tid,
    /// The places of its storage nodes.
    pub(super) involved: Vec<usize>,
}

impl Homes {
    fn of(self, id: u64) -> usize {
        (id % self.partitions) as usize % self.storages
    }
}

impl Committer {
    pub(super) fn new(
        sockets: Vec<Socket>,
        homes: Homes,
        content: &Arc<Content>,
        ids: &mut Ids,
        chunk: usize,
    ) -> Committer {
        let new = |oid| Written { oid, serial: Tid::ZERO, count: 0 };
        let objects = ids.oids(chunk * OWN_TRANSACTIONS).map(new).collect();
        let (content, transaction) = (Arc::clone(content), None);
        Committer { sockets, homes, content, objects, chunk, transaction, number: 0 }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.transaction.is_none()
    }

    /// Begins a transaction, and sends its stores.
    pub(super) fn start(&mut self, ids: &mut Ids) -> Result<()> {
        self.number += 1;
        let ttid = ids.begin();
        let mut involved = vec![false; self.sockets.len()];
        let began = Instant::now();
        for written in self.chosen() {
            let Written { oid, serial, count } = self.objects[written];
            let record = NewRecord { oid, serial, data: self.content.data(oid, count + 1) };
            let home = self.homes.of(oid.0);
            self.sockets[home].put(record.store(ttid))?;
            involved[home] = true;
        }
        involved[self.homes.of(ttid.0)] = true;
        self.sockets.iter_mut().try_for_each(Socket::flush)?;
        let left = self.chunk;
        self.transaction = Some(Transaction { ttid, began, involved, left, is_voting: false });
        Ok(())
    }

    /// The places of the objects of this transaction.
    fn chosen(&self) -> std::ops::Range<usize> {
        let first = self.number % OWN_TRANSACTIONS * self.chunk;
        first..first + self.chunk
    }

    /// Reads once from a storage node; gives the transaction when it is voted everywhere.
    pub(super) fn take_turn(&mut self, place: usize) -> Result<Option<Voted>> {
        let mut answers = 0;
        self.sockets[place].receive(|packet: Packet<'_>| {
            answers += usize::from(is_done(&packet.message)?);
            Ok(())
        })?;
        let Some(transaction) = &mut self.transaction else {
            ensure!(answers == 0, "a storage node answered a transaction that is over");
            return Ok(None);
        };
        ensure!(answers <= transaction.left, "a storage node answered twice");
        transaction.left -= answers;
        if transaction.left > 0 {
            return Ok(None);
        }
        if transaction.is_voting {
            let places = transaction.involved.iter().enumerate();
            let involved = places.filter(|(_, is)| **is).map(|(place, _)| place).collect();
            return Ok(Some(Voted { ttid: transaction.ttid, involved }));
        }
        self.vote()?;
        Ok(None)
    }

    fn vote(&mut self) -> Result<()> {
        let oids: Vec<Oid> = self.chosen().map(|place| self.objects[place].oid).collect();
        let Some(transaction) = &mut self.transaction else { return Ok(()) };
        let metadata = self.homes.of(transaction.ttid.0);
        for (place, socket) in self.sockets.iter_mut().enumerate() {
            if transaction.involved[place] {
                put_vote(socket, transaction.ttid, (place == metadata).then(|| oids.clone()))?;
                socket.flush()?;
                transaction.left += 1;
            }
        }
        transaction.is_voting = true;
        Ok(())
    }

    /// The transaction is committed; how long it took.
    pub(super) fn finished(&mut self, tid: Tid) -> Duration {
        for place in self.chosen() {
            let written = &mut self.objects[place];
            (written.serial, written.count) = (tid, written.count + 1);
        }
        self.transaction.take().map_or(Duration::ZERO, |transaction| transaction.began.elapsed())
    }
}
