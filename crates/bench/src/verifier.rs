//! Checks received data: each object by its own checksum, or all by one checksum.

use sha1::{Digest as _, Sha1};
use zodium_types::Oid;

use crate::dataset::{Dataset, WrongData};
use crate::options::Checksum;

/// How received data are checked.
#[derive(Debug)]
pub(crate) enum Verifier {
    /// Each object is compared with its own checksum.
    Each,
    /// The length is checked, and the bytes go into a checksum over all objects.
    All(Sum),
}

/// A checksum over all data, in the order of arrival.
#[derive(Debug)]
pub(crate) enum Sum {
    None,
    Crc32(crc32fast::Hasher),
    Crc32c(u32),
    Sha1(Box<Sha1>),
}

impl Verifier {
    pub(crate) fn check(
        &mut self,
        dataset: &Dataset,
        oid: Oid,
        data: &[u8],
    ) -> Result<(), WrongData> {
        match self {
            Verifier::Each => dataset.check(oid, data),
            Verifier::All(sum) => {
                let (stored, got) = (dataset.length(oid), data.len());
                if got != stored {
                    return Err(WrongData::Length { oid, stored, got });
                }
                sum.update(data);
                Ok(())
            }
        }
    }

    /// The checksum over all data, in hexadecimal digits.
    pub(crate) fn sum(self) -> Option<String> {
        match self {
            Verifier::Each => None,
            Verifier::All(sum) => Some(sum.finish()),
        }
    }
}

impl Sum {
    pub(crate) fn new(checksum: Checksum) -> Sum {
        match checksum {
            Checksum::None => Sum::None,
            Checksum::Crc32 => Sum::Crc32(crc32fast::Hasher::new()),
            Checksum::Crc32c => Sum::Crc32c(0),
            Checksum::Sha1 => Sum::Sha1(Box::default()),
        }
    }

    pub(crate) fn update(&mut self, data: &[u8]) {
        match self {
            Sum::None => (),
            Sum::Crc32(hasher) => hasher.update(data),
            Sum::Crc32c(sum) => *sum = crc32c::crc32c_append(*sum, data),
            Sum::Sha1(hasher) => hasher.update(data),
        }
    }

    pub(crate) fn finish(self) -> String {
        match self {
            Sum::None => String::new(),
            Sum::Crc32(hasher) => format!("{:08x}", hasher.finalize()),
            Sum::Crc32c(sum) => format!("{sum:08x}"),
            Sum::Sha1(hasher) => {
                hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_that_everybody_knows() {
        let known = [
            (Checksum::None, ""),
            (Checksum::Crc32, "cbf43926"),
            (Checksum::Crc32c, "e3069283"),
            (Checksum::Sha1, "f7c3bc1d808e04732adf679965ccc34ca7ae3441"),
        ];
        for (checksum, expected) in known {
            let mut sum = Sum::new(checksum);
            sum.update(b"1234");
            sum.update(b"56789");
            assert_eq!(sum.finish(), expected);
        }
    }
}
