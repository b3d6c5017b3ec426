//! Stores and checks of objects: locks, conflicts, and what waits for them.

use tracing::debug;
use zodium_neo::messages::{
    AnswerCheckCurrentSerial, AnswerRelockObject, AnswerStoreObject, AskCheckCurrentSerial,
    AskRelockObject, AskStoreObject, NotifyDeadlock, RelockConflict, StoredData,
};
use zodium_neo::{Checksum, ErrorCode, Partition};
use zodium_types::{Oid, Tid};

use super::Commits;
use super::transactions::{Attempt, Kept, LockRequest, LockWish, Object, Stored, Vote};
use crate::cluster::Cluster;
use crate::database::{Data, Found};
use crate::handling::{Handled, Refusal};
use crate::links::{Links, Role};
use crate::{ConnectionId, Node};

/// The compression that NEO knows: zlib.
const COMPRESSION_MAX: u8 = 1;

impl Commits {
    /// A client stores an object.
    pub(crate) fn store_asked(
        &mut self,
        links: &mut Links,
        cluster: &Cluster,
        from: (ConnectionId, u32),
        message: AskStoreObject<'_>,
    ) -> Handled {
        let AskStoreObject { oid, serial, compression, checksum, data, data_serial, ttid } =
            message;
        let ttid = ttid.ok_or_else(|| Refusal::protocol("a store without a transaction"))?;
        let is_deletion = data.is_empty() && checksum == Checksum::ZERO;
        let data = match is_deletion {
            true => None,
            false => Some(Kept::new(checked_data(compression, checksum, data)?)),
        };
        check_range(oid, serial, ttid)?;
        self.register(links, from.0, ttid)?;
        let wish = LockWish::Store { data, data_serial };
        self.store(links, cluster, LockRequest { from, ttid, oid, serial, wish })
    }

    /// Takes the lock for a store, unless data of the transaction are moved to its spool now: then
    /// it waits.
    pub(super) fn store(
        &mut self,
        links: &mut Links,
        cluster: &Cluster,
        request: LockRequest,
    ) -> Handled {
        let request = match self.transactions.all.get_mut(&request.ttid) {
            Some(transaction) => transaction.unvoted.delay(request),
            None => Some(request),
        };
        request.map_or(Ok(()), |request| self.try_lock(links, cluster, request))
    }

    /// A client has an object checked that it does not change.
    pub(crate) fn check_asked(
        &mut self,
        links: &mut Links,
        cluster: &Cluster,
        from: (ConnectionId, u32),
        message: &AskCheckCurrentSerial,
    ) -> Handled {
        let AskCheckCurrentSerial { ttid, oid, serial } = *message;
        check_range(oid, serial, ttid)?;
        self.register(links, from.0, ttid)?;
        self.try_lock(
            links,
            cluster,
            LockRequest { from, ttid, oid, serial, wish: LockWish::Check },
        )
    }

    /// A client asks again for a lock that it gave back.
    pub(crate) fn relock_asked(
        &mut self,
        links: &mut Links,
        cluster: &Cluster,
        from: (ConnectionId, u32),
        message: &AskRelockObject,
    ) -> Handled {
        let AskRelockObject { ttid, oid } = *message;
        self.check_owner(links, from.0, ttid)?;
        let mut transaction = self.transactions.all.get_mut(&ttid);
        if transaction.as_ref().is_some_and(|transaction| transaction.vote != Vote::No) {
            // It keeps its locks until its end.
            links.answer(from, AnswerRelockObject { conflict: None });
            return Ok(());
        }
        let serial = transaction.as_mut().and_then(|transaction| {
            transaction.deadlocks.remove(&oid);
            transaction.objects.get(&oid).map(|object| object.serial)
        });
        let Some(serial) = serial else {
            // The transaction is over, or its cell was taken away.
            let is_over = !self.transactions.all.contains_key(&ttid);
            let has_cell = |partition| {
                self.has_cell(cluster, partition)
                    || self.transactions.replicating.contains(&partition)
            };
            if is_over || cluster.partition_of(oid).is_ok_and(has_cell) {
                links.answer(from, AnswerRelockObject { conflict: None });
            } else {
                refuse_relock(links, from);
            }
            return Ok(());
        };
        self.transactions.release(oid, ttid);
        // The older transaction comes first.
        self.lock_waiting(links, cluster, oid);
        self.try_lock(
            links,
            cluster,
            LockRequest { from, ttid, oid, serial, wish: LockWish::Relock },
        )
    }

    /// Refuses a request for the transaction of another client.
    pub(crate) fn check_owner(&self, links: &Links, from: ConnectionId, ttid: Tid) -> Handled {
        let owner = self.transactions.all.get(&ttid).map(|transaction| transaction.client);
        match (owner, links.role(from)) {
            (Some(owner), Some(Role::Client { node })) if *node != owner => {
                let text = format!("transaction {ttid} is another client's");
                Err(Refusal::protocol(text))
            }
            _ => Ok(()),
        }
    }

    /// Notes the transaction of a client.
    pub(super) fn register(
        &mut self,
        links: &Links,
        connection: ConnectionId,
        ttid: Tid,
    ) -> Handled {
        let role = links.role(connection);
        let Some(Role::Client { node }) = role else { return Ok(()) };
        self.check_owner(links, connection, ttid)?;
        let transaction = self.transactions.register(ttid, *node, connection);
        if transaction.vote != Vote::No {
            return Err(Refusal::protocol(format!("transaction {ttid} is voted already")));
        }
        Ok(())
    }

    /// Takes the lock for a request, or has the request wait.
    fn try_lock(&mut self, links: &mut Links, cluster: &Cluster, request: LockRequest) -> Handled {
        let LockRequest { ttid, oid, .. } = request;
        let partition = cluster.partition_of(oid)?;
        let lacks_data = self.transactions.replicating.contains(&partition);
        match self.transactions.attempt(&request, lacks_data) {
            Attempt::Forgotten => answer_lock(links, request, Some(Tid::ZERO)),
            Attempt::Lockless => {
                let (from, kind) = (request.from, Kind::of(&request.wish));
                self.hold(links, cluster, request);
                answer_kind(links, from, kind, Some(Tid::ZERO));
            }
            Attempt::Again if request.data_serial().is_none() => {
                self.locked(links, cluster, request)
            }
            Attempt::Again => self.ask_database(links, cluster, request, false),
            Attempt::Unchecked => self.ask_database(links, cluster, request, true),
            Attempt::Conflict(tid) => self.conflict(links, request, tid),
            Attempt::Wait => self.transactions.wait(request),
            Attempt::Deadlock(holder) => {
                links.count().deadlocks += 1;
                self.notify_deadlock(links, holder, oid);
                self.transactions.wait(request);
            }
            Attempt::Free => {
                if !self.has_cell(cluster, partition) {
                    debug!(%oid, %ttid, "a store to a partition that is not here");
                    answer_without_cell(links, request);
                    return Ok(());
                }
                self.transactions.locks.insert(oid, ttid);
                self.ask_database(links, cluster, request, true);
            }
        }
        Ok(())
    }

    /// Whether this node has all data of a partition.
    fn has_cell(&self, cluster: &Cluster, partition: Partition) -> bool {
        cluster.is_readable(partition) || self.transactions.replicated.contains_key(&partition)
    }

    /// Asks the database for the serial of an object, and for the record that an undo refers to.
    /// The serial may be known.
    fn ask_database(
        &mut self,
        links: &mut Links,
        cluster: &Cluster,
        request: LockRequest,
        compares: bool,
    ) {
        let LockRequest { ttid, oid, from, .. } = request;
        let (number, undo) = (self.transactions.number(), request.data_serial());
        if let Some(transaction) = self.transactions.all.get_mut(&ttid) {
            transaction.checking.insert(oid, number);
        }
        if undo.is_none()
            && let Some(serial) = self.transactions.last_serial(oid)
        {
            let found = Found { serial: Some(serial), has_undo_record: false };
            return self.database_says(links, cluster, request, number, compares, found);
        }
        links.read_shortly(
            move |database| database.current(oid, undo),
            move |node, found| match found {
                Ok(found) => {
                    let Node { links, cluster, commits, .. } = node;
                    commits.database_says(links, cluster, request, number, compares, found);
                }
                Err(error) => node.links.read_failed(from.0, &error),
            },
        );
    }

    /// Goes on with a request, by the number of its question and whether serials are compared.
    fn database_says(
        &mut self,
        links: &mut Links,
        cluster: &Cluster,
        request: LockRequest,
        number: u64,
        compares: bool,
        found: Found,
    ) {
        let LockRequest { ttid, oid, serial, .. } = request;
        let transaction = self.transactions.all.get_mut(&ttid);
        let is_asked = |asked: Option<&u64>| asked == Some(&number);
        match transaction {
            Some(transaction) if is_asked(transaction.checking.get(&oid)) => {
                transaction.checking.remove(&oid);
                if compares && found.serial.is_none_or(|current| current == serial) {
                    transaction.unchecked.remove(&oid);
                }
            }
            // The cell was taken away.
            Some(_) => return answer_without_cell(links, request),
            None => return answer_lock(links, request, Some(Tid::ZERO)),
        }
        let is_undoable = request.data_serial().is_none() || found.has_undo_record;
        match found.serial {
            Some(current) if compares && current != serial => {
                self.conflict(links, request, current)
            }
            _ if !is_undoable => {
                let (connection, id) = request.from;
                self.release_unused(oid, ttid);
                let text = format!("the record of {oid} that the undo refers to was packed");
                let refusal = Refusal::answer(ErrorCode::UndoPackError, text);
                links.refuse((connection, id), "AskStoreObject", &refusal);
            }
            _ => self.locked(links, cluster, request),
        }
        self.lock_waiting(links, cluster, oid);
    }

    /// Keeps what a request stores.
    fn hold(&mut self, links: &mut Links, cluster: &Cluster, request: LockRequest) {
        let LockRequest { ttid, oid, serial, wish, .. } = request;
        let Some(transaction) = self.transactions.all.get_mut(&ttid) else { return };
        let stored = match wish {
            LockWish::Store { data, data_serial } => {
                let is_deletion = data.is_none() && data_serial.is_none();
                Some(Stored { data, is_deletion, data_serial })
            }
            LockWish::Check if !transaction.objects.contains_key(&oid) => None,
            LockWish::Check | LockWish::Relock => return,
        };
        transaction.keep(oid, Object { serial, stored });
        self.move_data(links, cluster, ttid);
    }

    fn locked(&mut self, links: &mut Links, cluster: &Cluster, request: LockRequest) {
        let (from, kind) = (request.from, Kind::of(&request.wish));
        self.hold(links, cluster, request);
        answer_kind(links, from, kind, None);
    }

    /// Refuses a request whose object was changed. A lock that was only for it is released.
    fn conflict(&mut self, links: &mut Links, request: LockRequest, tid: Tid) {
        links.count().conflicts += 1;
        let LockRequest { from, ttid, oid, serial, ref wish } = request;
        if !matches!(wish, LockWish::Relock) {
            self.release_unused(oid, ttid);
            return answer_lock(links, request, Some(tid));
        }
        // The client may not have its data any more, and resolves the conflict with them.
        let transaction = self.transactions.all.get_mut(&ttid);
        let object = transaction.and_then(|transaction| transaction.objects.remove(&oid));
        self.transactions.release(oid, ttid);
        match object.and_then(|object| object.stored).and_then(|stored| stored.data) {
            None => answer_relock(links, from, (serial, tid), None),
            Some(Kept::Memory(data)) => answer_relock(links, from, (serial, tid), Some(&data)),
            Some(kept @ Kept::Spooled(_)) => links.read_after(
                Some(from.0),
                move |_| kept.into_data(),
                move |node, data| match data {
                    Ok(data) => answer_relock(&mut node.links, from, (serial, tid), Some(&data)),
                    Err(error) => node.links.read_failed(from.0, &error),
                },
            ),
        }
    }

    /// Releases a lock unless the transaction has the object by an earlier request.
    fn release_unused(&mut self, oid: Oid, ttid: Tid) {
        let transaction = self.transactions.all.get(&ttid);
        if transaction.is_none_or(|transaction| !transaction.objects.contains_key(&oid)) {
            self.transactions.release(oid, ttid);
        }
    }

    /// Has the requests that wait for an object try again.
    pub(crate) fn lock_waiting(&mut self, links: &mut Links, cluster: &Cluster, oid: Oid) {
        for request in self.transactions.take_waiting(oid) {
            // The object of a request that waits is in a partition.
            let _ = self.try_lock(links, cluster, request);
        }
    }

    fn notify_deadlock(&self, links: &mut Links, ttid: Tid, oid: Oid) {
        let client = self.transactions.all.get(&ttid).map(|transaction| transaction.client);
        if let Some(connection) = client.and_then(|client| links.client(client)) {
            debug!(%ttid, %oid, "asking a client to give a lock back");
            links.notify(connection, NotifyDeadlock { ttid, oid });
        }
    }
}

/// Which answer a request gets.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Store,
    Check,
    Relock,
}

impl Kind {
    fn of(wish: &LockWish) -> Kind {
        match wish {
            LockWish::Store { .. } => Kind::Store,
            LockWish::Check => Kind::Check,
            LockWish::Relock => Kind::Relock,
        }
    }
}

/// Answers a request for an object whose cell the master has taken away: the other cells have
/// the lock. A lock that was given back no cell need have.
fn answer_without_cell(links: &mut Links, request: LockRequest) {
    match request.wish {
        LockWish::Relock => refuse_relock(links, request.from),
        _ => answer_lock(links, request, Some(Tid::ZERO)),
    }
}

/// No answer says that a lock is lost, so the connection ends: the client takes the transaction
/// for failed here.
fn refuse_relock(links: &mut Links, from: (ConnectionId, u32)) {
    let refusal = Refusal::not_ready("the cell of the object was taken away");
    links.refuse(from, "AskRelockObject", &refusal);
}

/// Answers that an object was changed while its lock was given back.
fn answer_relock(
    links: &mut Links,
    from: (ConnectionId, u32),
    (serial, conflict): (Tid, Tid),
    data: Option<&Data>,
) {
    let stored = data.map(|data| StoredData {
        compression: data.compression,
        checksum: data.checksum,
        data: &data.bytes,
    });
    let conflict = Some(RelockConflict { serial, conflict, stored });
    links.answer(from, AnswerRelockObject { conflict });
}

/// Answers a request whose transaction is over, or that is for other cells.
pub(super) fn answer_lock(links: &mut Links, request: LockRequest, conflict: Option<Tid>) {
    answer_kind(links, request.from, Kind::of(&request.wish), conflict);
}

fn answer_kind(
    links: &mut Links,
    (connection, id): (ConnectionId, u32),
    kind: Kind,
    conflict: Option<Tid>,
) {
    match kind {
        Kind::Store => links.answer((connection, id), AnswerStoreObject { conflict }),
        Kind::Check => links.answer((connection, id), AnswerCheckCurrentSerial { conflict }),
        Kind::Relock => links.answer((connection, id), AnswerRelockObject { conflict: None }),
    }
}

/// Data whose sum is right.
pub(crate) fn checked_data(
    compression: u8,
    checksum: Checksum,
    data: &[u8],
) -> Result<Data, Refusal> {
    use sha1::{Digest, Sha1};

    if compression > COMPRESSION_MAX {
        return Err(Refusal::protocol(format!("data with the unknown compression {compression}")));
    }
    if Checksum(Sha1::digest(data).into()) != checksum {
        return Err(Refusal::protocol("data that do not have their SHA-1"));
    }
    Ok(Data { compression, checksum, bytes: data.to_vec() })
}

/// Refuses ids that databases cannot hold: their numbers are signed.
fn check_range(oid: Oid, serial: Tid, ttid: Tid) -> Handled {
    if [oid.0, serial.0, ttid.0].iter().any(|id| i64::try_from(*id).is_err()) {
        return Err(Refusal::protocol("an id that is larger than 2^63 - 1"));
    }
    Ok(())
}
