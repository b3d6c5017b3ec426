//! Commands that take effect with a ZODB transaction, or not at all.
//!
//! Key decision: a client parks commands under a token, and gives the token to its transaction of
//! ZODB. The vote of that transaction claims them. From then on they belong to the transaction,
//! whatever becomes of the connection that parked them; before that they are dropped with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use zodium_keyspace::{Stripes, Word, now};
use zodium_resp::OwnedRequest;
use zodium_types::{Held, Tid};

use crate::Server;
use crate::call::ItsCommit;
use crate::commands::Command;
use crate::durability::{KeyLog, write_parked, write_time, write_unparked};
use crate::fail::Fail;
use crate::monitoring::{Sender, show};
use crate::unanswered::execute_unanswered;

/// Most tokens of a connection that are parked at once.
const TOKENS_MAX: usize = 64;

const TOO_MANY: Fail = Fail::fixed(
    "ERR too many commands of this connection wait for their transactions: finish some, or drop \
     them with ZDISCARD",
);
const IN_USE: Fail =
    Fail::fixed("ERR the token is in use: other commands wait for its transaction");

/// A transaction of a storage: the storage, and the number of the transaction.
type Owner = (usize, u64);

/// Commands with a token.
pub(crate) struct Parcel {
    pub(crate) client: u64,
    pub(crate) database: usize,
    pub(crate) requests: Vec<(&'static Command, OwnedRequest)>,
    /// Their bytes, in the memory of all clients; `None` if they were read from the log.
    pub(crate) _held: Option<Held>,
    /// The last transactions of the storages when they were parked.
    pub(crate) since: Vec<(String, Tid)>,
}

/// All parked commands.
#[derive(Default)]
pub(crate) struct Parked {
    /// Number of claimed parcels. Read at each commit.
    claimed_count: AtomicUsize,
    parcels: Mutex<Parcels>,
}

#[derive(Default)]
struct Parcels {
    /// Those that no transaction has claimed, by token.
    free: FxHashMap<Word, Parcel>,
    /// Those of transactions that have passed their votes.
    claimed: FxHashMap<Owner, Claimed>,
}

/// Commands of a transaction that has passed its vote.
struct Claimed {
    token: Word,
    parcel: Arc<Parcel>,
    /// The parts of the same transaction in other storages, which have voted before.
    earlier: Vec<Owner>,
    /// The last of these that was committed.
    committed: Option<ItsCommit>,
    /// The part that has the commands will not be committed.
    is_given_up: bool,
}

impl Claimed {
    /// Whether the commands have no part any more that they could take effect with.
    fn is_over(&self) -> bool {
        self.is_given_up && self.committed.is_none() && self.earlier.is_empty()
    }
}

/// What the server knows of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Nothing: it was dropped, or has taken effect.
    Absent,
    /// No transaction has claimed it.
    Parked,
    /// It belongs to a transaction that has passed its vote.
    Voted,
}

impl Parcels {
    fn state(&self, token: &[u8]) -> State {
        if self.free.contains_key(token) {
            State::Parked
        } else if self.claimed.values().any(|claimed| *claimed.token == *token) {
            State::Voted
        } else {
            State::Absent
        }
    }
}

impl Parked {
    /// Calls `use_records` with a record of the log for each parcel. None comes or goes meanwhile.
    pub(crate) fn with_records<T>(
        &self,
        use_records: impl FnOnce(&mut dyn Iterator<Item = Vec<u8>>) -> T,
    ) -> T {
        let parcels = self.parcels.lock();
        let claimed = parcels.claimed.values().map(|claimed| (&claimed.token, &*claimed.parcel));
        let all = parcels.free.iter().chain(claimed);
        use_records(&mut all.map(|(token, parcel)| {
            let mut record = Vec::new();
            write_time(&mut record, now());
            parcel.write(&mut record, token);
            record
        }))
    }

    pub(crate) fn state(&self, token: &[u8]) -> State {
        self.parcels.lock().state(token)
    }

    fn is_any_claimed(&self) -> bool {
        self.claimed_count.load(Ordering::Acquire) > 0
    }

    /// The commands of a committed transaction, which stay. Those of a later part of it are told.
    fn committed(&self, owner: Owner, commit: ItsCommit) -> Option<(Word, Arc<Parcel>)> {
        if !self.is_any_claimed() {
            return None;
        }
        let mut parcels = self.parcels.lock();
        if let Some(claimed) = parcels.claimed.get(&owner) {
            return Some((claimed.token.clone(), Arc::clone(&claimed.parcel)));
        }
        let mut claimed = parcels.claimed.values_mut();
        if let Some(later) = claimed.find(|claimed| claimed.earlier.contains(&owner)) {
            // Others follow before its commands take effect.
            later.committed = Some(ItsCommit { number: None, ..commit });
        }
        None
    }

    /// Commands whose transaction is committed in part, and will not be in the rest.
    fn torn(&self) -> Option<(Owner, Word, Arc<Parcel>, ItsCommit)> {
        if !self.is_any_claimed() {
            return None;
        }
        let parcels = self.parcels.lock();
        parcels.claimed.iter().filter(|(_, claimed)| claimed.is_given_up).find_map(
            |(owner, Claimed { token, parcel, committed, .. })| {
                Some((*owner, token.clone(), Arc::clone(parcel), (*committed)?))
            },
        )
    }

    /// Removes the commands of a transaction.
    fn remove_claimed(&self, owner: Owner) {
        let mut parcels = self.parcels.lock();
        parcels.claimed.remove(&owner);
        self.claimed_count.store(parcels.claimed.len(), Ordering::Release);
    }

    /// Parks commands, and returns the position of the log at which they are kept.
    ///
    /// # Errors
    /// The connection has too many, or the token is in use.
    pub(crate) fn park(&self, log: &KeyLog, token: &[u8], parcel: Parcel) -> Result<u64, Fail> {
        let mut parcels = self.parcels.lock();
        let of_client = parcels.free.values().filter(|other| other.client == parcel.client);
        if of_client.count() >= TOKENS_MAX {
            return Err(TOO_MANY);
        }
        if parcels.state(token) != State::Absent {
            return Err(IN_USE);
        }
        let position = log.append_item(|out| parcel.write(out, token));
        parcels.free.insert(token.into(), parcel);
        Ok(position)
    }

    /// Drops parked commands, unless they are claimed; whether there were any.
    pub(crate) fn discard(&self, log: &KeyLog, token: &[u8]) -> bool {
        let mut parcels = self.parcels.lock();
        let was_there = parcels.free.remove(token).is_some();
        if was_there {
            log.append_item(|out| write_unparked(out, token));
        }
        was_there
    }

    /// Drops what a client has parked.
    pub(crate) fn forget(&self, log: &KeyLog, client: u64) {
        let mut parcels = self.parcels.lock();
        for (token, _) in parcels.free.extract_if(|_, parcel| parcel.client == client) {
            log.append_item(|out| write_unparked(out, &token));
        }
    }

    /// Gives a voted transaction the commands that are parked under a token, which take effect with
    /// it. A part of the same transaction in another storage has them no longer: it has voted
    /// before, and is finished before. False if another transaction of this storage has them.
    ///
    /// # Errors
    /// There are none, so the transaction must not be committed.
    pub(crate) fn claim(&self, owner: Owner, token: &[u8]) -> Result<bool, String> {
        let mut parcels = self.parcels.lock();
        if let Some(parcel) = parcels.free.remove(token) {
            let (token, parcel, earlier) = (token.into(), Arc::new(parcel), Vec::new());
            let claimed = Claimed { token, parcel, earlier, committed: None, is_given_up: false };
            parcels.claimed.insert(owner, claimed);
            self.claimed_count.store(parcels.claimed.len(), Ordering::Release);
            return Ok(true);
        }
        let mut claimed = parcels.claimed.iter();
        let earlier = claimed.find(|(_, claimed)| *claimed.token == *token);
        let Some(earlier) = earlier.map(|(owner, _)| *owner) else {
            let token = String::from_utf8_lossy(token);
            return Err(format!(
                "this server has no commands under the token {token}: the RESP connection that \
                 parked them is lost, or is one to another server"
            ));
        };
        if earlier.0 == owner.0 {
            return Ok(false);
        }
        if let Some(mut claimed) = parcels.claimed.remove(&earlier) {
            claimed.earlier.push(earlier);
            parcels.claimed.insert(owner, claimed);
        }
        Ok(true)
    }

    /// Drops the commands of a voted transaction that was not committed. If an earlier part of it
    /// is, or will be, they take effect with that, a little later: the caller may hold locks. A
    /// server that is stopped before finds them in the log.
    pub(crate) fn give_up(&self, log: &KeyLog, owner: Owner) {
        if !self.is_any_claimed() {
            return;
        }
        let mut parcels = self.parcels.lock();
        for (its_owner, claimed) in &mut parcels.claimed {
            claimed.is_given_up |= *its_owner == owner;
            claimed.earlier.retain(|earlier| *earlier != owner);
        }
        for (_, Claimed { token, .. }) in parcels.claimed.extract_if(|_, one| one.is_over()) {
            log.append_item(|out| write_unparked(out, &token));
        }
        self.claimed_count.store(parcels.claimed.len(), Ordering::Release);
    }
}

impl Parcel {
    /// Appends them as an item of the log.
    fn write(&self, out: &mut Vec<u8>, token: &[u8]) {
        let commands = self.requests.iter().map(|(_, request)| request.arguments());
        write_parked(out, token, self.database, &self.since, commands);
    }
}

/// Executes the commands of a committed transaction.
pub(crate) fn take_effect(server: &Server, storage: usize, tid: Tid, number: u64) {
    let (owner, commit) = ((storage, number), ItsCommit { storage, tid, number: Some(number) });
    if let Some((token, parcel)) = server.beside.parked.committed(owner, commit) {
        execute(server, Some(owner), (&token, &parcel), commit);
    }
}

/// Executes the commands of transactions whose last part was given up after an earlier one was
/// committed.
pub(crate) fn take_effect_of_torn(server: &Server) {
    while let Some((owner, token, parcel, commit)) = server.beside.parked.torn() {
        execute(server, Some(owner), (&token, &parcel), commit);
    }
}

/// Executes commands that were parked under a token, under the locks of all their keys. Their
/// changes and the end of their parking are one record of the log.
pub(crate) fn execute(
    server: &Server,
    owner: Option<Owner>,
    (token, parcel): (&[u8], &Parcel),
    commit: ItsCommit,
) {
    let stripes = parcel.requests.iter().fold(Stripes::NONE, |all, (command, request)| {
        all | command.stripes(&server.keyspace, request.arguments())
    });
    // A compaction must not come between the two.
    let stripes = if stripes.is_empty() { server.keyspace.stripe(token) } else { stripes };
    let mut hold = server.lock_however_long(stripes);
    if let Some(owner) = owner {
        server.beside.parked.remove_claimed(owner);
    }
    for (command, request) in &parcel.requests {
        hold.database = parcel.database;
        let arguments = request.arguments();
        let outcome = execute_unanswered(server, &mut hold, command, arguments, Some(commit));
        let sender = Sender { database: parcel.database, name: "zexec" };
        show(&server.clients, hold.now, &sender, (command, arguments));
        if let Err(fail) = outcome {
            // A client chose the words of it: as a string it is escaped.
            let (name, error) = (command.name, &*fail.0);
            tracing::warn!(
                command = name,
                error,
                "a command of a committed transaction failed; its other commands took effect"
            );
        }
    }
    server.log.note_item(&mut hold, |out| write_unparked(out, token));
    server.settle(hold);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Commit, Options};
    use zodium_keyspace::List;
    use zodium_types::Tid;

    /// A parcel that sets a key of the same name as its token.
    fn parcel(server: &Server, client: u64, key: &str) -> Parcel {
        assert_eq!(server.beside.parked.state(key.as_bytes()), State::Absent);
        let bytes = format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n$1\r\n1\r\n", key.len());
        parcel_of(client, &bytes)
    }

    /// A parcel of one request.
    fn parcel_of(client: u64, bytes: &str) -> Parcel {
        let mut reader = zodium_resp::RequestReader::default();
        let step = reader.read(bytes.as_bytes(), &zodium_resp::RequestLimits::default());
        assert!(matches!(step, Ok(zodium_resp::Step::Request(_))));
        let arguments = reader.arguments(bytes.as_bytes());
        let command = crate::commands::find(arguments).unwrap();
        let requests = vec![(command, arguments.to_request())];
        Parcel { client, database: 0, requests, _held: None, since: Vec::new() }
    }

    fn has(server: &Server, key: &str) -> bool {
        server.keyspace.lock(server.keyspace.stripe(key.as_bytes()), 1).has(key.as_bytes())
    }

    #[test]
    fn commands_take_effect_with_their_transaction_and_no_other() {
        let server = Server::new(Options::default());
        for key in ["a", "b", "c"] {
            assert!(
                server
                    .beside
                    .parked
                    .park(&server.log, key.as_bytes(), parcel(&server, 1, key))
                    .is_ok()
            );
        }
        assert_eq!(server.claim(0, 7, b"a"), Ok(true));
        assert_eq!(server.claim(0, 6, b"a"), Ok(false), "another transaction of the storage");
        assert_eq!(server.claim(0, 8, b"b"), Ok(true));
        assert_eq!(server.beside.parked.state(b"a"), State::Voted);
        // The connection ends: what is claimed stays.
        server.beside.parked.forget(&server.log, 1);
        assert_eq!(server.beside.parked.state(b"c"), State::Absent);
        assert!(server.claim(0, 9, b"c").is_err());
        let commit = |number| server.committed(0, &[Commit { tid: Tid(1), oids: &[], number }]);
        commit(9);
        assert!(!has(&server, "a") && !has(&server, "b"));
        server.give_up(0, 8);
        commit(8);
        commit(7);
        assert!(has(&server, "a") && !has(&server, "b"));
        server.give_up(0, 7);
        assert!(has(&server, "a"));
        assert!(server.claim(0, 10, b"a").is_err(), "it has taken effect");
    }

    #[test]
    fn a_command_may_write_a_key_that_its_first_argument_does_not_name() {
        let server = Server::new(Options::default());
        {
            let mut hold = server.keyspace.lock(Stripes::ALL, 1);
            hold.make::<List>(b"numbers").unwrap().push_back(b"2");
        }
        for target in (0..20).map(|number| format!("sorted-{number}")) {
            let (length, number) = (target.len(), 7);
            let request = format!(
                "*4\r\n$4\r\nSORT\r\n$7\r\nnumbers\r\n$5\r\nSTORE\r\n${length}\r\n{target}\r\n"
            );
            let parcel = parcel_of(1, &request);
            assert!(server.beside.parked.park(&server.log, b"token", parcel).is_ok());
            assert_eq!(server.claim(0, number, b"token"), Ok(true));
            server.committed(0, &[Commit { tid: Tid(1), oids: &[], number }]);
            assert!(has(&server, &target), "{target}");
        }
    }

    #[test]
    fn a_commit_takes_no_lock_while_nothing_is_claimed() {
        let server = Server::new(Options::default());
        assert!(server.beside.parked.park(&server.log, b"a", parcel(&server, 1, "a")).is_ok());
        let _parcels = server.beside.parked.parcels.lock();
        server.committed(0, &[Commit { tid: Tid(1), oids: &[], number: 7 }]);
    }

    #[test]
    fn a_connection_parks_a_limited_number() {
        let server = Server::new(Options::default());
        let (parked, log) = (&server.beside.parked, &server.log);
        let park = |client, key: &str| {
            parked.park(log, key.as_bytes(), parcel(&server, client, key)).map_err(|fail| fail.0)
        };
        for number in 0..TOKENS_MAX {
            park(1, &number.to_string()).unwrap();
        }
        assert_eq!(park(1, "more"), Err(TOO_MANY.0));
        park(2, "more").unwrap();
        assert!(parked.discard(log, b"0") && !parked.discard(log, b"0"));
        park(1, "again").unwrap();
    }

    #[test]
    fn a_token_is_of_one_transaction() {
        let server = Server::new(Options::default());
        let (parked, log) = (&server.beside.parked, &server.log);
        let park = || {
            let others = parcel_of(2, "*2\r\n$4\r\nINCR\r\n$1\r\nk\r\n");
            parked.park(log, b"a", others).map_err(|fail| fail.0)
        };
        parked.park(log, b"a", parcel(&server, 1, "a")).map_err(|fail| fail.0).unwrap();
        assert_eq!(park(), Err(IN_USE.0));
        assert_eq!(parked.claim((0, 1), b"a"), Ok(true));
        assert_eq!(park(), Err(IN_USE.0));
        parked.remove_claimed((0, 1));
        park().unwrap();
    }
}
