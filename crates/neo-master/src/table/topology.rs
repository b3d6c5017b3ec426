//! Where storages are: copies of a partition belong on devices that do not fail together.

use std::collections::BTreeMap;

use zodium_neo::NodeId;

/// The devices of storages: paths of names, the largest place first.
pub(crate) type Devices = BTreeMap<NodeId, Vec<Vec<u8>>>;

/// How many places two devices share, from the largest on.
pub(super) fn shared(one: &[Vec<u8>], other: &[Vec<u8>]) -> u64 {
    one.iter().zip(other).take_while(|(one, other)| one == other).count() as u64
}
