//! What a tie is to, as its origin says: objects that had not changed after a transaction.
//!
//! docs/format.md describes the bytes.

use zodium_keyspace::Tie;
use zodium_types::{Oid, Tid};

use super::items::{Bytes, write_bytes};
use crate::storages::Storages;
use crate::ties::Object;

/// Bytes of the transaction.
const SINCE_BYTES: usize = 8;

/// The origin of a tie to objects that had not changed after a transaction.
pub(crate) fn origin(storages: &dyn Storages, objects: &[Object], since: Tid) -> Vec<u8> {
    let mut out = since.0.to_be_bytes().to_vec();
    for (storage, Oid(oid)) in objects {
        write_bytes(&mut out, storages.name(*storage).as_bytes());
        out.extend_from_slice(&oid.to_be_bytes());
    }
    out
}

/// The transaction and the objects of an origin; `None` if one of the storages is not served.
pub(crate) fn objects_of(storages: &dyn Storages, origin: &[u8]) -> Option<(Tid, Vec<Object>)> {
    let since = since(origin)?;
    let mut bytes = Bytes(origin.get(SINCE_BYTES..)?);
    let mut objects = Vec::new();
    while !bytes.0.is_empty() {
        let name = std::str::from_utf8(bytes.bytes()?).ok()?;
        objects.push((storages.find(name)?, Oid(bytes.long()?)));
    }
    Some((since, objects))
}

/// The transaction of an origin.
pub(crate) fn since(origin: &[u8]) -> Option<Tid> {
    Bytes(origin).long().map(Tid)
}

/// Whether two ties are to the same objects, whatever their transactions.
pub(crate) fn are_to_the_same(one: &Tie, other: &Tie) -> bool {
    let [one, other] = [one, other].map(|tie| tie.origin().get(SINCE_BYTES..));
    one.is_some() && one == other
}
