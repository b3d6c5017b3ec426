//! SHA-1 sums of stored data.

use std::fmt;

use crate::wire::{Decode, Encode, Mismatch, Reader, Writer};

/// The SHA-1 of data as they are stored, that is after compression; or of lists of ids.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Checksum(pub [u8; 20]);

impl Checksum {
    /// The sum of no data: with empty data it says that the object is deleted.
    pub const ZERO: Checksum = Checksum([0; 20]);
}

impl fmt::Debug for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Checksum({self})")
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Encode for Checksum {
    fn encode(&self, out: &mut Writer<'_>) {
        out.bytes(&self.0);
    }
}

impl Decode<'_> for Checksum {
    fn decode(reader: &mut Reader<'_>) -> Result<Checksum, Mismatch> {
        reader.array("a SHA-1 of 20 bytes").map(Checksum)
    }
}
