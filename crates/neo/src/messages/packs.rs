//! Packs: ordered by a transaction, approved by the master, done by storages in the background.
//!
//! The id of a pack is the tid of the transaction that orders it.

use zodium_types::{Oid, Tid};

use crate::wire::{Decode, Encode, Mismatch, Reader, Writer, record};

record! {
    /// The pack that a transaction orders.
    #[derive(Eq)]
    pub struct PackRequest {
        /// The objects to pack; `None` for all.
        oids: Option<Vec<Oid>>,
        /// Records that a later one, up to this transaction, replaces are removed.
        tid: Tid,
    }

    /// Waits for the end of a pack. C to M.
    pub struct WaitForPack {
        /// The pack.
        id: Tid,
    }

    /// The pack is done.
    pub struct WaitedForPack {}

    /// Asks for pack orders. M to S; C, S to M.
    pub struct AskPackOrders {
        /// Orders from this one on.
        id: Tid,
    }

    /// Pack orders.
    pub struct AnswerPackOrders {
        /// The orders, ascending.
        orders: Vec<PackOrder>,
    }

    /// An order of a pack.
    #[derive(Eq)]
    pub struct PackOrder {
        /// The pack.
        id: Tid,
        /// Whether it is approved; `None` while that is open.
        approved: Option<bool>,
        /// Whether only some objects are packed.
        partial: bool,
        /// These objects, ascending; `None` for all.
        oids: Option<OidList>,
        /// As in [`PackRequest`].
        tid: Tid,
    }

    /// Tells which packs are approved and which are refused. M to S, masters of backup clusters.
    pub struct NotifyPackSigned {
        /// Packs that are approved.
        approved: Vec<Tid>,
        /// Packs that are refused.
        rejected: Vec<Tid>,
    }

    /// The storage has done all packs up to one. S to M.
    pub struct NotifyPackCompleted {
        /// The last pack done.
        id: Tid,
    }
}

/// Objects of a pack order.
///
/// NEO/py's storages send the oids of one as a single `bin`, 8 bytes each, where its masters that
/// had the order from a client send an array. Both are read; the array is written, since NEO/py's
/// storages fail with the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OidList(pub Vec<Oid>);

const OID_BYTES: usize = 8;

impl Encode for OidList {
    fn encode(&self, out: &mut Writer<'_>) {
        self.0.encode(out);
    }
}

impl Decode<'_> for OidList {
    fn decode(reader: &mut Reader<'_>) -> Result<OidList, Mismatch> {
        let before = reader.clone();
        if !reader.is_bytes() {
            return Vec::decode(reader).map(OidList);
        }
        let bytes = reader.bytes("oids of 8 bytes")?;
        let (oids, rest) = bytes.as_chunks::<OID_BYTES>();
        if !rest.is_empty() {
            return Err(before.mismatch("oids of 8 bytes", format!("{} bytes", bytes.len()).into()));
        }
        Ok(OidList(oids.iter().map(|oid| Oid(u64::from_be_bytes(*oid))).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oids_of_an_order_may_be_one_string() {
        let decode = |bytes: &[u8]| OidList::decode(&mut Reader::new(bytes));
        let list = Ok(OidList(vec![Oid(1), Oid(2)]));
        let (one, two) = ([0, 0, 0, 0, 0, 0, 0, 1], [0, 0, 0, 0, 0, 0, 0, 2]);
        assert_eq!(decode(&[&b"\xc4\x10"[..], &one, &two].concat()), list);
        assert_eq!(decode(&[&b"\x92\xc4\x08"[..], &one, b"\xc4\x08", &two].concat()), list);
        assert_eq!(decode(b"\xc4\0"), Ok(OidList(Vec::new())));
        assert_eq!(decode(b"\xc4\x03abc").unwrap_err().found, "3 bytes");
    }
}
