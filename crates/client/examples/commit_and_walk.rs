//! Commits to a storage, loads everything back, and iterates over its transactions:
//! `cargo run -p zodium-client --example commit_and_walk -- zeo://127.0.0.1:8100`

#![forbid(unsafe_code)]

use std::time::Instant;

use zodium_client::{Client, ClientError, Options, TransactionOptions};
use zodium_types::{Oid, Tid};

/// A data record: an instance of `persistent.mapping.PersistentMapping` without a state.
const RECORD: &[u8] = b"\x80\x03cpersistent.mapping\nPersistentMapping\nq\0.\x80\x03}q\0.";
const OBJECTS: usize = 1000;

fn main() -> Result<(), ClientError> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "zeo://127.0.0.1:8100".to_owned());
    let client = Client::connect(Options::from_url(&url)?)?;
    let mut transaction = client.begin(&TransactionOptions::default())?;
    let mut oids = Vec::new();
    for _ in 0..OBJECTS {
        let oid = client.new_oid()?;
        transaction.store(oid, Tid::ZERO, RECORD.into())?;
        oids.push(oid);
    }
    let voted = transaction.vote()?;
    println!("{} conflicts", voted.conflicts.len());
    let tid = transaction.finish(|tid| println!("{tid} is committed"))?;

    let other = Client::connect(Options::from_url(&url)?)?;
    let started = Instant::now();
    let loaded = other.load_many(&oids, tid.next())?;
    let found = loaded.iter().filter(|answer| matches!(answer, Ok(Some(_)))).count();
    println!("{found} objects loaded at once in {:?}", started.elapsed());
    let missing = other.load_current(Oid(u64::MAX >> 1));
    println!("what is not there: {}", missing.err().map_or(String::new(), |e| e.to_string()));

    let started = Instant::now();
    let (mut transactions, mut records) = (0, 0);
    for transaction in other.iterate(None, None)? {
        transactions += 1;
        records += transaction?.records.len();
    }
    println!("{transactions} transactions, {records} records in {:?}", started.elapsed());
    Ok(())
}
