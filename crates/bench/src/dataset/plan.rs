//! The shape of a dataset: which transaction writes which object, and its length.

use rand::{RngExt, SeedableRng, rngs::Xoshiro256PlusPlus};

use super::{OBJECT_BYTES_MAX, OBJECT_BYTES_MIN};

/// A block of 4096 bytes, with its pickle.
pub(super) const BLOCK_BYTES: u32 = 4145;
/// One in so many objects is a node of the tree that holds the blocks.
const OBJECTS_PER_NODE: u64 = 27;
const NODE_BYTES: std::ops::Range<u32> = 150..1600;
/// Objects in a transaction, unless the shape defines it.
const TRANSACTION_OBJECTS: u32 = 100;

/// Sizes of objects, and how transactions write them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Like an array in blocks of 4 KB, with the tree that holds them.
    Blocks,
    /// Like the database of an ERP5 site.
    Site,
    /// All of the same size.
    Fixed(u32),
}

/// The distributions that NEO's benchmarks use for an ERP5 site. Object sizes and objects per
/// transaction are log-normal, and this share of the written objects is new.
const SITE_BYTES: LogNormal = LogNormal { mu: 6.042, sigma: 1.558 };
const SITE_OBJECTS: LogNormal = LogNormal { mu: 1.041, sigma: 0.907 };
const SITE_NEW: f64 = 0.81;
/// The largest object found in 1,024 transactions of a site.
const SITE_BYTES_MAX: f64 = 284_000.0;

struct LogNormal {
    mu: f64,
    sigma: f64,
}

/// All writes in order.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) writes: Vec<Write>,
    /// The end of each transaction in `writes`.
    pub(super) ends: Vec<usize>,
}

/// One revision of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Write {
    pub(super) oid: u32,
    pub(super) length: u32,
}

impl Plan {
    /// Plans `objects` objects, each written `revisions` times.
    pub(super) fn new(shape: Shape, objects: u64, revisions: u32, seed: u64) -> Plan {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x5153);
        let objects = u32::try_from(objects).unwrap_or(u32::MAX);
        let mut plan = Plan::default();
        for revision in 0..revisions {
            match shape {
                Shape::Site => plan.write_like_a_site(objects, revision > 0, &mut random),
                Shape::Blocks => plan.write_all(objects, |oid| match u64::from(oid) {
                    node if node % OBJECTS_PER_NODE == 0 => random.random_range(NODE_BYTES),
                    _ => BLOCK_BYTES,
                }),
                Shape::Fixed(length) => plan.write_all(objects, |_| length),
            }
        }
        plan
    }

    fn write_all(&mut self, objects: u32, mut length: impl FnMut(u32) -> u32) {
        for oid in 0..objects {
            self.writes.push(Write { oid, length: length(oid) });
            if (oid + 1) % TRANSACTION_OBJECTS == 0 || oid + 1 == objects {
                self.ends.push(self.writes.len());
            }
        }
    }

    /// Adds transactions until there are enough objects, or, once all are there, as many writes
    /// again.
    fn write_like_a_site(&mut self, objects: u32, all_there: bool, random: &mut impl RngExt) {
        let mut made = if all_there { objects } else { 0 };
        let end = self.writes.len() + objects as usize;
        while made < objects || (all_there && self.writes.len() < end) {
            let count = SITE_OBJECTS.sample(random).round().max(1.0) as u32;
            for _ in 0..count {
                let is_new = made == 0 || (made < objects && random.random_bool(SITE_NEW));
                let oid = if is_new { made } else { random.random_range(0..made) };
                made += u32::from(is_new);
                let bytes = SITE_BYTES.sample(random).round().min(SITE_BYTES_MAX) as u32;
                let length = bytes.clamp(OBJECT_BYTES_MIN, OBJECT_BYTES_MAX);
                self.writes.push(Write { oid, length });
            }
            self.ends.push(self.writes.len());
        }
    }
}

impl LogNormal {
    /// Samples with the Box-Muller transform.
    fn sample(&self, random: &mut impl RngExt) -> f64 {
        let radius = (-2.0 * (1.0 - random.random::<f64>()).ln()).sqrt();
        let angle = std::f64::consts::TAU * random.random::<f64>();
        (self.mu + self.sigma * radius * angle.cos()).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(plan: &Plan) -> Vec<u32> {
        let mut lengths: Vec<u32> = plan.writes.iter().map(|write| write.length).collect();
        lengths.sort_unstable();
        lengths
    }

    #[test]
    fn blocks_are_like_wczblk1() {
        let plan = Plan::new(Shape::Blocks, 2127, 1, 1);
        let lengths = lengths(&plan);
        assert_eq!(lengths[lengths.len() / 2], 4145);
        assert_eq!(lengths.iter().filter(|length| **length == BLOCK_BYTES).count(), 2048);
    }

    #[test]
    fn a_site_is_like_prod1() {
        let plan = Plan::new(Shape::Site, 3551, 1, 1);
        let lengths = lengths(&plan);
        let at = |part: f64| f64::from(lengths[(lengths.len() as f64 * part) as usize]);
        let near = |value: f64, expected: f64| (value / expected - 1.0).abs() < 0.15;
        assert!(near(at(0.5), 442.0) && near(at(0.9), 3200.0), "{} {}", at(0.5), at(0.9));
        let mean = lengths.iter().map(|length| f64::from(*length)).sum::<f64>();
        assert!(near(mean / lengths.len() as f64, 1521.0), "{}", mean / lengths.len() as f64);
        assert!(near(plan.ends.len() as f64, 1024.0), "{}", plan.ends.len());
    }

    #[test]
    fn every_object_is_there_and_every_write_in_a_transaction() {
        for shape in [Shape::Blocks, Shape::Site, Shape::Fixed(60)] {
            let plan = Plan::new(shape, 250, 3, 7);
            let mut oids: Vec<u32> = plan.writes.iter().map(|write| write.oid).collect();
            assert!(oids.len() >= 750, "{shape:?}");
            oids.sort_unstable();
            oids.dedup();
            assert!(oids.into_iter().eq(0..250), "{shape:?}");
            assert_eq!(plan.ends.last(), Some(&plan.writes.len()));
            assert!(plan.ends.is_sorted() && plan.ends[0] > 0);
        }
    }
}
