//! Ids of nodes.

use std::fmt;
use std::num::NonZeroI32;

use super::enumerations::NodeType;
use crate::wire::{Decode, Encode, Mismatch, Reader, Writer};

/// The id of a node: a signed integer of 32 bits, not 0. Logs show it as `S1`, `M1`, `C1`, `A1`.
///
/// The high byte is the kind of node, the others a number from 1. Storages keep theirs, which are
/// positive. Those of the other kinds are negative, and given by the primary master for a time.
/// On the wire, 0 means the same as nil: no id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(NonZeroI32);

const NUMBER_BITS: u32 = 24;
const EXPECTED: &str = "a node id";

impl NodeId {
    /// The largest number of a node among those of its kind.
    pub const NUMBER_MAX: u32 = (1 << NUMBER_BITS) - 1;

    /// The id with this value; `None` for 0.
    pub const fn new(value: i32) -> Option<NodeId> {
        match NonZeroI32::new(value) {
            Some(value) => Some(NodeId(value)),
            None => None,
        }
    }

    /// The id of the node of this kind with this number, from 1 to [`NodeId::NUMBER_MAX`].
    pub const fn of(kind: NodeType, number: u32) -> Option<NodeId> {
        if number == 0 || number > NodeId::NUMBER_MAX {
            return None;
        }
        NodeId::new((namespace(kind) as u32 | number) as i32)
    }

    /// The value on the wire and in databases.
    pub const fn value(self) -> i32 {
        self.0.get()
    }

    /// The kind of node; `None` if the high byte is that of no kind.
    pub fn kind(self) -> Option<NodeType> {
        let high = self.value() >> NUMBER_BITS;
        NodeType::ALL.iter().copied().find(|kind| namespace(*kind) >> NUMBER_BITS == high)
    }

    /// The number among the nodes of its kind.
    pub const fn number(self) -> u32 {
        self.value() as u32 & NodeId::NUMBER_MAX
    }
}

/// The id of a kind of node, with the number 0.
const fn namespace(kind: NodeType) -> i32 {
    let high: i32 = match kind {
        NodeType::Storage => 0x00,
        NodeType::Master => -0x10,
        NodeType::Client => -0x20,
        NodeType::Admin => -0x30,
    };
    high << NUMBER_BITS
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = match self.kind() {
            Some(NodeType::Storage) => 'S',
            Some(NodeType::Master) => 'M',
            Some(NodeType::Client) => 'C',
            Some(NodeType::Admin) => 'A',
            None => return write!(f, "node {}", self.value()),
        };
        write!(f, "{letter}{}", self.number())
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeId({self})")
    }
}

impl Encode for NodeId {
    fn encode(&self, out: &mut Writer<'_>) {
        out.int(self.value().into());
    }
}

impl Decode<'_> for NodeId {
    fn decode(reader: &mut Reader<'_>) -> Result<NodeId, Mismatch> {
        let before = reader.clone();
        let value = reader.int(EXPECTED)?;
        NodeId::new(value).ok_or_else(|| before.mismatch(EXPECTED, "the number 0".into()))
    }

    fn decode_optional(reader: &mut Reader<'_>) -> Result<Option<NodeId>, Mismatch> {
        if reader.take_nil() {
            return Ok(None);
        }
        let offset = reader.offset();
        reader.int(EXPECTED).map(NodeId::new).map_err(|mismatch| mismatch.or_nil(offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_named_by_kind_and_number() {
        for (kind, value, name) in [
            (NodeType::Storage, 1, "S1"),
            (NodeType::Master, -268_435_455, "M1"),
            (NodeType::Client, -536_870_911, "C1"),
            (NodeType::Admin, -805_306_367, "A1"),
        ] {
            let id = NodeId::of(kind, 1).unwrap();
            assert_eq!((id.value(), id.kind(), id.number()), (value, Some(kind), 1));
            assert_eq!(id.to_string(), name);
            assert_eq!(NodeId::new(value), Some(id));
        }
        assert_eq!(NodeId::of(NodeType::Storage, 0), None);
        assert_eq!(NodeId::of(NodeType::Admin, NodeId::NUMBER_MAX + 1), None);
        assert_eq!(NodeId::new(0x0700_0001).unwrap().to_string(), "node 117440513");
        assert_eq!(NodeId::new(0x0700_0001).unwrap().kind(), None);
    }

    #[test]
    fn no_id_is_nil_or_zero() {
        let optional = |bytes: &[u8]| Option::<NodeId>::decode(&mut Reader::new(bytes));
        assert_eq!(optional(b"\xc0"), Ok(None));
        assert_eq!(optional(b"\0"), Ok(None));
        assert_eq!(optional(b"\x01"), Ok(NodeId::new(1)));
        assert_eq!(optional(b"\xcf\0\0\0\x01\0\0\0\0").unwrap_err().expected, "a node id or nil");
        assert_eq!(NodeId::decode(&mut Reader::new(b"\0")).unwrap_err().found, "the number 0");
    }
}
