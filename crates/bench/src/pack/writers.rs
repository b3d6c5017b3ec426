//! Clients that commit while their server packs, each to an object of its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use zodium_client::direct::{DirectClient, connect};
use zodium_pickle::Value;
use zodium_types::{Address, Oid, Tid};

use super::history::History;
use crate::interrupt::Interrupt;
use crate::options::PackOptions;
use crate::server::Server;

/// Longer than any commit takes, even while the stock server packs.
const PATIENCE: Duration = Duration::from_secs(600);

/// Commits of all clients, before and during the pack.
pub(super) struct Stalls {
    pub(super) before: Vec<Commit>,
    pub(super) during: Vec<Commit>,
    pub(super) pack_seconds: f64,
    pub(super) before_seconds: f64,
}

/// One commit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Commit {
    pub(super) began: Instant,
    pub(super) took: Duration,
}

pub(super) fn measure(
    server: &Server,
    options: &PackOptions,
    history: &History,
    interrupt: &Interrupt,
) -> Result<Stalls> {
    let address =
        Address::Tcp { host: server.address.ip().to_string(), port: server.address.port() };
    let is_over = &AtomicBool::new(false);
    let address = &address;
    std::thread::scope(|scope| {
        let started = Instant::now();
        let writers: Vec<_> = (0..u64::from(options.writers))
            .map(|oid| scope.spawn(move || write(address, oid, history, is_over)))
            .collect();
        let waited = interrupt.sleep(options.seconds);
        let began = Instant::now();
        let packed = waited.and_then(|()| pack(address));
        let ended = Instant::now();
        is_over.store(true, Ordering::Relaxed);
        let mut commits = Vec::new();
        for writer in writers {
            let written = writer.join().map_err(|_| anyhow::anyhow!("a writer panicked"))?;
            commits.extend(written?);
        }
        packed?;
        ensure!(!commits.is_empty(), "nothing was committed");
        // A commit that began before the pack and ended in it was delayed by it.
        let is_before = |commit: &Commit| commit.began + commit.took < began;
        commits.retain(|commit| commit.began < ended);
        let (before, during) = commits.into_iter().partition(is_before);
        let pack_seconds = (ended - began).as_secs_f64();
        let before_seconds = (began - started).as_secs_f64();
        Ok(Stalls { before, during, pack_seconds, before_seconds })
    })
}

fn open(address: &Address) -> Result<DirectClient> {
    let mut client = DirectClient::greet(connect(address, PATIENCE)?, PATIENCE)?;
    client.register("1", false)?;
    Ok(client)
}

fn pack(address: &Address) -> Result<()> {
    let mut client = open(address)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64();
    client.call("pack", &Value::tuple([Value::Float(now), true.into()]))?;
    Ok(())
}

/// Commits until the end of the measurement.
fn write(
    address: &Address,
    oid: u64,
    history: &History,
    is_over: &AtomicBool,
) -> Result<Vec<Commit>> {
    let mut client = open(address)?;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(oid);
    let loaded = client.call("loadBefore", &Value::tuple([Oid(oid).into(), Tid::MAX.into()]))?;
    let serial = loaded.as_sequence().and_then(|parts| parts.get(1)?.as_tid());
    let mut serial = serial.context("an object of the file is not there")?;
    let mut commits = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let data = history.data(oid, &mut random);
        let number: u32 = random.random();
        let began = Instant::now();
        serial = commit(&mut client, number, Oid(oid), serial, &data)?;
        commits.push(Commit { began, took: began.elapsed() });
    }
    Ok(commits)
}

fn commit(
    client: &mut DirectClient,
    number: u32,
    oid: Oid,
    serial: Tid,
    data: &[u8],
) -> Result<Tid> {
    let number = || Value::Int(number.into());
    let empty = || Value::from(&b""[..]);
    let metadata = [empty(), empty(), Value::Dict(Vec::new()), Value::None, " ".into()];
    client.tell("tpc_begin", &Value::tuple([number()].into_iter().chain(metadata)))?;
    let store = [oid.into(), serial.into(), Value::from(data), number()];
    client.tell("storea", &Value::tuple(store))?;
    client.call("vote", &Value::tuple([number()]))?;
    let tid = client.call("tpc_finish", &Value::tuple([number()]))?;
    tid.as_tid().context("a commit was answered with something else than a tid")
}
