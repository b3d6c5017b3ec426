"""ClientStorage: a ZODB storage on a ZEO server.

Key decision: the cache, and everything that waits for the server, is native and runs without
the GIL. Operations that happen at most once in a transaction are here, in terms of ZODB's
own classes.
"""

import functools
import logging
import os
import socket
import time
import weakref

import zope.interface
from ZODB import interfaces
from ZODB.BaseStorage import copy
from ZODB.ConflictResolution import ConflictResolvingStorage
from ZODB.POSException import POSKeyError
from ZODB.utils import maxtid

from . import _blobs, _lifetime
from ._addresses import addresses
from ._commit import Commits
from ._iteration import TransactionIterator
from ._native import Client
from ._tls import tls_options
from .exceptions import ClientDisconnected, OutcomeUnknown

logger = logging.getLogger("zodium.client")

MEGABYTE = 1 << 20
WAIT_SECONDS = 30

# Interfaces that this storage provides if the server says that its storage does.
OFFERED = (
    interfaces.IStorageRestoreable,
    interfaces.IStorageIteration,
    interfaces.IStorageUndoable,
    interfaces.IStorageCurrentRecordIteration,
    interfaces.IBlobStorage,
    interfaces.IExternalGC,
)


@zope.interface.implementer(interfaces.IMultiCommitStorage, interfaces.IPrefetchStorage)
class ClientStorage(Commits, ConflictResolvingStorage):
    """A ZODB storage on a ZEO server.

    The parameters are those of ZEO.ClientStorage.ClientStorage, with the same meaning.
    docs/python.md lists the few that differ.
    """

    def __init__(
        self,
        addr,
        storage="1",
        cache_size=20 * MEGABYTE,
        name="",
        wait_timeout=None,
        disconnect_poll=None,
        read_only=0,
        read_only_fallback=0,
        blob_dir=None,
        shared_blob_dir=False,
        blob_cache_size=None,
        blob_cache_size_check=10,
        client_label=None,
        cache=None,
        ssl=None,
        ssl_server_hostname=None,
        client=None,
        var=None,
        min_disconnect_poll=1,
        max_disconnect_poll=None,
        wait=True,
        drop_cache_rather_verify=True,
        credentials=None,
        server_sync=False,
        username=None,
        password=None,
        realm=None,
        silence_timeout=60,
    ):
        _lifetime.refuse_gevent()
        self.__name__ = name or str(addr)
        self._addr = addresses(addr)
        self._storage = storage
        self._server_addr = None
        self._db = None
        self._info = {
            "length": 0,
            "size": 0,
            "name": "Zodium Client",
            "supportsUndo": 0,
            "interfaces": (),
        }
        self.blob_dir = blob_dir
        self.shared_blob_dir = shared_blob_dir
        self._blobs = None
        if blob_dir is not None:
            self._blobs = _blobs.BlobFiles(
                blob_dir, shared_blob_dir, blob_cache_size, blob_cache_size_check, self.__name__
            )
        self.fshelper = self._blobs and self._blobs.helper
        self.server_sync = server_sync
        connect = functools.partial(
            Client,
            # A weak reference: the storage holds the client.
            watcher=weakref.ref(self),
            storage=storage,
            read_only=bool(read_only),
            read_only_fallback=bool(read_only_fallback),
            wait_seconds=WAIT_SECONDS if wait_timeout is None else wait_timeout,
            silence_seconds=silence_timeout,
            cache_bytes=cache_size,
            cache_path=cache_path(cache, client, var, storage),
            label=client_label,
            tls=tls_options(ssl, ssl_server_hostname),
        )
        self._use(connect(self._addr))
        _lifetime.track(self)
        if wait:
            try:
                self._client.wait()
            except BaseException:
                self.close()
                raise

    def _use(self, client):
        self._client = client
        # The most frequent methods go directly to the native client. Only these: code that keeps a
        # bound method, as ZODB's connections do, would keep a client that new_addr closes.
        if type(self).loadBefore is ClientStorage.loadBefore:
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
        for interface in OFFERED:
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
        if self._blobs is not None:
            self._blobs.close()

    def new_addr(self, addr):
        """Reconnect to one of these servers of the same storage, and keep the cache."""
        self._addr = addresses(addr)
        self._client.set_addresses(self._addr)

    def outcome(self, error):
        """Return the tid that a transaction was committed under, or None if it was not committed.

        `error` is the OutcomeUnknown of its tpc_finish, or an exception that was raised from
        one, such as KeyboardInterrupt. It is raised again if the outcome cannot be found out:
        the transaction stored no objects, or the server changed all their data. A server that
        was still committing when the connection was lost may take a moment.
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

    def sortKey(self):
        peer = self._client.peer()
        if peer is not None:
            self._server_addr = canonical(peer)
        if self._server_addr is None:
            raise ClientDisconnected("never connected")
        return f"{self._storage}:{self._server_addr}"

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
        copy(other, self, verbose)

    def iterator(self, start=None, stop=None):
        return TransactionIterator(self._client, start, stop)

    def server_status(self, timeout=None):
        return self._call("server_status", timeout=timeout)

    # Calls of server methods.

    def _call(self, method, *arguments, timeout=None):
        """Call a method; with a timeout, wait at most that many seconds for a connection."""
        if timeout is not None:
            self._wait_at_most(timeout)
        return self._client.call(method, *arguments)

    def _wait_at_most(self, seconds):
        deadline = time.monotonic() + seconds
        while not self._client.is_connected():
            if time.monotonic() > deadline:
                raise ClientDisconnected(f"no connection within {seconds} seconds")
            time.sleep(0.01)

    def _cast(self, method, *arguments):
        self._client.cast(method, *arguments)

    def _after_fork_in_child(self):
        self._client.after_fork_in_child()

    # Blobs.

    def loadBlob(self, oid, serial):
        return self._blob_files().load(oid, serial, self._client.fetch_blob)

    def openCommittedBlobFile(self, oid, serial, blob=None):
        return self._blob_files().open(oid, serial, self._client.fetch_blob, blob)

    def temporaryDirectory(self):
        return self._blob_files().helper.temp_dir

    def _blob_files(self):
        if self._blobs is None:
            _blobs.no_directory()
        return self._blobs


@functools.lru_cache
def canonical(peer):
    """Return a server's address in the same form for all clients: it orders commits."""
    host, _, port = peer.rpartition(":")
    if not host or "/" in peer:
        return peer
    try:
        host = socket.gethostbyaddr(host.strip("[]"))[0]
    except OSError as error:
        logger.debug("%s has no name: %s", host, error)
    return str((host, int(port)))


def cache_path(cache, client, var, storage):
    """Return the path of the cache file, or None; never the path of a cache of ZEO's client."""
    if cache is None and client:
        cache = os.path.join(var or os.getcwd(), f"{client}-{storage}")
    if cache is None:
        return None
    if isinstance(cache, (str, os.PathLike)):
        return os.fspath(cache) + ".zodium"
    raise TypeError(f"cache is {cache!r}: give the path of a file, or nothing")
