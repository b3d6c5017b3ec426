//! What a hit, a miss and an insertion cost in the cache of records.

#[path = "../../src/read/record_cache/mod.rs"]
#[allow(dead_code, unreachable_pub, reason = "only lookups and insertions are measured")]
mod subject;

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use crate::stopwatch::{cpu_ns, ns_each};
use subject::{RecordCache, Weighted};

const RECORDS: u64 = 100_000;
const RECORD_BYTES: usize = 500;
/// From the beginning of a record to that of the next.
const DISTANCE_BYTES: u64 = 600;

/// Claims to take [`RECORD_BYTES`], and takes next to nothing: what is measured is the cache.
struct Record {
    position: u64,
}

impl Weighted for Arc<Record> {
    fn position(&self) -> u64 {
        self.position
    }

    fn bytes(&self) -> usize {
        RECORD_BYTES
    }
}

pub(crate) fn measure() -> Result<(), Box<dyn Error>> {
    let cache = RecordCache::new(256 << 20);
    println!("  insert without eviction: {:.0} ns", insert_ns(&cache, RECORDS, DISTANCE_BYTES));
    let with = |position| cache.with(position, |record| record.position).unwrap_or(0);
    let lookup = |position| cache.lookup(position).map_or(0, |record| record.position);
    let any = |random| (random % RECORDS + 1) * DISTANCE_BYTES;
    let hot = |random| (random % 100 + 1) * DISTANCE_BYTES;
    let together = |position: u64| {
        let found = cache.find_each(&std::array::from_fn::<_, 6, _>(|next| {
            any(position.wrapping_mul(next as u64 + 1))
        }));
        found.into_iter().flatten().flat_map(|record| record.as_ref().map(|r| r.position)).sum()
    };
    println!("  six together: {:.1} ns", cpu_ns(1, together)?);
    for threads in [1, 2] {
        println!(
            "  {threads} threads: with {:.1} ns, lookup {:.1}; of 100 hot records: with {:.1}, \
             lookup {:.1}; miss {:.1}; nothing but the random numbers {:.1}",
            cpu_ns(threads, |random| with(any(random)))?,
            cpu_ns(threads, |random| lookup(any(random)))?,
            cpu_ns(threads, |random| with(hot(random)))?,
            cpu_ns(threads, |random| lookup(hot(random)))?,
            cpu_ns(threads, |random| with(any(random) + 1))?,
            cpu_ns(threads, any)?,
        );
    }
    let insert_ns = insert_ns(&cache, 10 * RECORDS, DISTANCE_BYTES + 1);
    println!("  insert with eviction: {insert_ns:.0} ns, {:?}", cache.statistics());
    Ok(())
}

fn insert_ns(cache: &RecordCache<Arc<Record>>, records: u64, distance_bytes: u64) -> f64 {
    let start = Instant::now();
    for number in 1..=records {
        cache.insert(Arc::new(Record { position: number * distance_bytes }));
    }
    ns_each(start, records)
}
