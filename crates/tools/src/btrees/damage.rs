//! Damage of a BTree.

use zodium_types::Oid;

/// What is wrong with a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BTreeDamage {
    /// The node.
    pub oid: Oid,
    /// Its class, where it is at hand.
    pub class: Option<String>,
    /// What is wrong.
    pub what: String,
}
