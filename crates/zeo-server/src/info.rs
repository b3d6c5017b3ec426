//! What a client learns of a storage: its name, its size and its features.

use zodium_engine::Database;
use zodium_pickle::Value;

use crate::call::OWN_METHODS;
use crate::exception::text_value;
use crate::peer::Peer;

/// Interfaces announced for a storage with a blob directory, whether clients share it or not.
const BLOB_INTERFACES: [&str; 2] = ["IBlobStorageRestoreable", "IBlobStorage"];
/// Interfaces of ZODB that are announced for every storage.
const INTERFACES: [&str; 6] = [
    "IStorageRestoreable",
    "IStorageIteration",
    "IStorageUndoable",
    "IStorageCurrentRecordIteration",
    "IExternalGC",
    "IStorage",
];

/// The answer to `get_info`.
pub(crate) fn info(storage: &Database) -> Value<'static> {
    let (blobs, storage) = (storage.blobs(), storage.reader());
    let blobs = blobs.into_iter().flat_map(|_| BLOB_INTERFACES);
    let served = blobs.chain(INTERFACES).map(|name| ("ZODB.interfaces", name));
    let interfaces = served.chain([("zope.interface", "Interface")]);
    let interfaces =
        interfaces.map(|(module, name)| Value::tuple([text_value(module), text_value(name)]));
    Value::dict([
        ("length", Value::Int(storage.object_count().into())),
        ("size", Value::Int(storage.size().into())),
        ("name", text_value(storage.name())),
        // Also when no undo is taken: `DB.undoLog` lists nothing without it.
        ("supportsUndo", Value::Bool(true)),
        ("supports_record_iternext", Value::Bool(true)),
        ("interfaces", Value::tuple(interfaces)),
        // Stock clients ignore unknown entries.
        ("zodium_methods", Value::tuple(OWN_METHODS.map(text_value))),
    ])
}

/// Sends the size of the database to the client.
pub(crate) fn send_info(peer: &Peer) {
    let storage = peer.storage().reader();
    let info = Value::dict([
        ("length", Value::Int(storage.object_count().into())),
        ("size", Value::Int(storage.size().into())),
    ]);
    peer.replies.put_oneway("info", &Value::tuple([info]));
}
