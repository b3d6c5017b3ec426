//! Mutates inputs in ways that decoders are sensitive to.
//!
//! There are bit flips and splices. Numbers of 1 to 8 bytes in either byte order are set to limits.
//! Parts are repeated until they nest deep, and the end is truncated.

use rand::rngs::SmallRng;
use rand::{Rng, RngExt, SeedableRng};

/// Largest input; larger ones only take longer.
const INPUT_BYTES_MAX: usize = 64 << 10;
/// Most changes to one input; most inputs get few.
const CHANGES_MAX: u32 = 6;
/// Numbers at limits.
const LIMITS: [u64; 14] = [
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0xffff,
    1 << 20,
    0x7fff_ffff,
    1 << 31,
    0xffff_ffff,
    1 << 32,
    i64::MAX as u64,
    u64::MAX,
];
/// Bytes that open something, or have much effect, in pickles and msgpack.
const TELLING: &[u8] =
    b"(]}l).0eutsbRicoQP\x80\x81\x85\x86\x87\x88\x8a\x8b\x93\x94\x95cCBXTUJKMNGIFLVqrjhg2\
    \x90\x91\x9f\xc0\xc4\xc5\xc6\xc7\xc9\xca\xcb\xcc\xd4\xd9\xda\xdb\xdc\xdd\xde\xdf\xff";

/// The input with this number: one of `seeds`, usually mutated.
pub fn input(seeds: &[Vec<u8>], seed: u64, number: u64) -> Vec<u8> {
    let mut random = SmallRng::seed_from_u64(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut input = one_of(&mut random, seeds).to_vec();
    for _ in 0..random.random_range(0..=CHANGES_MAX) {
        change(&mut random, seeds, &mut input);
    }
    input.truncate(INPUT_BYTES_MAX);
    input
}

fn one_of<'a>(random: &mut SmallRng, seeds: &'a [Vec<u8>]) -> &'a [u8] {
    if seeds.is_empty() {
        return &[];
    }
    &seeds[random.random_range(0..seeds.len())]
}

fn change(random: &mut SmallRng, seeds: &[Vec<u8>], input: &mut Vec<u8>) {
    if input.is_empty() {
        *input = one_of(random, seeds).to_vec();
        return;
    }
    let at = random.random_range(0..input.len());
    match random.random_range(0..12) {
        0 | 1 => input[at] ^= 1 << random.random_range(0..8),
        2 => input[at] = random.random(),
        3 => input[at] = TELLING[random.random_range(0..TELLING.len())],
        4 => put_number(random, &mut input[at..]),
        5 => input.truncate(at),
        6 => remove(random, input, at),
        7 => input.insert(at, TELLING[random.random_range(0..TELLING.len())]),
        8 => repeat(random, input, at),
        9 => {
            let other = one_of(random, seeds);
            splice(random, other, input, at);
        }
        10 => shift_number(random, &mut input[at..]),
        _ => swap(random, input, at),
    }
}

/// Overwrites a possible length with a limit.
fn put_number(random: &mut SmallRng, place: &mut [u8]) {
    let number = LIMITS[random.random_range(0..LIMITS.len())];
    let width = [1, 2, 4, 4, 8][random.random_range(0..5)].min(place.len());
    let bytes = number.to_be_bytes();
    place[..width].copy_from_slice(&bytes[8 - width..]);
    if random.random() {
        place[..width].reverse();
    }
}

/// Increases or decreases a number a little.
fn shift_number(random: &mut SmallRng, place: &mut [u8]) {
    let change = random.random_range(1..=32_u8);
    place[0] =
        if random.random() { place[0].wrapping_add(change) } else { place[0].wrapping_sub(change) };
}

fn length_from(random: &mut SmallRng, input: &[u8], at: usize) -> usize {
    let most = input.len() - at;
    let wanted = 1 << random.random_range(0..8_u32);
    random.random_range(1..=most.min(wanted).max(1))
}

fn remove(random: &mut SmallRng, input: &mut Vec<u8>, at: usize) {
    let length = length_from(random, input, at);
    input.drain(at..at + length);
}

/// Repeats a part once or twice; sometimes often enough to exceed any nesting limit.
fn repeat(random: &mut SmallRng, input: &mut Vec<u8>, at: usize) {
    let length = length_from(random, input, at);
    let times = match random.random_range(0..16) {
        0 => 10_000,
        1 => 300,
        _ => random.random_range(1..4),
    };
    let room = INPUT_BYTES_MAX.saturating_sub(input.len()) / length;
    let part = input[at..at + length].repeat(times.min(room));
    input.splice(at..at, part);
}

/// Overwrites or inserts a part of another seed.
fn splice(random: &mut SmallRng, other: &[u8], input: &mut Vec<u8>, at: usize) {
    if other.is_empty() {
        return;
    }
    let from = random.random_range(0..other.len());
    let length = length_from(random, other, from);
    let replaced = if random.random() { length.min(input.len() - at) } else { 0 };
    input.splice(at..at + replaced, other[from..from + length].iter().copied());
}

fn swap(random: &mut SmallRng, input: &mut [u8], at: usize) {
    let other = random.random_range(0..input.len());
    let length = 8.min(input.len() - at).min(input.len() - other);
    for step in 0..length {
        input.swap(at + step, other + step);
    }
}

/// Random bytes, for targets without real seeds.
pub fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    SmallRng::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_is_made_of_its_numbers_alone() {
        let seeds = [b"one seed".to_vec(), b"and another".to_vec(), Vec::new()];
        for number in 0..10_000 {
            assert_eq!(input(&seeds, 7, number), input(&seeds, 7, number));
        }
        assert_ne!(
            (0..100).map(|number| input(&seeds, 7, number)).collect::<Vec<_>>(),
            (0..100).map(|number| input(&seeds, 8, number)).collect::<Vec<_>>()
        );
    }

    #[test]
    fn inputs_stay_within_their_bounds_and_differ() {
        let seeds = [noise(1, 200)];
        let inputs: std::collections::BTreeSet<_> =
            (0..10_000).map(|number| input(&seeds, 1, number)).collect();
        assert!(inputs.len() > 5_000);
        assert!(inputs.iter().all(|input| input.len() <= INPUT_BYTES_MAX));
        assert!(inputs.iter().any(|input| input.len() > 10_000), "some are repeated often");
    }
}
