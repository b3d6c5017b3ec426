//! Checks BTrees without their classes.
//!
//! Key decision: one walk over the current objects in the order of the log keeps of each node what
//! the others have to fit to: references, and first and last keys. The trees are checked from that,
//! without a single load.

mod damage;
mod nodes;
mod trees;

pub use damage::BTreeDamage;
pub use trees::{BTreesChecked, check_btrees};
