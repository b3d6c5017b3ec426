//! NEO's enumerations. They travel as msgpack extension types, but for error codes.

use std::fmt;

use crate::wire::{Decode, Encode, Mismatch, Reader, Writer};

/// Declares an enumeration with NEO's names and numbers.
macro_rules! enumeration {
    (
        $(#[$about:meta])*
        $name:ident ($expected:literal) {
            $($(#[$about_value:meta])* $value:ident = $number:literal $text:literal,)*
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$about_value])* $value = $number,)*
        }

        impl $name {
            /// All values, in the order of their numbers.
            pub const ALL: &[$name] = &[$($name::$value),*];

            /// The name in NEO's logs and commands.
            pub fn name(self) -> &'static str {
                match self {
                    $($name::$value => $text,)*
                }
            }

            /// The number on the wire and in databases.
            pub fn number(self) -> u8 {
                self as u8
            }

            /// The value with this number.
            pub fn from_number(number: u8) -> Option<$name> {
                match number {
                    $($number => Some($name::$value),)*
                    _ => None,
                }
            }

            fn of(number: u8, before: &Reader<'_>) -> Result<$name, Mismatch> {
                $name::from_number(number).ok_or_else(|| {
                    before.mismatch($expected, format!("the number {number}").into())
                })
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

/// Reads and writes an enumeration as an extension type of this number.
macro_rules! as_extension {
    ($($name:ident = $kind:literal $expected:literal,)*) => {
        $(
            impl $name {
                /// The number of the msgpack extension type.
                pub const EXTENSION: i8 = $kind;
            }

            impl Encode for $name {
                fn encode(&self, out: &mut Writer<'_>) {
                    // All numbers are below 128: each is its own msgpack.
                    out.extension($name::EXTENSION, &[self.number()]);
                }
            }

            impl Decode<'_> for $name {
                fn decode(reader: &mut Reader<'_>) -> Result<$name, Mismatch> {
                    let before = reader.clone();
                    let number = extension(reader, $name::EXTENSION, $expected)?;
                    $name::of(number, &before)
                }
            }
        )*
    };
}

enumeration! {
    /// The state of a cell: what one storage has of a partition.
    CellState ("a cell state") {
        /// Writable, not readable: transactions are missing until the cell is replicated.
        OutOfDate = 0 "OUT_OF_DATE",
        /// Readable and writable.
        UpToDate = 1 "UP_TO_DATE",
        /// As up to date, until another storage has replicated the partition; then it is dropped.
        Feeding = 2 "FEEDING",
        /// Neither readable nor writable: a check found a difference from other replicas.
        Corrupted = 3 "CORRUPTED",
        /// In changes only: the cell is removed.
        Discarded = 4 "DISCARDED",
    }
}

enumeration! {
    /// The state of a cluster.
    ClusterState ("a cluster state") {
        /// The primary master learns the partition table from storages, and waits for enough of
        /// them.
        Recovering = 0 "RECOVERING",
        /// Transactions that were being committed are finished or dropped.
        Verifying = 1 "VERIFYING",
        /// Clients read and write.
        Running = 2 "RUNNING",
        /// The cluster is shutting down.
        Stopping = 3 "STOPPING",
        /// The master connects to the upstream cluster.
        StartingBackup = 4 "STARTING_BACKUP",
        /// Storages fetch what the upstream cluster commits.
        BackingUp = 5 "BACKINGUP",
        /// The database is being cut to the last transaction that all partitions have.
        StoppingBackup = 6 "STOPPING_BACKUP",
    }
}

enumeration! {
    /// The code of an [`Error`](crate::messages::Error) message; a plain integer on the wire.
    ErrorCode ("an error code") {
        /// Success.
        Ack = 0 "ACK",
        /// The request is refused in this state.
        Denied = 1 "DENIED",
        /// The node cannot serve yet; the peer retries.
        NotReady = 2 "NOT_READY",
        /// The object exists, but not at that transaction.
        OidNotFound = 3 "OID_NOT_FOUND",
        /// There is no such transaction.
        TidNotFound = 4 "TID_NOT_FOUND",
        /// The object has no record at all.
        OidDoesNotExist = 5 "OID_DOES_NOT_EXIST",
        /// The peer broke the protocol; the connection ends.
        ProtocolError = 6 "PROTOCOL_ERROR",
        /// The source of a replication cannot go on.
        ReplicationError = 7 "REPLICATION_ERROR",
        /// The source of a check of replicas cannot go on.
        CheckingError = 8 "CHECKING_ERROR",
        /// The storage's database does not implement the request.
        BackendNotImplemented = 9 "BACKEND_NOT_IMPLEMENTED",
        /// The storage has no readable cell of that partition.
        NonReadableCell = 10 "NON_READABLE_CELL",
        /// The cluster is read-only for this client.
        ReadOnlyAccess = 11 "READ_ONLY_ACCESS",
        /// Storages failed so that the transaction cannot be committed.
        IncompleteTransaction = 12 "INCOMPLETE_TRANSACTION",
        /// The data that an undo needs were packed.
        UndoPackError = 13 "UNDO_PACK_ERROR",
    }
}

enumeration! {
    /// The state of a node, as the primary master says.
    NodeState ("a node state") {
        /// To be forgotten. A storage that is told so of itself erases its database.
        Unknown = 0 "UNKNOWN",
        /// Not running. A node that is told so of itself shuts down.
        Down = 1 "DOWN",
        /// Running.
        Running = 2 "RUNNING",
        /// Connected, and not used yet.
        Pending = 3 "PENDING",
    }
}

enumeration! {
    /// The kind of a node.
    NodeType ("a node type") {
        /// Keeps the partition table, and gives tids and oids.
        Master = 0 "MASTER",
        /// Keeps partitions of the database.
        Storage = 1 "STORAGE",
        /// Reads and commits; the master of a backup cluster is one of the upstream cluster.
        Client = 2 "CLIENT",
        /// Serves the operator's commands.
        Admin = 3 "ADMIN",
    }
}

impl CellState {
    /// Whether the storage has all of the partition, and serves reads of it.
    pub fn is_readable(self) -> bool {
        matches!(self, CellState::UpToDate | CellState::Feeding)
    }

    /// Whether the storage takes part in commits to the partition.
    pub fn is_writable(self) -> bool {
        matches!(self, CellState::OutOfDate | CellState::UpToDate | CellState::Feeding)
    }
}

as_extension! {
    CellState = 0 "a cell state",
    ClusterState = 1 "a cluster state",
    NodeState = 3 "a node state",
    NodeType = 4 "a node type",
}

impl Encode for ErrorCode {
    fn encode(&self, out: &mut Writer<'_>) {
        out.uint(self.number().into());
    }
}

impl Decode<'_> for ErrorCode {
    fn decode(reader: &mut Reader<'_>) -> Result<ErrorCode, Mismatch> {
        let before = reader.clone();
        let number = reader.int("an error code")?;
        ErrorCode::of(number, &before)
    }
}

/// Takes an extension type: its payload is the msgpack of an integer.
fn extension(reader: &mut Reader<'_>, kind: i8, expected: &'static str) -> Result<u8, Mismatch> {
    let before = reader.clone();
    let extension = reader.extension(expected)?;
    if extension.kind != kind {
        let found = format!("the extension type {}", extension.kind);
        return Err(before.mismatch(expected, found.into()));
    }
    let mut payload = Reader::new(extension.payload);
    match payload.int(expected) {
        Ok(number) if payload.remaining() == 0 => Ok(number),
        _ => Err(before.mismatch(expected, "an extension type with another payload".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_numbered_in_their_order() {
        for (index, state) in CellState::ALL.iter().enumerate() {
            assert_eq!(CellState::from_number(index as u8), Some(*state));
        }
        assert_eq!(CellState::from_number(5), None);
        assert_eq!(ErrorCode::UndoPackError.number(), 13);
        assert_eq!(ClusterState::StoppingBackup.to_string(), "STOPPING_BACKUP");
        assert_eq!(NodeType::ALL.len(), 4);
    }

    #[test]
    fn every_form_of_an_extension_is_read_and_nothing_else() {
        let decode = |bytes: &[u8]| NodeState::decode(&mut Reader::new(bytes));
        for form in [&b"\xd4\x03\x02"[..], b"\xc7\x01\x03\x02", b"\xd5\x03\xcc\x02"] {
            assert_eq!(decode(form), Ok(NodeState::Running));
        }
        for form in [
            &b"\xd4\x04\x02"[..],
            b"\xd4\x03\x04",
            b"\xd4\x03\xc0",
            b"\xd5\x03\x02\x02",
            b"\xc7\x00\x03",
            b"\x02",
            b"\xd4\x03",
        ] {
            assert_eq!(decode(form).unwrap_err().expected, "a node state", "{form:x?}");
        }
    }
}
