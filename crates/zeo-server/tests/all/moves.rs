//! Connections that move between workers all the time, while others commit: each client is told of
//! each commit of the others once, in order, and before any answer that shows it.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Barrier;

use zodium_pickle::Value;
use zodium_types::{Oid, Tid};
use zodium_zeo::codec::Encoding;

use crate::support::client::{Answer, Client};
use crate::support::server::InProcess;
use crate::support::{Difference, same};

const CLIENTS: u64 = 6;

/// Has several clients commit at the same time; returns how often one of them moved.
///
/// # Errors
///
/// If a client was told of a commit twice, late, in another order or never.
pub(crate) fn check(encoding: Encoding, commits: u64) -> Result<u64, Difference> {
    let server = InProcess::start_moving(encoding)?;
    let (registered, done) = (Barrier::new(CLIENTS as usize), Barrier::new(CLIENTS as usize));
    let run = |client: u64| -> Result<Seen, Difference> {
        let client = Committer::connect(server.socket(), client);
        registered.wait();
        let client = client.and_then(|client| client.commit(commits));
        done.wait();
        client?.end()
    };
    let all = std::thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..CLIENTS).map(|client| scope.spawn(move || run(client))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| thread.join().expect("a client");
        threads.into_iter().map(join).collect::<Result<Vec<Seen>, Difference>>()
    })?;
    for (client, seen) in all.iter().enumerate() {
        let others = all.iter().enumerate().filter(|(other, _)| *other != client);
        let expected: BTreeSet<Tid> =
            others.flat_map(|(_, other)| other.own.iter().copied()).collect();
        let expected: Vec<Tid> = expected.into_iter().collect();
        same(format!("commits that client {client} was told of"), &seen.told, &expected)?;
    }
    let moves = server.moves();
    server.close()?;
    Ok(moves)
}

/// What a client saw.
struct Seen {
    own: Vec<Tid>,
    /// The commits of others, in the order in which it was told.
    told: Vec<Tid>,
}

struct Committer {
    client: Client,
    oid: Oid,
    own: Vec<Tid>,
}

impl Committer {
    fn connect(socket: &Path, number: u64) -> Result<Committer, Difference> {
        Ok(Committer { client: Client::register(socket)?, oid: Oid(number + 1), own: Vec::new() })
    }

    fn commit(mut self, commits: u64) -> Result<Committer, Difference> {
        let empty = || Value::from(&b""[..]);
        for number in 1..=commits {
            let serial = self.own.last().copied().unwrap_or(Tid::ZERO);
            let id = || Value::from(number as i64);
            let metadata = [id(), empty(), empty(), Value::None, Value::None, " ".into()];
            self.client.tell("tpc_begin", metadata)?;
            let data = Value::from(number.to_be_bytes().to_vec());
            self.client.tell("storea", [self.oid.into(), serial.into(), data, id()])?;
            self.client.ask("vote", [id()])?;
            let tid = match self.client.ask("tpc_finish", [id()])? {
                Answer::Value(value) => value.as_tid(),
                other => return Err(Difference { what: format!("finish: {other:?}") }),
            };
            self.own.extend(tid);
            self.check_last()?;
        }
        Ok(self)
    }

    /// Asks for the last transaction, of which the client must have been told.
    fn check_last(&mut self) -> Result<(), Difference> {
        let Answer::Value(last) = self.client.ask("lastTransaction", [])? else {
            return Err(Difference { what: "no last transaction".to_owned() });
        };
        let last = last.as_tid();
        let mut told = self.client.invalidations.iter().map(|(tid, _)| Some(*tid));
        let is_own = last == self.own.last().copied();
        same("knows its last transaction", is_own || told.any(|tid| tid == last), true)
    }

    /// Reads what is still to come, after all have committed.
    fn end(mut self) -> Result<Seen, Difference> {
        self.check_last()?;
        let told = self.client.invalidations.iter().map(|(tid, _)| *tid).collect();
        Ok(Seen { own: self.own, told })
    }
}
