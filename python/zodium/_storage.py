"""ClientStorage: a ZODB storage on a ZEO server.

What other storages over a native client do as well is in _native_storage.py.
"""

import functools
import os
import socket
import time
import weakref

from ZODB import interfaces

from . import _blobs, _lifetime
from ._addresses import addresses
from ._native import ServerClient
from ._native_storage import MEGABYTE, WAIT_SECONDS, NativeStorage, logger
from ._tls import tls_options
from .exceptions import ClientDisconnected

# Interfaces that the storage provides if the server says that its storage does.
OFFERED = (
    interfaces.IStorageRestoreable,
    interfaces.IStorageIteration,
    interfaces.IStorageUndoable,
    interfaces.IStorageCurrentRecordIteration,
    interfaces.IBlobStorage,
    interfaces.IExternalGC,
)


class ClientStorage(NativeStorage):
    """A ZODB storage on a ZEO server.

    The parameters are those of ZEO.ClientStorage.ClientStorage, with the same meaning.
    docs/python.md lists the few that differ.
    """

    _offered = OFFERED

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
        warm_up=None,
    ):
        _lifetime.refuse_greenlets()
        super().__init__(name or str(addr))
        self._addr = addresses(addr)
        self._storage = storage
        self._server_addr = None
        self._is_closed = False
        self.blob_dir = blob_dir
        self.shared_blob_dir = shared_blob_dir
        if blob_dir is not None:
            self._blobs = _blobs.BlobFiles(
                blob_dir, shared_blob_dir, blob_cache_size, blob_cache_size_check, self.__name__
            )
        self.fshelper = self._blobs and self._blobs.helper
        self.server_sync = server_sync
        connect = functools.partial(
            ServerClient,
            # A weak reference: the storage holds the client.
            watcher=weakref.ref(self),
            storage=storage,
            read_only=bool(read_only),
            read_only_fallback=bool(read_only_fallback),
            wait_seconds=wait_timeout or WAIT_SECONDS,
            silence_seconds=silence_timeout,
            cache_bytes=cache_size,
            warm_up=False if warm_up == "off" else warm_up,
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

    def close(self):
        self._is_closed = True
        super().close()
        if self._blobs is not None:
            self._blobs.close()

    def new_addr(self, addr):
        """Reconnect to one of these servers of the same storage, and keep the cache."""
        self._addr = addresses(addr)
        self._client.set_addresses(self._addr)

    def sortKey(self):
        peer = self._client.peer()
        if peer is not None:
            self._server_addr = canonical(peer)
        if self._server_addr is None:
            reason = "the client was closed" if self._is_closed else "never connected"
            raise ClientDisconnected(reason)
        return f"{self._storage}:{self._server_addr}"

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
