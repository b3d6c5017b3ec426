//! How far a node is in its life.

/// How far the node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Without a primary master.
    Alone,
    /// The master learns what the database holds.
    Recovering,
    /// The master has started operation; the database is being prepared.
    Starting,
    /// Other nodes are served.
    Operating,
}
