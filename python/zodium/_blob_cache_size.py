"""Shrink a blob cache that has grown too large, least recently used files first."""

import logging
import os
import re
import time

import zc.lockfile
from ZODB import blob as zodb_blob

logger = logging.getLogger("zodium.blobs")

is_folder_of_cache = re.compile(r"\d+$").match

# What a commit or a download makes of a blob until it is done.
TEMPORARY_SUFFIXES = (".tmp", ".tmp-", ".dl")
# Nothing takes so long. What is older belonged to a process that was killed.
ABANDONED_SECONDS = 24 * 60 * 60


def shrink(directory, target_bytes):
    """Remove files until the rest has at most `target_bytes`.

    Only one process at a time does this. Another process that finds it running leaves a
    marker file, and the running process then starts over.
    """
    attempt = os.path.join(directory, "check_size.attempt")
    lock = size_lock(directory)
    if lock is None:
        with open(attempt, "w"):
            return
    try:
        remove_abandoned(directory)
        while True:
            files = files_of(directory)
            if sum(size for _, size, _ in files) > target_bytes:
                if not remove_oldest(files, target_bytes):
                    return
            elif os.path.exists(attempt):
                os.remove(attempt)
            else:
                return
    finally:
        lock.close()


def size_lock(directory):
    for pause_seconds in (1, 0):
        try:
            return zc.lockfile.LockFile(os.path.join(directory, "check_size.lock"))
        except zc.lockfile.LockError:
            time.sleep(pause_seconds)
    return None


def files_of(directory):
    """Return [(time of use, bytes, path)] of all blobs in the cache."""
    found = entries_of(directory, zodb_blob.BLOB_SUFFIX)
    return [(status.st_atime, status.st_size, path) for path, status in found]


def remove_abandoned(directory):
    """Remove temporary files of processes that were killed."""
    since = time.time() - ABANDONED_SECONDS
    for path, status in entries_of(directory, TEMPORARY_SUFFIXES):
        # The time of the last change of its name: an application may have written it long before.
        if status.st_ctime < since:
            try:
                os.remove(path)
            except OSError as error:
                logger.debug("%s stays: %s", path, error)


def entries_of(directory, suffixes):
    """Yield (path, status) of files in the folders of the cache, by the end of their names."""
    for folder in os.scandir(directory):
        if not (is_folder_of_cache(folder.name) and folder.is_dir()):
            continue
        for entry in os.scandir(folder.path):
            if not entry.name.endswith(suffixes):
                continue
            try:
                yield entry.path, entry.stat()
            except FileNotFoundError:
                continue


def remove_oldest(files, target_bytes):
    """Remove files; return whether any could be removed."""
    left_bytes = sum(size for _, size, _ in files)
    removed = 0
    for _, size, path in sorted(files):
        if left_bytes <= target_bytes:
            break
        try:
            lock = zc.lockfile.LockFile(os.path.join(os.path.dirname(path), ".lock"))
        except zc.lockfile.LockError:
            logger.debug("%s is in use and stays", path)
            continue
        try:
            zodb_blob.remove_committed(path)
        except OSError as error:
            logger.debug("%s stays: %s", path, error)
        else:
            left_bytes -= size
            removed += 1
        finally:
            lock.close()
    return removed > 0
