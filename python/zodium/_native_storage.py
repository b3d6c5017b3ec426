"""The methods that storages over a native client have in common.

Key decision: everything that waits for a storage is native and runs without the GIL.
Operations that happen at most once in a transaction are here, in terms of ZODB's own classes.
"""

import logging
import time

import zope.interface
from ZODB import interfaces
from ZODB.BaseStorage import copy
from ZODB.blob import is_blob_record
from ZODB.ConflictResolution import ConflictResolvingStorage
from ZODB.POSException import POSKeyError
from ZODB.utils import maxtid

from . import _lifetime
from ._commit import Commits
from ._iteration import TransactionIterator
from .exceptions import OutcomeUnknown

logger = logging.getLogger("zodium.client")

MEGABYTE = 1 << 20
WAIT_SECONDS = 30


class CountingBlobs:
    """A storage that counts the records of blobs that are restored in it."""

    def __init__(self, storage):
        self._storage = storage
        self.count = 0

    def __getattr__(self, name):
        return getattr(self._storage, name)

    def restore(self, oid, serial, data, *rest):
        self.count += bool(is_blob_record(data))
        return self._storage.restore(oid, serial, data, *rest)


@zope.interface.implementer(interfaces.IMultiCommitStorage, interfaces.IPrefetchStorage)
class NativeStorage(Commits, ConflictResolvingStorage):
    """A ZODB storage over a native client, which `_use` is called with."""

    # Interfaces that the storage provides if the native client says so.
    _offered = ()

    def __init__(self, name):
        self.__name__ = name
        self._db = None
        self._info = {
            "length": 0,
            "size": 0,
            "name": "Zodium Client",
            "supportsUndo": 0,
            "interfaces": (),
        }
        self._blobs = None
        self.shared_blob_dir = False
        self.server_sync = False

    def _use(self, client):
        self._client = client
        # The most frequent methods go directly to the native client. Only these: code that keeps a
        # bound method, as ZODB's connections do, would keep a client that was replaced.
        if type(self).loadBefore is NativeStorage.loadBefore:
            self.loadBefore = client.load_before

    # Callbacks of the client, in the order of the server's messages. They run on the reading
    # thread, so they must not wait for the server.

    def notify_connected(self, info):
        """A connection is established, and all missed invalidations were reported."""
        # Only the oids of missed commits are known, so objects loaded meanwhile may be stale.
        if self._db is not None:
            self._db.invalidateCache()
        logger.info("%s is connected", self.__name__)
        self._info.update(info)
        names = {tuple(name) for name in self._info.get("interfaces", ())}
        for interface in self._offered:
            if (interface.__module__, interface.__name__) in names:
                zope.interface.alsoProvides(self, interface)

    def notify_disconnected(self):
        """The connection is lost, and with it the server's state for it."""
        logger.info("%s lost its connection", self.__name__)

    def info(self, changed):
        """The server sent its size and number of objects."""
        self._info.update(changed)

    def invalidateCache(self):
        """It is no longer known what has changed."""
        if self._db is not None:
            self._db.invalidateCache()

    def invalidateTransaction(self, tid, oids):
        """Another client has committed."""
        if self._db is not None:
            self._db.invalidate(tid, oids)

    # Methods of the storage itself.

    def registerDB(self, db):
        super().registerDB(db)
        self._db = db

    def close(self):
        """Close the connection; later calls raise ClientDisconnected."""
        self._client.close()
        # Afterwards: a child that is forked meanwhile must not wait for the parent's threads.
        _lifetime.untrack(self)

    def outcome(self, error):
        """Return the tid that a transaction was committed under, or None if it was not committed.

        `error` is the OutcomeUnknown of its tpc_finish, or an exception that was raised from
        one, such as KeyboardInterrupt. It is raised again if the outcome cannot be found out:
        the transaction stored no objects, the server changed all their data, or a pack or a
        deletion has removed the evidence. A server that was still committing when the connection
        was lost may take a moment.
        """
        while error is not None and not isinstance(error, OutcomeUnknown):
            error = error.__cause__
        if error is not None and error.committed is not None:
            return error.committed
        if error is None or error.unfinished is None:
            raise ValueError("this is no OutcomeUnknown of a transaction of this process")
        tid = self._client.outcome(error.unfinished)
        if tid is False:
            raise error
        return tid

    def is_connected(self, test=False):
        return self._client.is_connected()

    def ping(self):
        """Wait until all earlier commits are known to this client."""
        return self._call("ping")

    def sync(self):
        if self.server_sync:
            self.ping()

    def __len__(self):
        return self._info["length"]

    def getName(self):
        state = "connected" if self.is_connected() else "disconnected"
        return f"{self.__name__} ({state})"

    def getSize(self):
        return self._info["size"]

    def supportsUndo(self):
        return self._info["supportsUndo"]

    def loadBefore(self, oid, tid):
        return self._client.load_before(oid, tid)

    def prefetch(self, oids, tid):
        return self._client.prefetch(oids, tid)

    def clear_cache(self):
        """Drop all revisions from the cache, so that the next loads go to the server."""
        self._client.clear_cache()

    def load_many(self, oids, before):
        """Return loadBefore of each oid, with one request; None also for a missing object."""
        return self._client.load_many(oids, before)

    def lastTransaction(self):
        return self._client.last_tid()

    def new_oid(self):
        return self._client.new_oid()

    def isReadOnly(self):
        return self._client.is_read_only()

    is_read_only = isReadOnly

    def load(self, oid, version=""):
        revision = self.loadBefore(oid, maxtid)
        if revision is None:
            raise POSKeyError(oid)
        return revision[:2]

    def loadSerial(self, oid, serial):
        # Not from the cache, which does not know what a pack has removed.
        return self._call("loadSerial", oid, serial)

    def getTid(self, oid):
        return self._call("getTid", oid)

    def history(self, oid, size=1):
        return self._call("history", oid, size)

    def record_iternext(self, next=None):
        return self._client.next_object(next)

    def pack(self, t=None, referencesf=None, wait=1, days=0):
        """Pack up to a time; the server finds references itself and ignores `referencesf`."""
        until = time.time() if t is None else t
        return self._call("pack", until - days * 86400, wait)

    def undoInfo(self, first=0, last=-20, specification=None):
        return self._call("undoInfo", first, last, specification)

    def undoLog(self, first=0, last=-20, filter=None):
        """Return undoable transactions; an empty list with a `filter`, which cannot be sent."""
        return [] if filter is not None else self._call("undoLog", first, last)

    def copyTransactionsFrom(self, other, verbose=0):
        """Copy transactions, without the files of blobs: servers take them for new blobs only."""
        counting = CountingBlobs(self)
        copy(other, counting, verbose)
        if counting.count:
            logger.warning(
                "%s: %s records of blobs were copied without their files; `zodium copy` with"
                " --to-blob-dir copies both",
                self.__name__,
                counting.count,
            )

    def iterator(self, start=None, stop=None):
        return TransactionIterator(self._client, start, stop)

    # Calls of methods by name.

    def _call(self, method, *arguments):
        return self._client.call(method, *arguments)

    def _after_fork_in_child(self):
        self._client.after_fork_in_child()
