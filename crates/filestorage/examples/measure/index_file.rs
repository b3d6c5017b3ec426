//! How long the index of ten million objects takes to write and to read, without the disk.

#[path = "../../src/open/index_file.rs"]
mod subject;

use std::error::Error;
use std::time::Instant;

use zodium_types::Oid;

const OBJECTS: u64 = 10_000_000;
/// Somewhat more than they need.
const FILE_BYTES: usize = 90_000_000;
const DISTANCE_BYTES: u64 = 500;

pub(crate) fn measure() -> Result<(), Box<dyn Error>> {
    let mut bytes = Vec::with_capacity(FILE_BYTES);
    let entries = (0..OBJECTS).map(|oid| (Oid(oid), 4 + oid * DISTANCE_BYTES));
    let start = Instant::now();
    subject::write(&mut bytes, 4 + OBJECTS * DISTANCE_BYTES, entries)?;
    let write_ms = start.elapsed().as_millis();
    let start = Instant::now();
    let mut sum = 0;
    subject::read(&bytes[..], |oid, position| sum ^= oid.0 ^ position)?;
    std::hint::black_box(sum);
    let read_ms = start.elapsed().as_millis();
    println!("  {OBJECTS} entries: write {write_ms} ms, read {read_ms} ms");
    Ok(())
}
