//! What an object costs in the index of positions, in memory and at each lookup.

#[path = "../../src/read/positions/mod.rs"]
#[allow(dead_code, reason = "only lookups are measured")]
mod subject;

use std::error::Error;
use std::time::Instant;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use zodium_types::Oid;

use crate::stopwatch::{cpu_ns, ns_each, resident_bytes};
use subject::Positions;

pub(crate) fn measure() -> Result<(), Box<dyn Error>> {
    for objects in [1_000_000, 10_000_000] {
        measure_dense(objects)?;
    }
    for (name, mask) in [("64-bit", u64::MAX), ("32-bit", u64::from(u32::MAX))] {
        measure_random(name, mask)?;
    }
    Ok(())
}

fn measure_dense(objects: u64) -> Result<(), Box<dyn Error>> {
    let (before, start) = (resident_bytes()?, Instant::now());
    let positions = publish_all(0..objects);
    let build_ns = ns_each(start, objects);
    let bytes = (resident_bytes()? - before) as f64 / objects as f64;
    let start = Instant::now();
    std::hint::black_box(positions.iter().count());
    let iterate_ns = ns_each(start, objects);
    let probe = |random| positions.position(Oid(random % objects)).unwrap_or(0);
    println!(
        "  {objects} dense oids: {bytes:.1} bytes each, probe {:.1} ns, with 2 threads {:.1} \
         (nothing but the random numbers {:.1}), build {build_ns:.1}, iterate {iterate_ns:.1}",
        cpu_ns(1, probe)?,
        cpu_ns(2, probe)?,
        cpu_ns(1, |random| random % objects)?,
    );
    keep(positions);
    Ok(())
}

fn measure_random(name: &str, mask: u64) -> Result<(), Box<dyn Error>> {
    let mut random = SmallRng::seed_from_u64(7);
    let oids: Vec<u64> = (0..1 << 20).map(|_| random.random::<u64>() & mask).collect();
    let before = resident_bytes()?;
    let positions = publish_all(oids.iter().copied());
    let bytes = (resident_bytes()? - before) as f64 / positions.len() as f64;
    let probe =
        |random: u64| positions.position(Oid(oids[random as usize % oids.len()])).unwrap_or(0);
    println!("  2^20 random {name} oids: {bytes:.0} bytes each, probe {:.0} ns", cpu_ns(1, probe)?);
    keep(positions);
    Ok(())
}

fn publish_all(oids: impl IntoIterator<Item = u64>) -> Positions {
    let positions = Positions::new();
    for oid in oids {
        positions.publish(Oid(oid), oid.wrapping_add(100).max(1));
    }
    positions
}

/// Were it freed, the next figure would be that of reused memory.
fn keep(positions: Positions) {
    std::mem::forget(positions);
}
