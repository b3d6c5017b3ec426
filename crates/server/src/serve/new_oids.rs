//! Where the oids begin that a started server gives to new objects, in a storage of any kind.

/// Gap between the largest oid in the file and the first new one. A stock client reserves 100 oids
/// and keeps them over a restart of its server, so this is enough for 655 clients. Each start uses
/// up a part of the 2^32 oids that are found fastest, which are enough for 65,536 starts.
pub(super) const NEW_OIDS_GAP: u64 = 1 << 16;
