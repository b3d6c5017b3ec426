//! Where a key is.

use crate::Stripes;

/// The place of a key, in all databases: its stripe, and its hash within that. A request finds it
/// once, as that takes longer than to find a key by it in the caches of the processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    pub(crate) stripe: usize,
    pub(crate) hash: u64,
}

impl Place {
    /// Its stripe.
    #[must_use]
    pub fn stripes(self) -> Stripes {
        Stripes::one(self.stripe)
    }
}
