//! A simulation of clusters: real masters, and models of storages and clients, on one thread.
//!
//! Masters are killed, connections are cut, and the network falls into parts, in which masters
//! elect each other. In the end everything is reached again, and nothing that a client was told may
//! be lost: that would be a fork of the cluster. The same seed gives the same run:
//! `SEED=7 cargo test -p zodium-neo-master simulation`.

mod client;
mod net;
mod random;
mod storage;
mod world;

use std::ops::Range;

use self::world::{Shape, World};

/// Steps before the calm.
const STEPS: usize = 6000;

/// The seeds of `SEEDS`, or these.
fn seeds_or(seeds: Range<u64>) -> Range<u64> {
    let given = std::env::var("SEEDS").ok();
    let given = given.as_ref().and_then(|given| given.split_once(".."));
    let parsed = given.and_then(|(start, end)| Some(start.parse().ok()?..end.parse().ok()?));
    parsed.unwrap_or(seeds)
}

fn check(seeds: Range<u64>, shape: Shape) {
    let only: Option<u64> = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    let (mut commits, mut primaries) = (0, 0);
    let mut failures = Vec::new();
    for seed in only.map_or(seeds, |only| only..only + 1) {
        let mut world = World::new(seed, shape);
        if let Err(what) = run(&mut world, seed) {
            failures.push(format!("SEED={seed} ({shape:?}): {what}"));
        }
        commits += world.commits();
        primaries += world.primaries;
    }
    println!("{commits} commits acknowledged, {primaries} times a master began to be primary");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(only.is_some() || commits > 0);
}

fn run(world: &mut World, seed: u64) -> Result<(), String> {
    // Large clusters would hardly ever start under faults.
    if world.shape.storages > 4 || seed.is_multiple_of(2) {
        world.come_to_rest()?;
    }
    world.run(STEPS * world.shape.storages.div_ceil(4));
    world.come_to_rest()?;
    world.judge()
}

/// A cluster of so many storages. With few of them, all cells of a partition are lost more often.
fn shape(storages: usize) -> Shape {
    let (partitions, clients) = if storages > 4 { (12, 4) } else { (3, 3) };
    let replicas = (storages as u32 - 1).min(2);
    Shape { masters: 3, storages, partitions, replicas, clients, has_operators: false }
}

/// `STORAGES=3 SEED=306` runs one seed with so many storages, `STORAGES=3 SEEDS=0..1000` many.
#[test]
fn nothing_acknowledged_is_lost_in_a_large_cluster() {
    let given = std::env::var("STORAGES").ok().and_then(|count| count.parse().ok());
    check(seeds_or(0..6), shape(given.unwrap_or(12)));
}

/// Seeds that once ended with a replica that lacked a commit, or waited for ever:
///
/// - a start with an old table, or after another master had been primary;
/// - versions of the table that only some storages had, a newer one not waited for;
/// - two versions of the table with one number, as a storage had not told of the first yet;
/// - answers from an earlier recovery;
/// - a vote that came after its commit;
/// - a commit of which only storages without its metadata knew, after a verification that was cut;
/// - a creation that was cut twice before some storage had a table.
#[test]
fn nothing_acknowledged_is_lost_in_a_small_cluster() {
    for seed in [170, 200, 209, 575, 2327] {
        check(seed..seed + 1, shape(2));
    }
    for seed in [45, 111, 174, 273, 306, 379, 1694] {
        check(seed..seed + 1, shape(3));
    }
    for seed in [163, 287, 354, 409, 486] {
        check(seed..seed + 1, shape(4));
    }
    check(5106..5107, shape(5));
}

/// `STORAGES=2 SEEDS=0..1000` runs others. These seeds once ended with a replica that lacked
/// a commit, or with what had to end before:
///
/// - votes for cells that had been taken away;
/// - votes that a client had aborted before the storage was ready;
/// - cells that had no other cell to feed.
#[test]
fn nothing_acknowledged_is_lost_while_operators_move_cells() {
    check(455..456, Shape { has_operators: true, ..shape(3) });
    for seed in [186, 635, 726, 1033, 1157] {
        check(seed..seed + 1, Shape { has_operators: true, ..shape(4) });
    }
    let given = std::env::var("STORAGES").ok().and_then(|count| count.parse().ok());
    check(seeds_or(0..8), Shape { has_operators: true, ..shape(given.unwrap_or(4)) });
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let shape = Shape { replicas: 1, has_operators: true, ..shape(4) };
    let run = || {
        let mut world = World::new(5, shape);
        world.run(STEPS);
        (world.commits(), world.digest)
    };
    assert_eq!(run(), run());
}
