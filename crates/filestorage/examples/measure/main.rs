//! Measures the parts that every load goes through: positions, the cache of records, and the index
//! file that a storage opens with.
//!
//! `cargo run --release -p zodium-filestorage --example measure`, behind `--` the names of those
//! wanted: `positions`, `record_cache`, `index_file`.
//!
//! These parts are private to the crate, so their files are compiled into this program once more.
//! A figure of a single probe cannot be had through the interface, which should not grow for it.
//! Whole servers are measured by `zodium-bench`.

#![forbid(unsafe_code)]

mod index_file;
mod positions;
mod record_cache;
mod stopwatch;
#[path = "../../src/sync/mod.rs"]
mod sync;

use std::error::Error;

type Measurement = fn() -> Result<(), Box<dyn Error>>;

const MEASUREMENTS: [(&str, Measurement); 3] = [
    ("positions", positions::measure),
    ("record_cache", record_cache::measure),
    ("index_file", index_file::measure),
];

fn main() -> Result<(), Box<dyn Error>> {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    for (name, measure) in MEASUREMENTS {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
            println!("{name}");
            measure()?;
        }
    }
    Ok(())
}
