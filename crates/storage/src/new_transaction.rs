//! A transaction on its way into a storage.

use bytes::Bytes;
use zodium_types::{Oid, Tid, TransactionMetadata, TransactionStatus};

use crate::SpooledData;

/// A transaction to be prepared. It gets its tid at the commit.
#[derive(Debug)]
pub struct NewTransaction {
    /// Normal, or what a copied transaction had.
    pub status: TransactionStatus,
    /// User, description, extension.
    pub metadata: TransactionMetadata,
    /// The records in the order of their arrival.
    pub records: Vec<NewRecord>,
}

/// One record of a [`NewTransaction`].
#[derive(Clone, Debug)]
pub struct NewRecord {
    /// The object.
    pub oid: Oid,
    /// What becomes of it.
    pub body: NewBody,
}

/// What a new record says.
#[derive(Clone, Debug)]
pub enum NewBody {
    /// New data, at least one byte.
    Data(Bytes),
    /// New data that wait in a spool.
    Spooled(SpooledData),
    /// The same data as the record that this transaction wrote for the object.
    SameAs(Tid),
    /// The object is deleted.
    Deleted,
}
