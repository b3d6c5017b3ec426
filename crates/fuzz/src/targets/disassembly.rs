//! Pickles as lists of operations, as dumps and the explorer show them.

use zodium_pickle::{Disassembler, Limits, decode};

use super::{Target, linear};

/// Memory of a million values, which the decoder may take.
const VALUES_BYTES_MAX: usize = 192 << 20;

pub(super) const DISASSEMBLY: Target = Target {
    name: "disassembly",
    seeds: super::pickles::seeds,
    check,
    memory_bytes_max: |length| VALUES_BYTES_MAX + 4 * linear(length),
};

/// Operations come in order. Where the decoder understands a pickle, both find its end at the same
/// byte.
fn check(input: &[u8]) {
    let mut disassembler = Disassembler::new(input);
    let (mut last, mut depth) = (None, 0);
    let read = disassembler.pickle(&mut |instruction| {
        assert!(last < Some(instruction.position), "operations are in order");
        (last, depth) = (Some(instruction.position), instruction.depth);
    });
    assert!(depth <= input.len());
    assert!(disassembler.rest().len() <= input.len());
    if let Ok((_, length)) = decode(input, &Limits::PLAIN)
        && read.is_ok()
    {
        assert_eq!(input.len() - disassembler.rest().len(), length);
    }
}
