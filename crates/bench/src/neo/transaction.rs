//! Transactions: the messages of their steps, and one that waits for each step.

use anyhow::{Result, bail, ensure};
use sha1::{Digest, Sha1};
use zodium_neo::messages::{
    AskLockInformation, AskStoreObject, AskStoreTransaction, AskVoteTransaction,
    NotifyUnlockInformation,
};
use zodium_neo::{Checksum, Message};
use zodium_types::{Oid, Tid};

use super::cluster::Cluster;
use super::socket::Socket;
use crate::dataset::Dataset;
use crate::interrupt::Interrupt;

/// A record to be written.
#[derive(Clone, Debug)]
pub(super) struct NewRecord {
    pub(super) oid: Oid,
    /// The serial of the record before; zero for a new object.
    pub(super) serial: Tid,
    pub(super) data: Vec<u8>,
}

pub(super) fn checksum(data: &[u8]) -> Checksum {
    Checksum(Sha1::digest(data).into())
}

impl NewRecord {
    pub(super) fn store(&self, ttid: Tid) -> AskStoreObject<'_> {
        AskStoreObject {
            oid: self.oid,
            serial: self.serial,
            compression: 0,
            checksum: checksum(&self.data),
            data: &self.data,
            data_serial: None,
            ttid: Some(ttid),
        }
    }
}

/// Asks a storage node to vote; `oids` only if it is the one with the metadata.
pub(super) fn put_vote(socket: &mut Socket, ttid: Tid, oids: Option<Vec<Oid>>) -> Result<()> {
    match oids {
        None => socket.put(AskVoteTransaction { ttid })?,
        Some(oids) => socket.put(AskStoreTransaction {
            ttid,
            user: b"bench",
            description: b"a transaction of the benchmark",
            extension: b"",
            oids,
            pack: None,
        })?,
    };
    Ok(())
}

/// Whether a message says that a step of a transaction is done; an error for a conflict.
pub(super) fn is_done(message: &Message<'_>) -> Result<bool> {
    match message {
        Message::AnswerStoreObject(answer) => {
            ensure!(answer.conflict.is_none(), "a store met a conflict: {answer:?}");
            Ok(true)
        }
        Message::AnswerStoreTransaction(_)
        | Message::AnswerVoteTransaction(_)
        | Message::AnswerInformationLocked(_) => Ok(true),
        other => bail!("a step of a transaction was answered with {}", other.name()),
    }
}

/// Writes the objects of a dataset, with its transactions.
pub(super) fn fill(
    cluster: &mut Cluster<'_>,
    dataset: &Dataset,
    interrupt: &Interrupt,
) -> Result<()> {
    let mut client = cluster.connect()?;
    let mut records: Vec<NewRecord> = Vec::new();
    for oid in (0..dataset.len()).map(Oid) {
        let tid = dataset.tid(oid);
        records.push(NewRecord { oid, serial: Tid::ZERO, data: dataset.data(oid) });
        let is_last = oid.0 + 1 == dataset.len();
        if is_last || dataset.tid(Oid(oid.0 + 1)) != tid {
            interrupt.check()?;
            commit(cluster, &mut client, tid, &records)?;
            records.clear();
        }
    }
    Ok(())
}

/// Commits a transaction, waiting for each step.
fn commit(
    cluster: &mut Cluster<'_>,
    client: &mut [Socket],
    tid: Tid,
    records: &[NewRecord],
) -> Result<()> {
    let partitions = u64::from(cluster.partitions());
    let ttid = Tid(tid.0 - partitions);
    let metadata = cluster.home(ttid.0 % partitions);
    let mut stores = vec![0; client.len()];
    for record in records {
        let home = cluster.home(record.oid.0 % partitions);
        client[home].put(record.store(ttid))?;
        stores[home] += 1;
    }
    client.iter_mut().try_for_each(Socket::flush)?;
    for (socket, count) in client.iter_mut().zip(&stores) {
        wait_for(socket, *count)?;
    }
    let involved: Vec<usize> =
        (0..client.len()).filter(|place| *place == metadata || stores[*place] > 0).collect();
    for place in involved.iter().copied() {
        let oids = (place == metadata).then(|| records.iter().map(|record| record.oid).collect());
        put_vote(&mut client[place], ttid, oids)?;
        client[place].flush()?;
        wait_for(&mut client[place], 1)?;
    }
    for place in involved.iter().copied() {
        cluster.masters[place].send(AskLockInformation { ttid, tid, pack_approved: false })?;
        wait_for(&mut cluster.masters[place], 1)?;
    }
    involved
        .into_iter()
        .try_for_each(|place| cluster.masters[place].send(NotifyUnlockInformation { ttid }))
}

fn wait_for(socket: &mut Socket, mut answers: usize) -> Result<()> {
    while answers > 0 {
        socket.receive(|packet| {
            answers = answers.saturating_sub(usize::from(is_done(&packet.message)?));
            Ok(())
        })?;
    }
    Ok(())
}
