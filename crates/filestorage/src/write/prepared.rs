//! A prepared transaction: its records with the positions of their back pointers, and its reserved
//! space.

use zodium_storage::NewTransaction;
use zodium_types::Tid;

use super::back_pointers::PointsBack;

/// A transaction that can be written; only its tid and its position in the file are undecided.
#[derive(Debug)]
pub struct PreparedTransaction {
    pub(super) transaction: NewTransaction,
    /// For each record that is the [same as](zodium_storage::NewBody::SameAs) another: the position
    /// of that one.
    pub(super) back_positions: Vec<u64>,
    reservation: Reservation,
    /// Keeps a pack from moving records until the transaction is written.
    _points_back: Option<PointsBack>,
}

/// Space reserved for a voted transaction. It is released, or used up by an append.
#[derive(Debug)]
pub(super) struct Reservation {
    pub(super) bytes: u64,
}

/// Transactions to be written with one sync.
pub(super) type PreparedBatch = [(Tid, PreparedTransaction)];

impl PreparedTransaction {
    pub(super) fn new(
        transaction: NewTransaction,
        back_positions: Vec<u64>,
        reservation: Reservation,
        points_back: Option<PointsBack>,
    ) -> PreparedTransaction {
        PreparedTransaction { transaction, back_positions, reservation, _points_back: points_back }
    }

    /// Bytes that it takes in the file.
    pub(super) fn bytes(&self) -> u64 {
        self.reservation.bytes
    }
}
