//! The two sides of a connection.

/// The side of a connection that presents a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}
