"""Blob files, in a directory shared with the server or in a cache of the client.

Cache files are where ZEO's client puts them, and under its locks. So processes with
either client can share one directory.
"""

import contextlib
import logging
import os
import stat
import threading
import time

import zc.lockfile
from ZODB import blob as zodb_blob
from ZODB.POSException import POSKeyError, Unsupported
from ZODB.utils import oid_repr, tid_repr, u64

from ._blob_cache_size import shrink

logger = logging.getLogger("zodium.blobs")

LAYOUT = "zeocache"
# Longest wait for another process's lock of a folder: as long as a large download takes.
LOCK_SECONDS_MAX = 600


class CacheLayout:
    """Return the folder and name of a blob file."""

    size = 997

    def oid_to_path(self, oid):
        return str(u64(oid) % self.size)

    def getBlobFilePath(self, oid, tid):
        number, folder = divmod(u64(oid), self.size)
        return os.path.join(str(folder), f"{number}.{tid.hex()}{zodb_blob.BLOB_SUFFIX}")


class BlobFiles:
    """The blob directory of one storage."""

    def __init__(self, directory, shared, cache_bytes, check_percent, name):
        self.shared = shared
        self._name = name
        self._size_thread = None
        self._loaded_bytes = 0
        self._cache_bytes = None if shared else cache_bytes
        if shared:
            self.helper = zodb_blob.FilesystemHelper(directory)
        else:
            zodb_blob.LAYOUTS.setdefault(LAYOUT, CacheLayout())
            self.helper = zodb_blob.FilesystemHelper(directory, layout_name=LAYOUT)
            self.helper.create()
        if self._cache_bytes is not None:
            if not 0 <= check_percent < 100:
                raise ValueError(f"blob_cache_size_check is {check_percent}: give 0 to 99 percent")
            self._check_bytes = cache_bytes * check_percent // 100
            self._shrink()

    def take(self, oid, serial, file_name):
        """Move a file that will be committed to a temporary name of our own."""
        self.helper.getPathForOID(oid, create=True)
        descriptor, reserved = self.helper.blob_mkstemp(oid, serial)
        os.close(descriptor)
        # A server that shares this directory recognises such a file by the end of its name.
        taken = f"{reserved}-"
        try:
            zodb_blob.rename_or_copy_blob(file_name, taken)
        except BaseException:
            discard(taken)
            raise
        finally:
            discard(reserved)
        return taken

    def committed(self, blobs, tid):
        """Add blobs that were sent to the cache, and empty the list.

        A blob that cannot be added is removed: it is loaded from the server when needed.
        """
        # In the order of the stores: of several for one object, the server keeps the last one.
        blobs.reverse()
        while blobs:
            oid, file_name = blobs[-1]
            try:
                self._keep(oid, file_name, tid)
            except Exception as error:
                discard(file_name)
                logger.warning(
                    "%s: blob %s of transaction %s is committed, but not in the cache %s (%s);"
                    " it is loaded from the server when it is needed",
                    self._name,
                    oid_repr(oid),
                    tid_repr(tid),
                    self.helper.base_dir,
                    error,
                )
            blobs.pop()
        try:
            self._shrink_when_due()
        except Exception as error:
            logger.warning("%s: cannot shrink the blob cache: %s", self._name, error)

    def _keep(self, oid, file_name, tid):
        size = os.stat(file_name).st_size
        self.helper.getPathForOID(oid, create=True)
        target = self.helper.getBlobFilename(oid, tid)
        with lock_of(target):
            # A rename within the folder: other processes see the whole file or none.
            zodb_blob.set_not_writable(file_name)
            os.replace(file_name, target)
        self._loaded_bytes += size

    def load(self, oid, serial, fetch):
        """Return the name of a blob's file; `fetch` has the server send it to a new file."""
        file_name = self.helper.getBlobFilename(oid, serial)
        if self.shared:
            if os.path.exists(file_name):
                return file_name
            raise POSKeyError(f"No blob file at {file_name}", oid, serial)
        if os.path.exists(file_name):
            return used(file_name)
        self.helper.createPathForOID(oid)
        with lock_of(file_name):
            return self._load_locked(oid, serial, file_name, fetch)

    def open(self, oid, serial, fetch, blob=None):
        """Return a committed blob, opened for reading."""
        file_name = self.load(oid, serial, fetch)
        try:
            return opened(file_name, blob)
        except OSError:
            # Another process has just removed the file from the cache: retry with the lock held.
            if self.shared:
                raise POSKeyError("No blob file", oid, serial) from None
        with lock_of(file_name):
            return opened(self._load_locked(oid, serial, file_name, fetch), blob)

    def _load_locked(self, oid, serial, file_name, fetch):
        if os.path.exists(file_name):
            return used(file_name)
        partial = f"{file_name}.dl"
        # The rest of an interrupted download.
        remove(partial)
        try:
            fetch(oid, serial, partial)
        except BaseException:
            remove(partial)
            raise
        self._loaded_bytes += os.stat(partial).st_size
        os.chmod(partial, stat.S_IREAD)
        os.rename(partial, file_name)
        self._shrink_when_due()
        return file_name

    def close(self):
        if self._size_thread is not None:
            self._size_thread.join()

    def _shrink_when_due(self):
        if self._cache_bytes is not None and self._loaded_bytes >= self._check_bytes:
            self._shrink()

    def _shrink(self):
        self._loaded_bytes = 0
        target_bytes = max(self._cache_bytes - self._check_bytes, 0)
        self._size_thread = threading.Thread(
            target=shrink,
            args=(self.helper.base_dir, target_bytes),
            name=f"{self._name} blob cache size",
            daemon=True,
        )
        self._size_thread.start()


def remove(file_name):
    with contextlib.suppress(FileNotFoundError):
        os.remove(file_name)


def discard(file_name):
    """Remove a file that is not needed; log a failure."""
    try:
        remove(file_name)
    except OSError as error:
        logger.warning("Cannot remove a temporary file, please remove it: %s", error)


def opened(file_name, blob):
    if blob is None:
        return open(file_name, "rb")
    return zodb_blob.BlobFile(file_name, "r", blob)


def used(file_name):
    """Record the time of use, which decides evictions; return the name."""
    with contextlib.suppress(OSError):
        os.utime(file_name, (time.time(), os.stat(file_name).st_mtime))
    return file_name


@contextlib.contextmanager
def lock_of(file_name):
    """Lock a file's folder against other processes that share the cache."""
    lock_name = os.path.join(os.path.dirname(file_name), ".lock")
    deadline = time.monotonic() + LOCK_SECONDS_MAX
    while True:
        try:
            lock = zc.lockfile.LockFile(lock_name)
            break
        except zc.lockfile.LockError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    try:
        yield
    finally:
        lock.close()


def no_directory(*_):
    raise Unsupported("No blob directory is configured: pass blob_dir")
