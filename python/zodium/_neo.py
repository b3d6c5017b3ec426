"""NEOStorage: a ZODB storage on a NEO cluster."""

import functools
import json
import logging
import os
import re
import weakref

from ZODB import ConflictResolution, interfaces
from ZODB.POSException import ConflictError, Unsupported
from ZODB.utils import z64

from . import _lifetime
from ._native import NeoClient
from ._native_storage import MEGABYTE, WAIT_SECONDS, NativeStorage, logger

# Interfaces of the storage.
OFFERED = (
    interfaces.IStorageRestoreable,
    interfaces.IStorageIteration,
    interfaces.IStorageUndoable,
    interfaces.IStorageCurrentRecordIteration,
    interfaces.IExternalGC,
)
COMPRESSIONS = re.compile(r"zlib(=\d+)?")


class NEOStorage(NativeStorage):
    """A ZODB storage on a NEO cluster.

    The parameters are those of neo.client.Storage.Storage, with the same meaning.
    docs/python.md lists those that differ.
    """

    _offered = OFFERED

    def __init__(
        self,
        master_nodes,
        name,
        compress=None,
        logfile=None,
        read_only=False,
        cache_size=20 * MEGABYTE,
        dynamic_master_list=None,
        ignore_wrong_checksum=False,
        ca=None,
        cert=None,
        key=None,
        wait_timeout=None,
        wait=True,
        server_sync=True,
    ):
        _lifetime.refuse_greenlets()
        if ignore_wrong_checksum:
            raise ValueError(
                "ignore-wrong-checksum is not offered: data that are damaged at one storage are"
                " read from another one"
            )
        super().__init__(f"NEOStorage({name})")
        self.server_sync = server_sync
        if logfile:
            log_to(logfile)
        self._use(
            NeoClient(
                masters(master_nodes, dynamic_master_list),
                name,
                # Weak references: the storage holds the client.
                watcher=weakref.ref(self),
                resolve=functools.partial(resolved, weakref.ref(self)),
                read_only=bool(read_only),
                compress=compresses(compress),
                cache_bytes=cache_size,
                wait_seconds=wait_timeout or WAIT_SECONDS,
                tls=tls_files(ca, cert, key),
            )
        )
        _lifetime.track(self)
        if wait:
            try:
                self._client.wait()
            except BaseException:
                self.close()
                raise

    def sortKey(self):
        return self.__name__

    def pack(self, t=None, referencesf=None, wait=1, days=0):
        """Drop old revisions, and wait until all storages have; no objects are dropped."""
        if not wait:
            raise Unsupported("a pack of a NEO cluster is waited for: call it in a thread")
        return super().pack(t, referencesf, wait, days)

    def storeBlob(self, oid, serial, data, blobfilename, version, txn):
        raise Unsupported("NEO has no blobs: wrap the storage in a ZODB.blob.BlobStorage")

    def _extension(self, txn):
        # Exactly as it was pickled: the cluster keeps instances too, as NEO/py has it keep them.
        pickled = getattr(txn, "extension_bytes", None)
        return txn.extension if pickled is None else pickled


class ThreeRecords(ConflictResolution.ConflictResolvingStorage):
    """The records of a conflict, as ZODB's function for it asks for them."""

    def __init__(self, storage, old):
        self._old = old
        self._crs_untransform_record_data = storage._crs_untransform_record_data
        self._crs_transform_record_data = storage._crs_transform_record_data

    def loadSerial(self, oid, serial):
        return self._old


def resolved(storage, old, committed, new):
    """Merge the changes from `old` to `new` with those to `committed`; None if they conflict."""
    storage = storage()
    if storage is None:
        return None
    records = ThreeRecords(storage, old)
    try:
        return records.tryToResolveConflict(z64, z64, z64, new, committed)
    except ConflictError:
        return None


def masters(given, list_path):
    """Return [(host, port)] of masters: `given` is a text with spaces or commas, or a sequence."""
    words = re.split(r"[\s,/]+", given.strip()) if isinstance(given, str) else list(given)
    found = [word if isinstance(word, tuple) else address(word) for word in words if word]
    if list_path and os.path.exists(list_path):
        with open(list_path) as listed:
            found += [(host, port) for host, port in json.load(listed)]
    return list(dict.fromkeys(found))


def address(word):
    host, _, port = word.rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f"{word!r} is no address of a master: write host:port")
    return host.strip("[]"), int(port)


def compresses(given):
    if given is None or isinstance(given, bool):
        return given is not False
    if COMPRESSIONS.fullmatch(given):
        return True
    raise ValueError(f"compress is {given!r}: write yes, no or zlib")


def tls_files(ca, cert, key):
    files = (ca, cert, key)
    if not any(files):
        return None
    if not all(files):
        raise ValueError("a NEO cluster with TLS needs all of ca, cert and key")
    return tuple(os.fspath(file) for file in files)


def log_to(path):
    """Write the log of native clients to a file, too."""
    path = os.path.abspath(path)
    if any(getattr(handler, "baseFilename", None) == path for handler in logger.handlers):
        return
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-8s %(message)s"))
    logger.addHandler(handler)
    if logger.getEffectiveLevel() > logging.INFO:
        logger.setLevel(logging.INFO)
